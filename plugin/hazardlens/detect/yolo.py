"""Any Ultralytics detection model, with its tracker kept apart for each stream."""

from __future__ import annotations

import difflib
import logging
import pickle
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hazardlens.detect.base import Detections, Detector
from hazardlens.detect.ultralytics_setup import GITHUB_ASSETS_NAMES, YOLO, Results
from hazardlens.errors import DetectionError, PipelineError, WeightsError
from hazardlens.frames.base import Frame
from hazardlens.resources import WITHOUT_WEIGHTS, model_source

_log = logging.getLogger(__name__)

_TASKS_WITH_BOXES = ("detect", "segment", "pose")


class YoloDetector(Detector):
    """An Ultralytics model that finds boxes, by path or by one of the names that Ultralytics publishes.

    Args:
        weights: Path of a model (`.pt`, `.onnx`, `.tflite`, an OpenVINO folder, ...), name of a shipped one, or a
            published name such as `yolo26n.pt`, which Ultralytics fetches when it is not there.
        classes: Names of the classes to look for; None for all.
        confidence: Detections below this confidence are dropped, 0..1.
        image_size_px: Longest side that the network sees.
        device: Ultralytics' device string, or None for its own choice.
        track: Whether objects are followed from frame to frame.
        tracker: A tracker configuration of Ultralytics, by name or path; None for its default.

    Raises:
        WeightsError: If the weights cannot be had, are not of a model that finds boxes, or cannot run as set.
        PipelineError: If a class is named that the model does not have.
    """

    def __init__(
        self,
        weights: str | Path = "yolo26n.pt",
        *,
        classes: Sequence[str] | None = None,
        confidence: float = 0.25,
        image_size_px: int = 640,
        device: str | None = None,
        track: bool = True,
        tracker: str | None = None,
    ) -> None:
        self.name = Path(weights).name
        self._model, self.class_names = _load(model_source(weights))
        self.demo = is_demo(self._model)
        self._track = track
        self._arguments: dict[str, Any] = {
            "conf": confidence,
            "imgsz": image_size_px,
            "device": device,
            "classes": class_ids(self.class_names, classes, model=self.name),
            "verbose": False,
            "save": False,
        }
        self._tracking = {} if tracker is None else {"tracker": tracker}
        self._stream: Hashable | None = None
        self._trackers: dict[Hashable, list[Any]] = {}
        self._warm_up(image_size_px)

    def _warm_up(self, size_px: int) -> None:
        """Look at one blank picture, so that settings that cannot work are found before a video is begun."""
        blank = np.zeros((size_px, size_px, 3), np.uint8)
        advice = "Check device, image size and tracker."
        with _translated(f"detector {self.name} cannot run", WeightsError, help=advice):
            self._results([blank], stream=self)
        self.forget(self)

    def detect(self, frames: Sequence[Frame], *, stream: Hashable | None = None) -> list[Detections]:
        """Find and follow objects on consecutive frames; of a stream, what the tracker has no track for is left out.

        Raises:
            DetectionError: If the model fails; the message names the frame.
        """
        images = [np.ascontiguousarray(frame.image) for frame in frames]
        place = f"{self.name} failed on frame {frames[0].index} of {frames[0].source}"
        with _translated(place, DetectionError, help="Check that memory is free."):
            results = self._results(images, stream=stream)
        return [to_detections(result, self.class_names) for result in results]

    def forget(self, stream: Hashable) -> None:
        """Drop the tracks of a stream."""
        self._trackers.pop(stream, None)
        if stream == self._stream:
            self._stream = None
            self._put_in_place([])

    def _results(self, images: list[np.ndarray[Any, Any]], *, stream: Hashable | None) -> list[Results]:
        if not self._track or stream is None:
            return list(self._model.predict(images, **self._arguments))
        self._switch_to(stream)
        return list(self._model.track(images, persist=True, **self._tracking, **self._arguments))

    def _switch_to(self, stream: Hashable) -> None:
        """Put this stream's trackers in place and keep those of the stream before."""
        if stream == self._stream:
            return
        if self._stream is not None and self._model.predictor is not None:
            self._trackers[self._stream] = self._model.predictor.trackers
        self._put_in_place(self._trackers.pop(stream, []))
        self._stream = stream

    def _put_in_place(self, trackers: list[Any]) -> None:
        """Ultralytics makes new trackers where the list is empty."""
        if self._model.predictor is not None:
            self._model.predictor.trackers = trackers


