"""One call of `predict` or `track`: its results get their records."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hazardlens.callback.core import Core, Source
from hazardlens.callback.results import FieldResults, Told, geometry
from hazardlens.callback.stamps import Clock, Stamp, StampedFiles, StampedStreams, Ticker, file_name
from hazardlens.detect.base import Detections
from hazardlens.detect.ultralytics_setup import LoadImagesAndVideos, LoadStreams, tracks_persistently
from hazardlens.detect.yolo import to_detections
from hazardlens.frames.base import Frame
from hazardlens.frames.watched import Loss
from hazardlens.merge.join import frame_record
from hazardlens.record import FrameRecord, VlmState

_log = logging.getLogger(__name__)


class Memory:
    """Pictures handed in one call after the other, as frames of one source: `track(picture, persist=True)`.

    Args:
        core: Makes records.
        clock: Gives their times.
    """

    def __init__(self, core: Core, clock: Clock) -> None:
        self.ticker = Ticker("frames", "frames", clock)
        self.source = core.source(is_still=False)


class Run:
    """One call of `predict` or `track`, from its first batch to its last.

    Args:
        core: Asks and makes records.
        predictor: Ultralytics' predictor, which has a loader and has not begun.
        wait: Whether asked frames wait for their answers; None for files and pictures, but not for live sources.
        memory: Goes on from call to call.
        clock: Gives times where a source has none.
    """

    def __init__(self, core: Core, predictor: Any, *, wait: bool | None, memory: Memory, clock: Clock) -> None:
        self._core = core
        self._sources: dict[Hashable, Source] = {}
        self._ticker: Ticker | None = None
        self._loader = predictor.dataset
        kind = predictor.source_type
        if type(self._loader) in (LoadImagesAndVideos, StampedFiles):
            StampedFiles.take_over(self._loader, self.end)
        elif type(self._loader) in (LoadStreams, StampedStreams):
            StampedStreams.take_over(self._loader, self.end, clock)
        elif kind.screenshot or self._loader.mode != "image":
            self._ticker = Ticker("screen" if kind.screenshot else "video", "ticker", clock)
        elif tracks_persistently(predictor):
            self._ticker, self._sources["frames"] = memory.ticker, memory.source
        live = self._ticker is not None or isinstance(self._loader, StampedStreams)
        self._wait = not live if wait is None else wait

    def take(self, predictor: Any) -> None:
        """Put results that carry their records in place of the plain ones of the present batch."""
        results = predictor.results
        for place, (result, stamp) in enumerate(zip(results, self._stamps(predictor), strict=True)):
            results[place] = self._told(result, stamp)
        self._tell_losses()

    def end(self) -> None:
        """Tell what was lost, once the loader is let go, however that came about."""
        try:
            self._tell_losses()
        except Exception as error:  # noqa: BLE001 - becomes a log line and a count
            self._core.failed(error, "the end of a call")
        if getattr(self._loader, "ended", False):
            _log.warning("a camera ended, and Ultralytics ends all others with it")

    def _stamps(self, predictor: Any) -> list[Stamp]:
        if self._ticker is not None:
            return [self._ticker.stamp() for _ in predictor.results]
        if isinstance(self._loader, StampedStreams):
            return self._loader.stamp_batch()
        if isinstance(self._loader, StampedFiles):
            # A snapshot of the loader where Ultralytics loads ahead, else the loader itself.
            stamps: list[Stamp] = predictor.dataset.stamps
            return stamps
        return [Stamp.still(result.path) for result in predictor.results]

    def _told(self, result: Any, stamp: Stamp) -> Any:
        try:
            return self._look(result, stamp)
        except Exception as error:  # noqa: BLE001 - becomes a status, a log line and a count
            self._core.failed(error, f"frame {stamp.frame} of {stamp.source}")
            state = VlmState(status="error", reason=f"{type(error).__name__}: {error}")
            frame = _unseen(stamp.source, stamp.frame, stamp.time_s, (result.orig_shape[1], result.orig_shape[0]))
            record = frame_record(frame, Detections.empty(result.names), state)
            return self._carrying(result, record, np.full(len(result), -1, np.int64))

    def _look(self, result: Any, stamp: Stamp) -> FieldResults:
        detections = to_detections(result, result.names)
        image = _three_channels(result.orig_img)
        frame = Frame(image=image, index=stamp.frame, time_s=stamp.time_s, source=stamp.source)
        record, ordered = self._core.look(
            self._source(stamp.place), frame, detections, wait=self._wait, lost=stamp.lost
        )
        return self._carrying(result, record, places(detections, ordered))

    def _carrying(self, result: Any, record: FrameRecord, ids: NDArray[np.int64]) -> FieldResults:
        rows = geometry(result.boxes if result.obb is None else result.obb)
        told = Told(record=record, schema=self._core.schema, geometry=rows, ids=ids, demo=self._core.demo)
        return FieldResults.carrying(result, told)

    def _source(self, place: Hashable | None) -> Source:
        if place is None:
            return self._core.source(is_still=True)
        if place not in self._sources:
            self._sources[place] = self._core.source(is_still=False)
        return self._sources[place]

    def _tell_losses(self) -> None:
        losses: list[tuple[str, Loss]] = getattr(self._loader, "losses", [])
        while losses:
            path, loss = losses.pop(0)
            frame = _unseen(file_name(path), loss.first.index, loss.first.time_s, loss.size_wh)
            state = VlmState(status="source_lost", reason=loss.reason)
            self._core.lose(frame_record(frame, Detections.empty({}), state))


def places(detections: Detections, ordered: Detections) -> NDArray[np.int64]:
    """Where each detection stands in another order of the same, shape (n,)."""
    if ordered is detections:
        return np.arange(len(detections))
    where: dict[tuple[object, ...], list[int]] = {}
    for place in range(len(ordered)):
        where.setdefault(_key(ordered, place), []).append(place)
    return np.array([where[_key(detections, row)].pop(0) for row in range(len(detections))], np.int64)


def _key(detections: Detections, index: int) -> tuple[object, ...]:
    box = detections.boxes_xyxy_px[index].tobytes()
    return box, float(detections.confidence[index]), int(detections.class_id[index]), detections.track_id[index]


def _three_channels(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The picture as BGR; one channel is seen three times, without a copy."""
    if image.ndim == 3 and image.shape[2] == 3:
        return image
    grey = image.reshape(*image.shape[:2], -1)[..., :1]
    return np.broadcast_to(grey, (*grey.shape[:2], 3))


def _unseen(source: str, index: int, time_s: float, size_wh: tuple[int, int]) -> Frame:
    """A frame whose pixels are not there."""
    width, height = size_wh
    return Frame(image=np.broadcast_to(np.uint8(0), (height, width, 3)), index=index, time_s=time_s, source=source)
