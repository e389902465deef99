"""What a container says of itself: its video stream, its zero of time, what it promises, how pictures are turned."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from shlex import quote
from stat import S_ISDIR, S_ISREG

import av
import numpy as np
from av.container import InputContainer
from av.stream import Disposition
from av.video.stream import VideoStream
from numpy.typing import NDArray
from PIL import Image

from hazardlens.errors import VideoError

# Containers whose header, written when the recording was closed, carries a duration. Elsewhere FFmpeg estimates one
# from what is left of the file, which proves nothing.
_DURATION_IN_HEADER = {"matroska,webm", "flv", "asf"}
# FFmpeg reads a text file as a picture of a terminal.
_TEXT_CODECS = {"ansi", "bintext", "xbin", "idf"}
_COVER = int(Disposition.attached_pic) | int(Disposition.timed_thumbnails)
_EXIF_ORIENTATION = 0x0112


@dataclass(frozen=True, kw_only=True, slots=True)
class Promise:
    """What a header promises of its video stream.

    Attributes:
        frames: Number of pictures, or None.
        ends_at: Container time at which the stream ends, in seconds, or None.
        of_all: Whether `ends_at` is the end of the longest stream, not of the video.
    """

    frames: int | None = None
    ends_at: Fraction | None = None
    of_all: bool = False


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise FFmpeg's errors about a file as `VideoError`.

    Args:
        path: The file, named in the message.
    """
    try:
        yield
    except av.error.InvalidDataError as error:
        message = f"{path} is not a video, or its header is damaged"
        raise VideoError(message, help="Check that the file plays, and that it was copied whole.") from error
    except av.FFmpegError as error:
        cause = error.strerror or "unknown error"
        raise VideoError(f"{path} cannot be read: {cause}", help="Check the file and its permissions.") from error


def open_media(path: Path) -> InputContainer:
    """Open a file.

    Args:
        path: The file.

    Returns:
        The open container, to be closed by the caller.

    Raises:
        VideoError: The file is missing, a folder, empty, not readable, or not a media file.
    """
    try:
        status = path.stat()
    except FileNotFoundError as error:
        address = re.match(r"[a-z]+:/", str(path)) is not None
        advice = "Cameras and addresses are not supported yet." if address else "Check the path; it is case-sensitive."
        raise VideoError(f"{path} does not exist", help=advice) from error
    except OSError as error:
        raise VideoError(f"{path} cannot be read: {error.strerror}", help="Check the path and its rights.") from error
    if S_ISDIR(status.st_mode):
        advice = f"Name one file in it; `hazardlens process` also takes a pattern: {quote(f'{path}/*.mp4')}"
        raise VideoError(f"{path} is a folder, not a video", help=advice)
    if S_ISREG(status.st_mode) and status.st_size == 0:
        raise VideoError(f"{path} is empty (0 bytes)", help="Copy or record it again.")
    # `file:` and `pattern_type` keep names such as `a:b.mp4` and `img%03d.jpg` from being read as URL and sequence.
    options = {"pattern_type": "none"}
    with translated(path):
        return av.open(f"file:{path}", mode="r", container_options=options, metadata_errors="replace")


def video_stream(container: InputContainer, path: Path) -> VideoStream:
    """Choose the stream that is the video; cover pictures are not.

    Args:
        container: The open file.
        path: Its path, for messages.

    Returns:
        FFmpeg's best video stream.

    Raises:
        VideoError: There is none, or this build of FFmpeg has no decoder for it.
    """
    found = [stream for stream in container.streams.video if not int(stream.disposition) & _COVER]
    known = [stream for stream in found if stream.codec_context is not None]
    real = [stream for stream in known if stream.codec_context.name not in _TEXT_CODECS]
    if found and not known:
        raise VideoError(f"{path} holds a video of a codec that cannot be decoded", help="Convert it to H.264.")
    if not real:
        has_audio = " (only audio)" if container.streams.audio else ""
        raise VideoError(f"{path} holds no video stream{has_audio}", help="Name a video file.")
    best = container.streams.best("video")
    return next((stream for stream in real if stream is best), real[0])