@contextmanager
def _translated(what: str, to: type[DetectionError] | type[WeightsError], *, help: str) -> Iterator[None]:  # noqa: A002
    """Translate what Ultralytics and the runtimes below it are known to raise."""
    try:
        yield
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        EOFError,
        ImportError,
        LookupError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
        pickle.UnpicklingError,
    ) as error:
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            help = f"This format needs a package: pip install {error.name.replace('_', '-')}"  # noqa: A001
        raise to(f"{what}: {_first_line(error)}", help=help) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def to_detections(result: Results, class_names: dict[int, str]) -> Detections:
    """Convert Ultralytics' result of one picture; an oriented box becomes the upright one around it."""
    boxes = result.boxes if result.obb is None else result.obb
    if boxes is None or not len(boxes):
        return Detections.empty(class_names)
    boxes = boxes.cpu().numpy()
    data = boxes.data
    track_id = tuple(int(value) for value in data[:, -3]) if boxes.is_track else (None,) * len(data)
    return Detections(
        boxes_xyxy_px=boxes.xyxy.astype(np.float32),
        confidence=data[:, -2].astype(np.float32),
        class_id=data[:, -1].astype(np.int64),
        track_id=track_id,
        class_names=class_names,
    )


def class_ids(class_names: dict[int, str], wanted: Sequence[str] | None, *, model: str) -> list[int] | None:
    """Indices of the classes named, or None for all.

    Raises:
        PipelineError: If the model does not have one of them; the message offers the nearest names.
    """
    if wanted is None:
        return None
    by_name = {name: index for index, name in class_names.items()}
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        near = [match for name in unknown for match in difflib.get_close_matches(name, by_name, n=2)]
        raise PipelineError(
            f"{model} has no class {', '.join(map(repr, unknown))}",
            help=f"Did you mean {' or '.join(near)}?" if near else f"It has: {', '.join(by_name)}.",
        )
    return [by_name[name] for name in wanted]


def _load(weights: str | Path) -> tuple[YOLO, dict[int, str]]:
    path = Path(weights)
    published = str(weights) in GITHUB_ASSETS_NAMES
    if not path.exists() and not published:
        raise WeightsError(
            f"detector {weights}: no such file", help=f"Give the path of an Ultralytics model. {WITHOUT_WEIGHTS}"
        )
    if not path.exists():
        _log.warning("detector %s is not here; Ultralytics looks for it in its own folder, then fetches it", weights)
    advice = "It does not look like a model that Ultralytics can load, or a package that its format needs is missing."
    if not path.exists():
        tried = "Tried this folder, the shipped models, Ultralytics' own folder and its downloads."
        advice = f"{tried} Give the path of a model file. {WITHOUT_WEIGHTS}"
    with _translated(f"detector {weights} cannot be loaded", WeightsError, help=advice):
        model = YOLO(str(weights), task=None if path.suffix == ".pt" else "detect")
        names = _names(model)
    if model.task not in _TASKS_WITH_BOXES:
        raise WeightsError(
            f"detector {weights}: it is a '{model.task}' model, which gives no boxes",
            help=f"Use a model for one of: {', '.join(_TASKS_WITH_BOXES)}.",
        )
    return model, names


def class_names_of(model: YOLO) -> dict[int, str]:
    """All classes that a user's model knows, by index; a model in another format than Ultralytics' own is loaded once.

    Raises:
        WeightsError: If it cannot be loaded, for instance since a package that its format needs is missing.
    """
    with _translated("the model's classes cannot be read", WeightsError, help="See that the model can predict."):
        return _names(model)


def _names(model: YOLO) -> dict[int, str]:
    return {int(index): str(name) for index, name in model.names.items()}


def is_demo(model: YOLO) -> bool:
    """Whether the model's checkpoint carries the demo's mark, which copies of it keep."""
    checkpoint = getattr(model, "ckpt", None)
    return isinstance(checkpoint, dict) and bool(checkpoint.get("hazardlens_demo"))
