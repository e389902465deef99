"""Small videos for tests: every picture shows its own number, in blocks that survive compression, scaling and cropping.

draw_video("clip.mp4", frames=20, rate=Fraction(30000, 1001), audio="aac")
read_number(image)  # 0..19
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import OutputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

_GRID = 4
# A white corner and three black ones tell which way is up.
_CORNERS = {(0, 0): True, (0, 3): False, (3, 0): False, (3, 3): False}
_BITS = [(row, column) for row in range(_GRID) for column in range(_GRID) if (row, column) not in _CORNERS]
MAX_NUMBER = 2 ** len(_BITS) - 1
_SAMPLE_RATE = 48_000
_CHUNK = 1024


def number_image(number: int, size_wh: tuple[int, int] = (64, 48)) -> NDArray[np.uint8]:
    """Draw a number as a grid of 4 x 4 black and white blocks.

    Args:
        number: 0 to `MAX_NUMBER` (4095).
        size_wh: Width and height in pixels, at least 16 each for a compressed video.

    Returns:
        Picture, shape (H, W, 3), uint8, BGR.

    Raises:
        ValueError: The number does not fit.
    """
    if not 0 <= number <= MAX_NUMBER:
        raise ValueError(f"expected a number from 0 to {MAX_NUMBER}, got {number}")
    cells = np.zeros((_GRID, _GRID), np.uint8)
    for cell, white in [*_CORNERS.items(), *((cell, number >> bit & 1) for bit, cell in enumerate(_BITS))]:
        cells[cell] = 255 if white else 0
    width, height = size_wh
    rows = np.arange(height) * _GRID // height
    columns = np.arange(width) * _GRID // width
    return np.repeat(cells[rows][:, columns][:, :, None], 3, axis=2)


def read_number(image: NDArray[np.uint8]) -> int:
    """Read the number that `number_image` drew.

    Args:
        image: Shape (H, W, 3), uint8; any size and compression.

    Returns:
        The number.

    Raises:
        ValueError: The picture is not such a drawing, or not upright.
    """
    height, width = image.shape[:2]
    rows = (2 * np.arange(_GRID) + 1) * height // (2 * _GRID)
    columns = (2 * np.arange(_GRID) + 1) * width // (2 * _GRID)
    white = image[rows][:, columns].mean(axis=2) > 127
    if any(bool(white[cell]) is not expected for cell, expected in _CORNERS.items()):
        raise ValueError("expected an upright numbered picture, with one white corner at the top left")
    return sum(int(white[cell]) << bit for bit, cell in enumerate(_BITS))


def draw_video(
    path: str | Path,
    *,
    frames: int = 10,
    rate: Fraction | float = 10,
    times_s: Sequence[float] | None = None,
    size_wh: tuple[int, int] = (64, 48),
    codec: str = "libx264",
    pixel_format: str = "yuv420p",
    gop: int = 5,
    options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
    audio: str | None = None,
    audio_start_s: float = 0.0,
    audio_s: float | None = None,
) -> Path:
    """Draw a video whose pictures tell their numbers.

    Args:
        path: The file; its suffix chooses the container.
        frames: Number of pictures; with `times_s`, its length counts instead.
        rate: Frames per second.
        times_s: Presentation times in seconds, rising, for a variable rate; k / rate unless given.
        size_wh: Width and height in pixels.
        codec: FFmpeg's name of the video encoder.
        pixel_format: FFmpeg's name of the encoded pixel format.
        gop: Pictures from one key frame to the next.
        options: The encoder's options.
        container_options: The container's options, such as `movflags`.
        audio: FFmpeg's name of an audio encoder, for a 440 Hz tone beside the pictures; no audio unless given.
        audio_start_s: Presentation time of the first sound, in seconds.
        audio_s: Length of the sound in seconds; as long as the pictures unless given.

    Returns:
        The path.
    """
    path = Path(path)
    exact = Fraction(rate).limit_denominator(100_000)
    ticks = 1 / exact if times_s is None else Fraction(1, 90_000 if codec == "libx264" else 1000)
    stamps = list(range(frames)) if times_s is None else [round(time / ticks) for time in times_s]
    with av.open(str(path), "w", container_options=dict(container_options or {})) as out:
        video: VideoStream = out.add_stream(codec, rate=exact, options=dict(options or {}))  # type: ignore[assignment]
        video.width, video.height = size_wh
        video.pix_fmt = pixel_format
        video.gop_size = gop
        video.codec_context.time_base = ticks
        tone = _add_audio(out, audio) if audio else None
        out.start_encoding()
        if tone is not None:
            length = audio_s if audio_s is not None else float(stamps[-1] * ticks + 1 / exact)
            _write_tone(out, tone, start_s=audio_start_s, length_s=length)
        for number, stamp in enumerate(stamps):
            frame = VideoFrame.from_ndarray(number_image(number, size_wh), format="bgr24")
            frame.pts, frame.time_base = stamp, ticks
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
    return path


def draw_audio(path: str | Path, *, codec: str, length_s: float = 1.0) -> Path:
    """Write a file with a 440 Hz tone and no video.

    Args:
        path: The file; its suffix chooses the container.
        codec: FFmpeg's name of the audio encoder.
        length_s: Length in seconds.

    Returns:
        The path.
    """
    with av.open(str(path), "w") as out:
        tone = _add_audio(out, codec)
        out.start_encoding()
        _write_tone(out, tone, start_s=0.0, length_s=length_s)
    return Path(path)


def _add_audio(out: OutputContainer, codec: str) -> AudioStream:
    stream: AudioStream = out.add_stream(codec, rate=_SAMPLE_RATE)  # type: ignore[assignment]
    stream.layout = "mono"
    if codec == "vorbis":
        stream.codec_context.options["strict"] = "experimental"
        stream.layout = "stereo"
    return stream


def _write_tone(out: OutputContainer, stream: AudioStream, *, start_s: float, length_s: float) -> None:
    first, total = round(start_s * _SAMPLE_RATE), round(length_s * _SAMPLE_RATE)
    for at in range(0, total, _CHUNK):
        phase = 2 * np.pi * 440 * np.arange(at, min(at + _CHUNK, total)) / _SAMPLE_RATE
        samples = (8000 * np.sin(phase)).astype(np.int16)[None]
        frame = AudioFrame.from_ndarray(samples, format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = _SAMPLE_RATE, first + at, Fraction(1, _SAMPLE_RATE)
        out.mux(stream.encode(frame))
    out.mux(stream.encode(None))


def rotate_mp4(path: str | Path, degrees: int) -> None:
    """Mark an MP4's video, in place, to be turned clockwise by a player, as phones do.

    Args:
        path: The file.
        degrees: 0, 90, 180 or 270.

    Raises:
        ValueError: Another angle, or no video track found.
    """
    turns = {0: (1, 0, 0, 1), 90: (0, 1, -1, 0), 180: (-1, 0, 0, -1), 270: (0, -1, 1, 0)}
    if degrees not in turns:
        raise ValueError(f"expected 0, 90, 180 or 270 degrees, got {degrees}")
    data = bytearray(Path(path).read_bytes())
    a, b, c, d = (value * 0x10000 for value in turns[degrees])
    matrix = b"".join(v.to_bytes(4, "big", signed=True) for v in (a, b, 0, c, d, 0, 0, 0, 0x40000000))
    at, found = data.find(b"tkhd"), False
    while at >= 0:
        start = at + (56 if data[at + 4] == 1 else 44)  # version 1 has 64-bit times
        if any(data[start + 36 : start + 40]):  # a width: not an audio track
            data[start : start + 36] = matrix
            found = True
        at = data.find(b"tkhd", at + 4)
    if not found:
        raise ValueError(f"expected an MP4 with a video track, found none in {path}")
    Path(path).write_bytes(data)


def truncate(path: str | Path, fraction: float) -> None:
    """Cut a file off, in place.

    Args:
        path: The file.
        fraction: Share of its bytes that is kept, 0 to 1.
    """
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[: int(len(data) * fraction)])


def damage(path: str | Path, *, start: float = 0.4, stop: float = 0.6, seed: int = 0) -> None:
    """Overwrite part of a file with noise, in place.

    Args:
        path: The file.
        start: Where the noise begins, as a share of the file's length.
        stop: Where it ends.
        seed: Seed of the noise.
    """
    data = bytearray(Path(path).read_bytes())
    first, last = int(len(data) * start), int(len(data) * stop)
    data[first:last] = random.Random(seed).randbytes(last - first)  # noqa: S311
    Path(path).write_bytes(data)
