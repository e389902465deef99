"""A source's sound for the annotated video: copied where MP4 can hold it, else encoded as AAC."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from fractions import Fraction
from pathlib import Path

import av
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer, OutputContainer
from av.packet import Packet
from av.stream import Stream

from hazardlens.errors import VideoError
from hazardlens.frames._media import open_media, playback_origin

_log = logging.getLogger(__name__)
_COPIED = {"aac", "mp3", "ac3", "eac3", "alac", "opus"}
_AAC_RATES = {8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000, 64000, 88200, 96000}
_LAYOUTS = {1: "mono", 2: "stereo", 6: "5.1"}


def open_audio(out: OutputContainer, path: Path) -> AudioTrack | None:
    """Take over the first audio stream of a file.

    Args:
        out: The MP4 being written, before its first packet.
        path: The source.

    Returns:
        The track, or None where there is no sound or none that can be read (which is logged).
    """
    try:
        source = open_media(path)
    except VideoError as error:
        _log.warning("the sound of %s is left out: %s", path, error)
        return None
    if not source.streams.audio or source.streams.audio[0].codec_context is None:
        source.close()
        return None
    try:
        track = AudioTrack(out, source, path)
    except BaseException:
        source.close()
        raise
    if track.is_empty:
        track.close()
        return None
    return track


class AudioTrack:
    """One audio stream on its way from a source into an MP4; what cannot be read is logged and left out.

    Where the source's clock jumps back, sound is left out until it has passed the latest that was written; from there
    on it no longer matches the pictures, which `Encoder` moves.

    Args:
        out: The MP4; the stream is added to it when the first sound was found.
        source: The open source, owned by the track.
        path: Its path, for messages.
    """

    def __init__(self, out: OutputContainer, source: InputContainer, path: Path) -> None:
        self._out = out
        self._source = source
        self._path = path
        self._stream: AudioStream = source.streams.audio[0]
        video = source.streams.best("video")
        self._origin = playback_origin(source, video if isinstance(video, av.VideoStream) else None)
        self._last_dts: int | None = None
        self._told = False
        for stream in source.streams:
            if stream is not self._stream:
                stream.discard = av.stream.Discard.all
        copied = self._stream.codec.canonical_name in _COPIED
        self._packets = self._copy() if copied else self._encode()
        self._next = next(self._packets, None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to write."""
        return self._next is None

    def write_until(self, limit_s: Fraction | None) -> None:
        """Write the sound that begins before a time.

        Args:
            limit_s: Playback time in seconds, or None for all that is left.
        """
        while self._next is not None and (limit_s is None or self._starts_at(self._next) < limit_s):
            if self._rises(self._next):
                self._out.mux(self._next)
            self._next = next(self._packets, None)

    def close(self) -> None:
        """Let go of the source."""
        self._packets.close()
        self._source.close()

    @staticmethod
    def _starts_at(packet: Packet[Stream]) -> Fraction:
        stamp = packet.pts if packet.pts is not None else packet.dts
        return (stamp or 0) * packet.time_base

    def _rises(self, packet: Packet[Stream]) -> bool:
        """Leave out what goes back in time, which the muxer refuses."""
        if packet.dts is None or (self._last_dts is not None and packet.dts <= self._last_dts):
            self._tell("its timestamps go back")
            return False
        self._last_dts = packet.dts
        return True

    def _tell(self, what: str) -> None:
        if not self._told:
            _log.warning("part of the sound of %s is left out: %s", self._path, what)
            self._told = True

    def _demuxed(self) -> Iterator[Packet[AudioStream]]:
        try:
            yield from self._source.demux(self._stream)
        except av.FFmpegError as error:
            self._tell(error.strerror or "unknown error")

    def _copy(self) -> Generator[Packet[Stream], None, None]:
        target: AudioStream | None = None
        for packet, dts in self._framed():
            if target is None:
                target = self._out.add_stream_from_template(self._stream)
                if packet.has_sidedata("new_extradata"):
                    target.codec_context.extradata = bytes(packet.get_sidedata("new_extradata"))
            shift = round(self._origin / packet.time_base)
            packet.pts = (packet.pts if packet.pts is not None else dts) - shift
            packet.dts = dts - shift
            copy: Packet[Stream] = packet  # type: ignore[assignment]  # a packet changes streams when it is copied
            copy.stream = target
            yield copy

    def _framed(self) -> Iterator[tuple[Packet[AudioStream], int]]:
        """Yield packets and their dts as MP4 wants them: AAC without its transport-stream headers."""
        bare = None
        if self._stream.codec.canonical_name == "aac" and not self._stream.codec_context.extradata:
            bare = av.BitStreamFilterContext("aac_adtstoasc", self._stream)
        for packet in self._demuxed():
            dts = packet.dts
            if packet.size == 0 or dts is None:
                continue
            try:
                yield from [(one, dts) for one in ([packet] if bare is None else bare.filter(packet))]
            except av.FFmpegError as error:
                self._tell(error.strerror or "unknown error")

    def _encode(self) -> Generator[Packet[Stream], None, None]:
        target: AudioStream | None = None
        for frame in self._decoded():
            if target is None:
                target = self._add_aac(frame)
            try:
                packets = target.encode(frame)
            except ValueError as error:  # the sound's form changes on the way
                self._tell(str(error))
                break
            yield from packets
        if target is not None:
            yield from target.encode(None)

    def _add_aac(self, frame: AudioFrame) -> AudioStream:
        rate = frame.sample_rate if frame.sample_rate in _AAC_RATES else 48_000
        stream = self._out.add_stream("aac", rate=rate)
        stream.layout = _LAYOUTS.get(frame.layout.nb_channels, "stereo")
        stream.bit_rate = 128_000
        return stream

    def _decoded(self) -> Iterator[AudioFrame]:
        following = Fraction(0)
        for packet in self._demuxed():
            try:
                frames = packet.decode()
            except av.FFmpegError as error:
                self._tell(error.strerror or "unknown error")
                continue
            for frame in frames:
                base = self._stream.time_base or Fraction(1, frame.sample_rate)
                start = frame.pts * base - self._origin if frame.pts is not None else following
                frame.time_base = Fraction(1, frame.sample_rate)
                frame.pts = round(start * frame.sample_rate)
                following = start + Fraction(frame.samples, frame.sample_rate)
                yield frame
