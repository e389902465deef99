"""Which picture is which: Ultralytics' loaders, taught to tell source, frame and time of what they load."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hazardlens.detect.ultralytics_setup import LoadImagesAndVideos, LoadStreams
from hazardlens.frames.watched import Loss, Taken, WatchedVideo

_log = logging.getLogger(__name__)

Clock = Callable[[], float]
"""Gives seconds that only rise."""

BLACK = "a black frame: Ultralytics hands it out where the camera gives no picture"
_COARSE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Stamp:
    """Which picture a result is of.

    Attributes:
        source: Name of the source in records.
        place: What keeps sources apart whose names are the same; None for a still picture, which stands by itself.
        frame: 0-based index in the source.
        time_s: Time in the source in seconds.
        lost: Why the picture shows nothing of its source, or None.
    """

    source: str
    place: Hashable | None
    frame: int = 0
    time_s: float = 0.0
    lost: str | None = None

    @classmethod
    def still(cls, path: str) -> Stamp:
        """The stamp of a still picture."""
        return cls(source=file_name(path), place=None)


class Ticker:
    """Stamps pictures that have no times of their own, by a clock that starts with the first of them.

    Args:
        source: Name of the source in records.
        place: What keeps it apart from others.
        clock: The clock.
    """

    def __init__(self, source: str, place: Hashable, clock: Clock = time.monotonic) -> None:
        self._source = source
        self._place = place
        self._clock = clock
        self._started_s: float | None = None
        self._next = 0

    def stamp(self, *, lost: str | None = None) -> Stamp:
        """The stamp of the next picture."""
        now_s = self._clock()
        if self._started_s is None:
            self._started_s = now_s
        elapsed_s = round(now_s - self._started_s, 6)
        self._next += 1
        return Stamp(source=self._source, place=self._place, frame=self._next - 1, time_s=elapsed_s, lost=lost)


class StampedFiles(LoadImagesAndVideos):  # type: ignore[misc]
    """Ultralytics' loader of files, which tells of each picture which one it is.

    It reads as before. A loader becomes one by `take_over`. A snapshot of it, as Ultralytics takes for each batch that
    is loaded ahead, keeps the stamps of its batch.

    Attributes:
        stamps: Of the pictures of the last batch, in order.
        losses: Path of a file and what was missed of it.
    """

    stamps: list[Stamp]
    losses: list[tuple[str, Loss]]
    cap: Any
    _on_close: Callable[[], None]

    @classmethod
    def take_over(cls, loader: Any, on_close: Callable[[], None]) -> None:
        """Make a loader that has not begun one of these; `on_close` is called when it is let go, however that ends."""
        loader.__class__ = cls
        loader.stamps, loader.losses, loader._on_close = [], [], on_close
        if loader.cap is not None:
            loader._watch(loader.files[loader.ni])

    def __next__(self) -> Any:
        batch = super().__next__()
        self.stamps = self._stamps_of(batch[0])
        return batch

    def _stamps_of(self, paths: list[str]) -> list[Stamp]:
        """The stamps of a batch; none for pictures of a video that were not noted, for they are no stills."""
        taken = self._collect()
        if len(taken) == len(paths):
            return [
                Stamp(source=file_name(path), place=path, frame=one.index, time_s=one.time_s)
                for path, one in zip(paths, taken, strict=True)
            ]
        return [Stamp.still(path) for path in paths] if self.mode == "image" else []

    def _watch(self, path: str) -> None:
        try:
            self.cap = WatchedVideo(self.cap, path, stride=self.vid_stride)
        except Exception as error:  # noqa: BLE001 - the model reads on, without records
            _log.warning("%s cannot be followed: %s: %s", path, type(error).__name__, error)

    def _new_video(self, path: str) -> None:
        self._collect()
        super()._new_video(path)
        self._watch(path)

    def _collect(self) -> list[Taken]:
        """Empty the capture of what it noted."""
        if not isinstance(self.cap, WatchedVideo):
            return []
        if self.cap.loss is not None:
            self.losses.append((self.cap.path, self.cap.loss))
            self.cap.loss = None
        taken, self.cap.taken = self.cap.taken, []
        return taken

    def close(self) -> None:
        """Let go of the file, and say so."""
        self._collect()
        if isinstance(self.cap, WatchedVideo):
            self.cap.is_watching = False
        super().close()
        self._on_close()


class StampedStreams(LoadStreams):  # type: ignore[misc]
    """Ultralytics' loader of cameras, which tells of each picture which one it is; made by `take_over`.

    Attributes:
        black: Of each picture of the last batch, whether it is black all over.
        ended: Whether one of the cameras ended, and all with it.
    """

    black: list[bool]
    ended: bool
    _reading: bool
    _tickers: list[Ticker]
    _on_close: Callable[[], None]

    @classmethod
    def take_over(cls, loader: Any, on_close: Callable[[], None], clock: Clock) -> None:
        """Make a loader that has not begun one of these; `on_close` is called when it is let go, however that ends."""
        loader.__class__ = cls
        loader.black, loader.ended, loader._reading, loader._on_close = [], False, False, on_close
        loader._tickers = [Ticker(stream_name(slot, name), slot, clock) for slot, name in enumerate(loader.sources)]

    def __next__(self) -> Any:
        self._reading = True
        try:
            batch = super().__next__()
        except StopIteration:
            self.ended = True
            raise
        finally:
            self._reading = False
        self.black = [is_black(image) for image in batch[1]]
        return batch

    def stamp_batch(self) -> list[Stamp]:
        """Stamp the pictures of the last batch, one per camera; call it once for each batch."""
        lost = [BLACK if black else None for black in self.black]
        return [ticker.stamp(lost=one) for ticker, one in zip(self._tickers, lost, strict=True)]

    def close(self) -> None:
        """Let go of the cameras, and say so; the loader calls it itself where one of them ended."""
        super().close()
        if not self._reading:
            self._on_close()


def stream_name(slot: int, source: str) -> str:
    """What a camera is called in records: its number, or `streamN`, for its address may hold a password."""
    return source if source.isnumeric() else f"stream{slot}"


def file_name(path: str) -> str:
    """What a file is called in records; a name that is not UTF-8 is spelled with escapes."""
    return Path(path).name.encode("utf-8", "backslashreplace").decode()


def is_black(image: NDArray[np.uint8]) -> bool:
    """Whether every value is 0, as in the picture that Ultralytics puts in place of a lost one."""
    return not image[::_COARSE, ::_COARSE].any() and not image.any()