def playback_origin(container: InputContainer, video: VideoStream | None) -> Fraction:
    """Give the container time, in seconds, that players show as 0.

    It is the earliest start of any stream, so audio and video keep their relation. A negative start is an audio codec's
    run-in, which is not heard, and does not move the video.

    Args:
        container: The open file.
        video: Its video stream, if any.

    Returns:
        The origin, exact where a stream's own time base tells it.
    """
    if container.start_time is None:
        return Fraction(0)
    if container.start_time < 0:
        own = video.start_time if video is not None else None
        return min(Fraction(0), (own or 0) * _time_base(video)) if video is not None else Fraction(0)
    rough = Fraction(container.start_time, 1_000_000)
    starts = [s.start_time * s.time_base for s in container.streams if s.start_time is not None and s.time_base]
    exact = min(starts, key=lambda start: abs(start - rough), default=rough)
    return exact if abs(exact - rough) <= Fraction(1, 1_000_000) else rough


def _time_base(stream: VideoStream) -> Fraction:
    return stream.time_base or Fraction(1, 90_000)


def promise_of(container: InputContainer, video: VideoStream) -> Promise:
    """Read what the header promises, leaving out what FFmpeg only estimates.

    Args:
        container: The open file.
        video: Its video stream.

    Returns:
        The promise; all None where the container makes none, as in a transport stream.
    """
    if video.frames > 0:
        return Promise(frames=_frame_count(container.format.name, video))
    if container.format.name not in _DURATION_IN_HEADER:
        return Promise()
    own = _tagged_duration(video.metadata)
    if own is not None:
        return Promise(ends_at=own)
    length = container.duration
    return Promise(ends_at=Fraction(length, 1_000_000) if length else None, of_all=True)


def _frame_count(format_name: str, video: VideoStream) -> int | None:
    # The index leaves out what is never shown: pictures cut by a MOV edit list, dropped frames (empty chunks) in AVI.
    listed = len(video.index_entries)
    if format_name.startswith("mov") and listed:
        return listed if listed <= video.frames else None  # more: fragments, which the header does not count
    if format_name == "avi" and listed and _reaches_end(video.index_entries[listed - 1].timestamp, video):
        return listed
    return video.frames


def _reaches_end(last: int, video: VideoStream) -> bool:
    # Half a second of dropped frames may follow the last one; a large AVI's index is in pieces, and cutting loses some.
    return (video.frames - 1 - last) * _time_base(video) <= Fraction(1, 2)


def _tagged_duration(metadata: dict[str, str]) -> Fraction | None:
    tags = [text for key, text in metadata.items() if key.upper().split("-")[0] == "DURATION"]
    try:
        hours, minutes, seconds = tags[0].split(":")
        return Fraction(hours) * 3600 + Fraction(minutes) * 60 + Fraction(seconds.rstrip("\0 "))
    except (IndexError, ValueError):
        return None


def exif_orientation(path: Path) -> int:
    """Read a still picture's EXIF orientation, since FFmpeg tells its turn but not its mirroring.

    Args:
        path: The picture.

    Returns:
        1 to 8; 1 (upright) where there is none.
    """
    try:
        with Image.open(path) as image:
            value = image.getexif().get(_EXIF_ORIENTATION, 1)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return 1
    return value if value in range(1, 9) else 1


def mirrored_upright(image: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Turn and mirror a stored picture as its EXIF orientation asks.

    Args:
        image: Shape (H, W, 3), as stored.
        orientation: EXIF orientation, 1 to 8.

    Returns:
        The upright picture, a view.
    """
    if orientation >= 5:  # 5 to 8 swap rows and columns; 5 is the bare transposition
        image = image.transpose(1, 0, 2)
    mirror_x = orientation in (2, 3, 6, 7)
    mirror_y = orientation in (3, 4, 7, 8)
    return image[:: -1 if mirror_y else 1, :: -1 if mirror_x else 1]
