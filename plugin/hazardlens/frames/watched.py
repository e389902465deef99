"""OpenCV's capture of a video file, watched by the clock of the file itself while somebody else reads from it."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from hazardlens.errors import VideoError
from hazardlens.frames._media import Promise, open_media, playback_origin, promise_of, video_stream

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """A picture that was taken from a capture.

    Attributes:
        index: 0-based number of the picture in the file.
        time_s: Presentation time in seconds.
    """

    index: int
    time_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Pictures of a file that its reader never gets to see.

    Attributes:
        first: The first of them; where the file ends too early, the time is that of the last picture before it.
        size_wh: Width and height in pixels.
        reason: What happened.
    """

    first: Taken
    size_wh: tuple[int, int]
    reason: str


class WatchedVideo:
    """A `cv2.VideoCapture` that notes which pictures are taken from it, and what is missed when it is released.

    It counts what is grabbed, whatever is skipped, and tells times as `VideoFile` does. All else is the capture's own.

    Args:
        capture: The capture, just opened.
        path: Its file.
        stride: Pictures that the reader goes on by.

    Attributes:
        path: The file.
        taken: What was taken since somebody emptied the list.
        loss: What the reader missed, once it released the capture, or None.
        is_watching: False once the reader gives up of its own accord, so that what it leaves is no loss.
    """

    def __init__(self, capture: Any, path: str | Path, *, stride: int) -> None:
        self._capture = capture
        self._stride = stride
        self._last = Taken(index=-1, time_s=0.0)
        self._clock = _FileClock(Path(path))
        self.path = str(path)
        self.taken: list[Taken] = []
        self.loss: Loss | None = None
        self.is_watching = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._capture, name)

    def grab(self) -> bool:
        """Go on to the next picture; False at the end."""
        went_on: bool = self._capture.grab()
        if went_on:
            time_s = self._clock.time_s(self._capture.get(cv2.CAP_PROP_POS_MSEC))
            self._last = Taken(index=self._last.index + 1, time_s=time_s)
        return went_on

    def retrieve(self) -> tuple[bool, NDArray[np.uint8] | None]:
        """Take the picture that was grabbed."""
        there, image = self._capture.retrieve()
        if there and image is not None:
            self.taken.append(self._last)
        return there, image

    def release(self) -> None:
        """Let go of the file; what its reader leaves behind is a loss."""
        try:
            if self.is_watching and self._capture.isOpened():
                self.loss = self._left_behind()
        except (VideoError, av.FFmpegError) as error:
            _log.debug("%s: whether all was read is not known: %s", self.path, error)
        finally:
            self.is_watching = False
            self._capture.release()

    def _left_behind(self) -> Loss | None:
        width, height = (self._capture.get(of) for of in (cv2.CAP_PROP_FRAME_WIDTH, cv2.CAP_PROP_FRAME_HEIGHT))
        size_wh = (int(width), int(height))
        before = self._last
        if all(self.grab() for _ in range(self._stride)):
            reason = f"Ultralytics' loader stopped after frame {before.index}, but the file goes on"
            return Loss(first=self._last, size_wh=size_wh, reason=reason)
        came = self._last.index + 1
        expected = self._clock.expected(came)
        if expected is None or came >= expected:
            return None
        reason = f"the file ends after {came} of the {expected} frames that its header promises"
        return Loss(first=Taken(index=came, time_s=self._last.time_s), size_wh=size_wh, reason=reason)


class _FileClock:
    """What a container says of its times and its length; where it cannot be read, OpenCV's word is taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tick: Fraction | None = None
        self._shift = Fraction(0)
        self._promise = Promise()
        try:
            with open_media(path) as container:
                stream = video_stream(container, path)
                self._tick = stream.time_base
                start = (stream.start_time or 0) * (stream.time_base or Fraction(1))
                self._shift = start - playback_origin(container, stream)
                self._promise = promise_of(container, stream)
        except (VideoError, av.FFmpegError) as error:
            _log.debug("times of %s are OpenCV's: %s", path, error)

    def time_s(self, since_start_ms: float) -> float:
        """Presentation time in seconds, given OpenCV's, which counts from the stream's own start."""
        if self._tick is None or not math.isfinite(since_start_ms):
            return since_start_ms / 1000
        ticks = round(since_start_ms / 1000 / self._tick)
        return float(ticks * self._tick + self._shift)

    def expected(self, grabbed: int) -> int | None:
        """Pictures that the header promises to show, or None where it does not say."""
        promised = self._promise.frames
        if promised is None or promised <= grabbed:
            return promised
        with open_media(self._path) as container:
            stream = video_stream(container, self._path)
            return promised - sum(packet.is_discard for packet in container.demux(stream))
