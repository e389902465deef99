"""A video file, or a still picture, as a frame reader."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from hazardlens.errors import VideoError
from hazardlens.frames._ahead import Ahead
from hazardlens.frames._decode import Decoder, Picture
from hazardlens.frames._media import translated
from hazardlens.frames.base import Frame, FrameAccount, FrameReader

_log = logging.getLogger(__name__)
_MAX_BYTES_AHEAD = 256 * 2**20


class VideoFile(FrameReader):
    """Reads every decodable frame of a file, whatever its header counts, at the times that the container states.

    Decoding and conversion run ahead in a thread while the reader is iterated; it ends when the iteration ends, when
    the consumer leaves the loop, or at `close`. Time 0 is where a player starts, so a stream that begins later than
    another one keeps its offset. A frame without a timestamp follows its predecessor by one frame interval.

    Args:
        path: Video or picture, anything that FFmpeg decodes.
        name: Name of the source in records; the file's name unless given.
        ahead: Most frames decoded ahead; large frames are held to 256 MB, but never to fewer than two frames.

    Attributes:
        name: Name of the source.
        path: The file.

    Raises:
        VideoError: The file is missing, empty, unreadable, no video, or not one frame of it can be decoded.
    """

    def __init__(self, path: str | Path, *, name: str | None = None, ahead: int = 8) -> None:
        self.path = Path(path)
        # A name that is not UTF-8 is spelled with escapes, for records are UTF-8.
        self.name = (name if name is not None else self.path.name).encode("utf-8", "backslashreplace").decode()
        self._limit = ahead
        self._read = 0
        self._damaged = 0
        self._started = False
        self._closed = False
        self._closing = threading.Lock()
        self._ahead: Ahead[Picture] | None = None
        self._decoder = Decoder(self.path)
        self._rate = self._decoder.rate
        self._expected: int | None = self._decoder.promise.frames
        self._reason: str | None = None
        self._size_wh, self._pictures = self._begin()

    def _begin(self) -> tuple[tuple[int, int], Iterator[Picture]]:
        pictures = self._translated_pictures()
        try:
            first = next(pictures, None)
            if first is None:
                raise VideoError(
                    f"no frame of {self.path} can be decoded", help="Check that the file plays and was copied whole."
                )
        except BaseException:
            self._decoder.container.close()
            raise
        return (first.image.shape[1], first.image.shape[0]), itertools.chain([first], pictures)

    def _translated_pictures(self) -> Iterator[Picture]:
        with translated(self.path):
            yield from self._decoder.pictures()

    @property
    def size_wh(self) -> tuple[int, int]:
        """Width and height in pixels of the first frame, upright."""
        return self._size_wh

    @property
    def rate(self) -> Fraction | None:
        """Average rate in frames per second, or None for a still and where the file tells none."""
        return self._rate

    @property
    def is_still(self) -> bool:
        """Whether the file is a single picture, read as one frame at time 0."""
        return self._decoder.is_still

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames; once only.

        Raises:
            RuntimeError: The reader was iterated before or is closed.
        """
        if self._started:
            raise RuntimeError(f"{self.path} was already read or closed; open it again")
        self._started = True
        self._ahead = Ahead(
            self._pictures, items=self._limit, weight=lambda one: one.image.nbytes, max_bytes=_MAX_BYTES_AHEAD
        )
        return self._frames(self._ahead)

    def _frames(self, pictures: Iterator[Picture]) -> Iterator[Frame]:
        try:
            for index, picture in enumerate(pictures):
                self._read += 1
                self._damaged += picture.damaged
                yield Frame(
                    image=picture.image,
                    index=index,
                    time_s=picture.time_s,
                    source=self.name,
                    damaged=picture.damaged,
                )
            if not self._closed:
                self._conclude()
        finally:
            self.close()

    def _conclude(self) -> None:
        self._expected, self._reason = self._decoder.verdict(self._read)
        if self._reason is not None:
            _log.warning("%s: %s", self.path, self._reason)

    def account(self) -> FrameAccount:
        """Tell what was seen so far; whether the file ended early is known once it was read to its end."""
        return FrameAccount(
            expected=self._expected,
            read=self._read,
            unreadable=self._decoder.tally.unreadable,
            damaged=self._damaged,
            ended_early=self._reason is not None,
            reason=self._reason,
        )

    def close(self) -> None:
        """End the thread and let go of the file; may be called twice, and from two threads."""
        self._started = self._closed = True
        with self._closing:  # two threads in FFmpeg's close at once end the process
            if self._ahead is not None:
                self._ahead.stop()
            self._decoder.container.close()
