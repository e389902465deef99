"""Every decodable frame of a file, with its time, and a tally of what went wrong."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard, Stream
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from hazardlens.frames._media import (
    Promise,
    exif_orientation,
    mirrored_upright,
    open_media,
    playback_origin,
    promise_of,
    video_stream,
)
from hazardlens.frames.damage import Damage

_GENERATE_PTS = 1  # AVFMT_FLAG_GENPTS
_FALLBACK_RATE = Fraction(25)
# Packets of these may be references that are never shown.
_HIDDEN_FRAMES = {"vp8", "vp9", "av1"}


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Picture:
    """A decoded picture on its way to the consumer: upright BGR, seconds from the playback origin, damaged or not."""

    image: NDArray[np.uint8]
    time_s: float
    damaged: bool


@dataclass(kw_only=True, slots=True)
class Tally:
    """What the decoder met so far; times are container times in seconds."""

    packets: int = 0
    hidden: int = 0
    unreadable: int = 0
    last_dts: int = -1
    ends_at: Fraction = Fraction(0)
    others_end_at: Fraction = Fraction(0)
    last_start: Fraction | None = None
    longest_gap: Fraction = Fraction(0)
    stopped: str | None = None
    pending_dts: list[int] = field(default_factory=list)


class Decoder:
    """Decodes one file's video stream; owns the container.

    Args:
        path: The file.

    Raises:
        VideoError: There is no video to decode.
    """

    def __init__(self, path: Path) -> None:
        self.container: InputContainer = open_media(path)
        try:
            self.stream: VideoStream = video_stream(self.container, path)
        except BaseException:
            self.container.close()
            raise
        name = self.container.format.name
        self.is_still = name.endswith("_pipe") or name == "image2"
        self.promise = Promise(frames=1) if self.is_still else promise_of(self.container, self.stream)
        self.tally = Tally()
        self._orientation = exif_orientation(path) if self.is_still else 1
        self._origin = playback_origin(self.container, self.stream)
        self._time_base = self.stream.time_base or Fraction(1, 90_000)
        # AVI stores decoding order only; FFmpeg's guesses at presentation times are wrong where frames are reordered.
        self._only_dts = name == "avi"
        if self._only_dts:
            self.container.flags &= ~_GENERATE_PTS
        # Frame threads would blame a packet's error on its successors.
        self.stream.thread_type = "SLICE"
        self._reformatter = VideoReformatter()
        self._damage = Damage()

    @property
    def rate(self) -> Fraction | None:
        """Average rate in frames per second, or None where the file tells none."""
        if self.is_still:
            return None
        timed = self.container.start_time is not None
        return (self.stream.average_rate if timed else None) or self.stream.guessed_rate

    def pictures(self) -> Iterator[Picture]:
        """Yield every decodable picture until the decoder is drained."""
        for packet in self._packets():
            for frame in self._decoded(packet):
                yield self._picture(frame)
                if self.is_still:
                    return

    def _packets(self) -> Iterator[Packet[Stream] | None]:
        wanted = [self.stream, *(self.container.streams.audio if self.promise.of_all else ())]
        for stream in self.container.streams:
            if all(stream is not one for one in wanted):
                stream.discard = Discard.all
        try:
            yield from self.container.demux(wanted)
        except av.FFmpegError as error:
            self.tally.stopped = error.strerror or "unknown error"
            yield None

    def _decoded(self, packet: Packet[Stream] | None) -> list[VideoFrame]:
        if packet is not None and packet.stream_index != self.stream.index and packet.size:
            self._note_other(packet)
            return []
        if packet is not None and packet.stream is not self.stream:
            return []
        counts = packet is not None and packet.size > 0
        if packet is not None and counts:
            self._note(packet)
        try:
            return self.stream.decode(packet)
        except av.FFmpegError:
            self.tally.unreadable += counts
            if packet is not None and counts:
                self._damage.begins(packet.pts)
            if packet is not None and packet.dts in self.tally.pending_dts:
                self.tally.pending_dts.remove(packet.dts)
                heapq.heapify(self.tally.pending_dts)
            return []

    def _note(self, packet: Packet[Stream]) -> None:
        self.tally.packets += 1
        self.tally.hidden += packet.is_discard
        if packet.is_corrupt:
            self._damage.begins(packet.pts)
        if packet.dts is not None:
            self.tally.last_dts = max(self.tally.last_dts, packet.dts)
            if self._only_dts:
                heapq.heappush(self.tally.pending_dts, packet.dts)

    def _note_other(self, packet: Packet[Stream]) -> None:
        if packet.pts is not None:
            end = (packet.pts + (packet.duration or 0)) * packet.time_base
            self.tally.others_end_at = max(self.tally.others_end_at, end)

    def _picture(self, frame: VideoFrame) -> Picture:
        start = self._start(frame)
        time_s = 0.0 if self.is_still else float(start - self._origin)
        damaged = self._damage.is_on(frame.pts, is_key=frame.key_frame, is_corrupt=frame.is_corrupt)
        return Picture(image=self._upright(frame), time_s=time_s, damaged=damaged)

    def _start(self, frame: VideoFrame) -> Fraction:
        tally, step = self.tally, 1 / (self.rate or _FALLBACK_RATE)
        stored = heapq.heappop(tally.pending_dts) if tally.pending_dts else None
        stamp = frame.pts if frame.pts is not None else stored
        if stamp is not None:
            start = stamp * self._time_base
        else:
            start = self._origin if tally.last_start is None else tally.last_start + step
        if tally.last_start is not None:
            tally.longest_gap = max(tally.longest_gap, start - tally.last_start)
        tally.last_start = start
        shown = frame.duration * self._time_base if frame.duration else step
        tally.ends_at = max(tally.ends_at, start + shown)
        return start

    def _upright(self, frame: VideoFrame) -> NDArray[np.uint8]:
        plain = self._reformatter.reformat(frame, format="bgr24", threads=1)
        image = np.asarray(plain.to_ndarray(), dtype=np.uint8)
        if self._orientation != 1:
            image = mirrored_upright(image, self._orientation)
        elif not self.is_still and frame.rotation:
            image = np.rot90(image, round(frame.rotation / 90))
        return np.ascontiguousarray(image)

    def verdict(self, read: int) -> tuple[int | None, str | None]:
        """Compare what came with what was promised, once all was read.

        Args:
            read: Pictures handed out.

        Returns:
            Frames expected or None, and why the file counts as ended early or None.
        """
        expected = self._expected(read)
        if self.tally.stopped is not None:
            at = float(self.tally.ends_at - self._origin)
            return expected, f"reading stopped at {at:.3f} s: {self.tally.stopped}"
        if expected is not None:
            return expected, self._missing(expected, read)
        return None, self._too_short()

    def _expected(self, read: int) -> int | None:
        if self.promise.frames is None:
            return None
        empty = max(self.tally.last_dts + 1 - self.tally.packets, 0) if self._only_dts else 0
        indexed = self.promise.frames < self.stream.frames
        expected = self.promise.frames - self.tally.hidden - (0 if indexed else empty)
        return expected if expected >= read else None

    def _missing(self, expected: int, read: int) -> str | None:
        reasons = []
        absent = expected - (self.tally.packets - self.tally.hidden)
        if absent > 0 and self._only_dts:  # AVI numbers frames by counting what it finds, so a hole looks like an end
            missing = f"{absent} of the {expected} frames that its header promises are missing"
            reasons.append(f"the file ends early or is damaged: {missing}")
        elif absent > 0:
            reasons.append(f"the file ends before the {expected} frames that its header promises, {absent} are missing")
        if read < expected and self.tally.unreadable:
            reasons.append(f"{self.tally.unreadable} packets could not be decoded")
        if read < expected and not reasons and self.stream.codec.canonical_name not in _HIDDEN_FRAMES:
            reasons.append(f"the decoder gave no picture for {expected - read} packets")
        return "; ".join(reasons) or None

    def _too_short(self) -> str | None:
        """Judge by duration. A last picture may be shown as long as any before it, so that much is no alarm."""
        if self.promise.ends_at is None:
            return None
        end = max(self.tally.ends_at, self.tally.others_end_at) if self.promise.of_all else self.tally.ends_at
        slack = max(Fraction(1, 2), 3 / (self.rate or _FALLBACK_RATE), self.tally.longest_gap)
        if self.promise.ends_at - end <= slack:
            return None
        promised, came = float(self.promise.ends_at), float(end)
        return f"the file ends at {came:.3f} s, before the {promised:.3f} s that its header promises"
