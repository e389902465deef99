"""Any Ultralytics detection model, with its tracker kept apart for each source."""

from __future__ import annotations

import difflib
import logging
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hazardlens.detect.base import Detections, Detector
from hazardlens.errors import DetectionError, PipelineError, WeightsError
from hazardlens.frames.base import Frame

os.environ.setdefault("YOLO_AUTOINSTALL", "false")  # Ultralytics reads it once, at import

from ultralytics import YOLO
from ultralytics.engine.results import Results
from ultralytics.trackers.basetrack import BaseTrack
from ultralytics.utils.downloads import GITHUB_ASSETS_NAMES

_log = logging.getLogger(__name__)

_TASKS_WITH_BOXES = ("detect", "segment", "pose")


class YoloDetector(Detector):
    """An Ultralytics model that finds boxes, by path or by one of the names that Ultralytics publishes.

    Args:
        weights: Path of a model (`.pt`, `.onnx`, `.tflite`, an OpenVINO folder, ...) or a published name such as
            `yolo26n.pt`, which Ultralytics fetches when it is not there.
        classes: Names of the classes to look for; None for all.
        confidence: Detections below this confidence are dropped, 0..1.
        image_size_px: Longest side that the network sees.
        device: Ultralytics' device string, or None for its own choice.
        track: Whether objects are followed from frame to frame.
        tracker: A tracker configuration of Ultralytics, by name or path; None for its default.

    Raises:
        WeightsError: If the weights cannot be had or are not of a model that finds boxes.
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
        self._model = _load(weights)
        self.class_names: dict[int, str] = _class_names(self._model, weights)
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
        self._source: str | None = None
        self._trackers: dict[str, tuple[list[Any], int]] = {}

    def detect(self, frames: Sequence[Frame], *, follow: bool = True) -> list[Detections]:
        """Find and follow objects on consecutive frames of one source; what the tracker has no track for is left out.

        Raises:
            DetectionError: If the model fails; the message names the frame.
        """
        images = [np.ascontiguousarray(frame.image) for frame in frames]
        try:
            if self._track and follow:
                self._switch_to(frames[0].source)
                results = self._model.track(images, persist=True, **self._tracking, **self._arguments)
            else:
                results = self._model.predict(images, **self._arguments)
        except (RuntimeError, ValueError, FileNotFoundError, ModuleNotFoundError) as error:
            raise DetectionError(
                f"{self.name} failed on frame {frames[0].index} of {frames[0].source}: {error}",
                help="Check device, image size, tracker and free memory.",
            ) from error
        return [to_detections(result, self.class_names) for result in results]

    def forget(self, source: str) -> None:
        """Drop the tracks of a source."""
        self._trackers.pop(source, None)
        if source == self._source:
            self._source = None
            self._model.predictor.trackers = []

    def _switch_to(self, source: str) -> None:
        """Put this source's trackers, and the counter of ids that all of Ultralytics' trackers share, in place."""
        predictor = self._model.predictor
        if source == self._source or predictor is None:
            self._source = source
            return
        if self._source is not None:
            self._trackers[self._source] = (predictor.trackers, BaseTrack._count)
        predictor.trackers, BaseTrack._count = self._trackers.pop(source, ([], 0))
        self._source = source


def to_detections(result: Results, class_names: dict[int, str]) -> Detections:
    """Convert Ultralytics' result of one picture."""
    boxes = result.boxes
    if boxes is None or not len(boxes):
        return Detections.empty(class_names)
    data = boxes.data.cpu().numpy()
    track_id = tuple(int(value) for value in data[:, 4]) if boxes.is_track else (None,) * len(data)
    return Detections(
        boxes_xyxy_px=data[:, :4].astype(np.float32),
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


def _load(weights: str | Path) -> YOLO:
    path = Path(weights)
    published = str(weights) in GITHUB_ASSETS_NAMES
    if not path.exists() and not published:
        raise WeightsError(f"detector {weights}: no such file", help="Give the path of an Ultralytics model.")
    if not path.exists():
        _log.warning("detector %s is not here; Ultralytics looks for it in its own folder, then fetches it", weights)
    exported = path.suffix != ".pt"
    try:
        return YOLO(str(weights), task="detect" if exported else None)
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, EOFError, ModuleNotFoundError) as error:
        raise _cannot_load(weights, error, published=published) from error
    except pickle.UnpicklingError as error:
        raise _cannot_load(weights, error, published=published) from error


def _class_names(model: YOLO, weights: str | Path) -> dict[int, str]:
    if model.task not in _TASKS_WITH_BOXES:
        raise WeightsError(
            f"detector {weights}: it is a '{model.task}' model, which gives no boxes",
            help=f"Use a model for one of: {', '.join(_TASKS_WITH_BOXES)}.",
        )
    try:
        return {int(index): str(name) for index, name in model.names.items()}
    except (OSError, RuntimeError, ValueError, TypeError, ModuleNotFoundError) as error:
        raise _cannot_load(weights, error, published=False) from error


def _cannot_load(weights: str | Path, error: Exception, *, published: bool) -> WeightsError:
    cause = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if published:
        advice = "It is not here and could not be fetched. Give the path of a model file."
    elif isinstance(error, ModuleNotFoundError):
        advice = "Install the package that this format needs."
    else:
        advice = "It does not look like a model that Ultralytics can load."
    return WeightsError(f"detector {weights} cannot be loaded: {cause}", help=advice)
