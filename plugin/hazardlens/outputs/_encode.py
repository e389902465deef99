"""H.264 in MP4, at given times, in pieces that play even if the last one is missing."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.frame import PictureType, VideoFrame
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from hazardlens.merge.clock import RESTART_S
from hazardlens.outputs._audio import open_audio
from hazardlens.outputs._sink import Sink

TICKS_PER_S = 90_000
_TIME_BASE = Fraction(1, TICKS_PER_S)
_PIECE_TICKS = 2 * TICKS_PER_S
_RESTART_TICKS = round(RESTART_S * TICKS_PER_S)
_BUFFER_BYTES = 2**20
_BT709 = 1
_CONTAINER_OPTIONS = {
    # Fragments while writing, an ordinary MP4 once closed; the delayed header knows where each stream begins.
    "movflags": "hybrid_fragmented+frag_keyframe+delay_moov",
    "use_editlist": "1",
    "video_track_timescale": str(TICKS_PER_S),
    "movie_timescale": str(TICKS_PER_S),  # in which offsets between streams are stored
    "flush_packets": "1",
    # Where sound has a hole, wait this long for it before pictures are written (microseconds).
    "max_interleave_delta": "1000000",
}


class Encoder:
    """Encodes pictures into a file; used by one thread at a time.

    Args:
        path: The file.
        size_wh: Size of the pictures; others are fitted into it.
        rate: Nominal frames per second, or None.
        audio_from: A file whose sound is taken over, or None.
        crf: x264's quality, 0 to 51, lower is better.
        preset: x264's preset.

    Raises:
        OSError: The file cannot be created.
        av.FFmpegError: The encoder refuses the size or the settings.
    """

    def __init__(
        self,
        path: Path,
        *,
        size_wh: tuple[int, int],
        rate: Fraction | None,
        audio_from: Path | None,
        crf: float,
        preset: str,
    ) -> None:
        self._path = path
        self._size_wh = size_wh
        self._step = round(TICKS_PER_S / rate) if rate else TICKS_PER_S // 25
        self._known_rate = rate is not None
        with ExitStack() as opened:
            self._sink = opened.enter_context(closing(Sink(path)))
            self._out = opened.enter_context(
                av.open(self._sink, "w", format="mp4", container_options=_CONTAINER_OPTIONS, buffer_size=_BUFFER_BYTES)
            )
            self._video = self._add_video(rate, {"crf": str(crf), "preset": preset, "bf": "0", "forced-idr": "1"})
            self._audio = open_audio(self._out, audio_from) if audio_from is not None else None
            opened.pop_all()
        self._reformatter = VideoReformatter()
        self._offset = 0  # grows each time that the source's clock starts again
        self._last: int | None = None
        self._last_key: int | None = None

    def _add_video(self, rate: Fraction | None, options: dict[str, str]) -> VideoStream:
        video = self._out.add_stream("libx264", rate=rate or Fraction(25), options=options)
        width, height = self._size_wh
        video.width, video.height = width + width % 2, height + height % 2
        video.pix_fmt = "yuv420p"
        context = video.codec_context
        context.time_base = _TIME_BASE
        context.gop_size = 600  # key frames are set by time, below
        context.color_primaries = context.color_trc = context.colorspace = _BT709
        context.color_range = ColorRange.MPEG
        # Half the cores: the encoder runs beside a detector.
        context.thread_count = min(4, max(1, (os.cpu_count() or 2) // 2))
        context.open()  # so that what the encoder refuses is known before the first picture
        return video

    def encode(self, image: NDArray[np.uint8], time_s: float) -> None:
        """Encode a picture.

        Where time jumps back by more than `RESTART_S`, this picture and those after it follow the last one, a frame
        step later and at their own distances. The sound is not moved with them.

        Args:
            image: Shape (H, W, 3), uint8, BGR.
            time_s: Playback time in seconds; one not above the last is moved up to it by a tick of 1/90000 s.
        """
        frame = self._frame(_fitted(image, self._size_wh))
        stamp = round(time_s * TICKS_PER_S) + self._offset
        if self._last is not None:
            if stamp < self._last - _RESTART_TICKS:
                self._offset += self._last + self._step - stamp
                stamp = self._last + self._step
            stamp = max(stamp, self._last + 1)
            self._step = self._step if self._known_rate else stamp - self._last
        frame.pts, frame.time_base = stamp, _TIME_BASE
        if self._last_key is None or stamp - self._last_key > _PIECE_TICKS - self._step:
            frame.pict_type = PictureType.I
            self._last_key = stamp
        self._last = stamp
        self._mux(frame)

    def _frame(self, image: NDArray[np.uint8]) -> VideoFrame:
        odd_h, odd_w = image.shape[0] % 2, image.shape[1] % 2
        if odd_h or odd_w:  # yuv420p needs even sizes
            image = np.pad(image, ((0, odd_h), (0, odd_w), (0, 0)), mode="edge")
        frame = VideoFrame.from_numpy_buffer(np.ascontiguousarray(image), format="bgr24")
        return self._reformatter.reformat(
            frame, format="yuv420p", dst_colorspace=Colorspace.ITU709, dst_color_range=ColorRange.MPEG, threads=1
        )

    def _mux(self, frame: VideoFrame | None) -> None:
        for packet in self._video.encode(frame):
            packet.duration = self._step
            if self._audio is not None and packet.pts is not None:
                self._audio.write_until(packet.pts * _TIME_BASE)
            self._out.mux(packet)

    def finish(self, *, complete: bool) -> None:
        """Write what is left and make the file an ordinary MP4; a file without any picture is removed.

        Args:
            complete: Whether sound that goes on after the last picture is kept.
        """
        if self._last is None:
            self.abandon()
            self._path.unlink(missing_ok=True)
            return
        self._mux(None)
        if self._audio is not None:
            self._audio.write_until(None if complete else (self._last + self._step) * _TIME_BASE)
            self._audio.close()
        self._out.close()
        self._sink.close()
        if self._sink.failure is not None:
            raise self._sink.failure

    def abandon(self) -> None:
        """Leave the file as it is, after a failure."""
        with ExitStack() as opened:  # each is closed even if another cannot be
            if self._audio is not None:
                opened.callback(self._audio.close)
            opened.callback(self._out.close)
            opened.callback(self._sink.close)  # first, so that the muxer leaves the file alone


def _fitted(image: NDArray[np.uint8], size_wh: tuple[int, int]) -> NDArray[np.uint8]:
    """Scale a picture of another size into the video's, with black borders."""
    height, width = image.shape[:2]
    if (width, height) == size_wh:
        return image
    scale = min(size_wh[0] / width, size_wh[1] / height)
    new_w, new_h = max(1, round(width * scale)), max(1, round(height * scale))
    source = VideoFrame.from_ndarray(np.ascontiguousarray(image), format="bgr24")
    scaled = source.reformat(width=new_w, height=new_h, format="bgr24").to_ndarray()
    canvas = np.zeros((size_wh[1], size_wh[0], 3), np.uint8)
    left, top = (size_wh[0] - new_w) // 2, (size_wh[1] - new_h) // 2
    canvas[top : top + new_h, left : left + new_w] = scaled
    return canvas
