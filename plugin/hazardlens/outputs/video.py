"""The annotated video: H.264 in MP4 with the source's timing and sound."""

from __future__ import annotations

import logging
import queue
import threading
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self, TypeAlias

import av
import numpy as np
from numpy.typing import NDArray

from hazardlens.errors import OutputError
from hazardlens.outputs._encode import Encoder

_log = logging.getLogger(__name__)
_MAX_WAITING = 8
_MAX_BYTES_WAITING = 64 * 2**20
_Item: TypeAlias = tuple[NDArray[np.uint8], float] | None


class VideoWriter:
    """Writes pictures at their times into an MP4 that browsers play.

    Encoding runs in a thread of its own behind a short queue. Times are kept to 1/90000 s, so a variable rate stays
    variable and an offset to the sound stays. Where the source's clock jumps back by more than a second, pictures
    go on after the last one, and the sound no longer matches. The file is written in pieces of at most two seconds:
    after a crash or on a full disk it plays up to the last whole piece; once closed it is an ordinary MP4. Colours:
    BT.709, limited range.

    Args:
        path: The file, replaced if it exists.
        size_wh: Width and height in pixels; odd ones are padded by one pixel, other pictures are fitted with borders.
        rate: Nominal frames per second, which tells how long the last picture is shown, or None.
        audio_from: A file whose first audio stream is taken over, or None. Sound that cannot be read is left out with a
            logged warning.
        crf: x264's quality, 0 (lossless) to 51.
        preset: x264's preset.

    Raises:
        OutputError: The file cannot be created, or H.264 cannot hold pictures of this size.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        size_wh: tuple[int, int],
        rate: Fraction | float | None,
        audio_from: str | Path | None = None,
        crf: float = 23,
        preset: str = "veryfast",
    ) -> None:
        self.path = Path(path)
        sound = Path(audio_from) if audio_from is not None else None
        exact = Fraction(rate).limit_denominator(100_000) if rate else None
        try:
            self._encoder = Encoder(self.path, size_wh=size_wh, rate=exact, audio_from=sound, crf=crf, preset=preset)
        except (OSError, av.FFmpegError) as error:
            message = f"{self.path} cannot be written: {error.strerror}"
            help_ = "Check that the folder exists and may be written to."
            if not isinstance(error, OSError):
                help_ = f"x264 refuses {size_wh[0]} x {size_wh[1]} pixels, or crf {crf:g} with the preset {preset!r}."
            raise OutputError(message, help=help_) from error
        waiting = _MAX_BYTES_WAITING // max(1, size_wh[0] * size_wh[1] * 3)
        self._queue: queue.Queue[_Item] = queue.Queue(min(_MAX_WAITING, max(2, waiting)))
        self._complete = False
        self._closed = False
        self._told = False
        self._carried = _Carried()
        self._thread = threading.Thread(target=self._work, name="hazardlens-write", daemon=True)
        self._thread.start()

    def write(self, image_bgr: NDArray[np.uint8], time_s: float) -> None:
        """Hand over a picture; waits only while the queue is full.

        Args:
            image_bgr: Shape (H, W, 3), uint8, BGR; belongs to the writer from now on.
            time_s: Playback time in seconds, above that of the picture before unless the source starts again.

        Raises:
            OutputError: An earlier picture could not be written.
            ValueError: The picture has another shape or type, or the writer is closed.
        """
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        if image_bgr.dtype != np.uint8 or image_bgr.ndim != 3 or image_bgr.shape[2] != 3:
            raise ValueError(f"expected uint8 of shape (H, W, 3), got {image_bgr.dtype} of shape {image_bgr.shape}")
        if self._carried.error is not None:
            self._raise(self._carried.error)
        self._queue.put((image_bgr, time_s))

    def close(self, complete: bool = True) -> None:
        """Finish the file; may be called twice. A file without any picture is removed.

        Args:
            complete: Whether the source was written whole, so that sound going on after its last picture is kept.

        Raises:
            OutputError: It could not be written whole, and no `write` said so before.
        """
        if self._closed:
            return
        self._closed = True
        self._complete = complete
        self._queue.put(None)
        self._thread.join()
        if self._carried.error is not None and not self._told:
            self._raise(self._carried.error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close(complete=False)
        except OutputError as failure:  # the error that is under way matters more
            _log.warning("%s", failure)

    def _work(self) -> None:
        with self._carried:
            while (item := self._queue.get()) is not None:
                self._encoder.encode(*item)
            self._encoder.finish(complete=self._complete)
            return
        try:
            self._encoder.abandon()
        except (av.FFmpegError, OSError) as error:  # what was wrong before matters more
            _log.warning("%s could not be closed: %s", self.path, error.strerror)
        finally:
            while item is not None:  # so that `write` never waits for a thread that has ended
                item = self._queue.get()

    def _raise(self, error: BaseException) -> NoReturn:
        self._told = True
        if not isinstance(error, (av.FFmpegError, OSError)):
            raise error
        message = f"{self.path} could not be written further: {error.strerror}"
        raise OutputError(message, help="What was written before plays. Make room, then use --resume.") from error


class _Carried:
    """Keeps the error that ends a thread's work, for another thread to raise."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True
