"""Cameras on the network: RTSP, HTTP and whatever else FFmpeg reads from an address."""

from __future__ import annotations

import errno
import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import av
import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from hazardlens.cameras.base import Camera, CameraLost, Feed, Picture
from hazardlens.cameras.secrets import scrubbed
from hazardlens.frames.damage import Damage
from hazardlens.pipeline.live import LiveSettings

_PROBE_US = "2000000"
"""Time in which FFmpeg finds out what a stream is made of; its own 5 s are long for a camera that comes back."""

_BROKE = "the stream broke off"


class NetworkCamera(Camera):
    """A camera that is read from an address.

    Args:
        address: Such as `rtsp://user:password@host/stream`; never shown.
        name: Name in records.
        settings: Time limits, and how RTSP is carried.
    """

    def __init__(self, address: str, *, name: str, settings: LiveSettings) -> None:
        self.name = name
        self._address = address
        self._settings = settings

    def open(self) -> Feed:
        """Connect, within the time limit.

        Raises:
            CameraLost: If that fails.
        """
        limits = (self._settings.open_timeout_s, self._settings.read_timeout_s)
        options = {"analyzeduration": _PROBE_US}
        if self._address.lower().startswith("rtsp"):
            options["rtsp_transport"] = self._settings.rtsp_transport
        with _translated(self._address, f"cannot be opened within {limits[0]:g} s"):
            container = av.open(
                self._address, timeout=limits, container_options=options, metadata_errors="replace", mode="r"
            )
        try:
            return _NetworkFeed(container, self._address, self._settings.read_timeout_s)
        except BaseException:
            container.close()
            raise


class _NetworkFeed(Feed):
    def __init__(self, container: InputContainer, address: str, read_timeout_s: float) -> None:
        stream = next((one for one in container.streams.video if one.codec_context is not None), None)
        if stream is None:
            raise CameraLost("the stream holds no video that can be decoded")
        stream.thread_type = "SLICE"  # frame threads would hold pictures back
        self._container = container
        self._stream = stream
        self._address = address
        self._read_timeout_s = read_timeout_s
        self._reformatter = VideoReformatter()
        self._damage = Damage()
        self.note = f"{stream.codec.canonical_name} {stream.width}x{stream.height}"

    def pictures(self, stop: Event) -> Iterator[Picture]:
        seen_s = time.monotonic()
        with _translated(self._address, f"no picture for {self._read_timeout_s:g} s"):
            for packet in self._container.demux(self._stream):
                if stop.is_set():
                    return
                if packet.size and packet.is_corrupt:
                    self._damage.begins(packet.pts)
                try:
                    frames = packet.decode()
                except av.FFmpegError:  # a damaged packet; pictures go on after it, or the time limit is reached
                    frames = []
                    self.damaged += 1
                    self._damage.begins(packet.pts)
                for frame in frames:
                    damaged = self._damage.is_on(frame.pts, is_key=frame.key_frame, is_corrupt=frame.is_corrupt)
                    self.damaged += damaged
                    seen_s = time.monotonic()
                    yield self._picture(frame, damaged)
                if time.monotonic() - seen_s > self._read_timeout_s:
                    raise CameraLost(f"data comes, but no picture could be decoded for {self._read_timeout_s:g} s")
        raise CameraLost(_BROKE)

    def close(self) -> None:
        self._container.close()

    def _picture(self, frame: VideoFrame, damaged: bool) -> Picture:
        stamp = None if frame.pts is None or frame.time_base is None else float(frame.pts * frame.time_base)
        return Picture(stamp_s=stamp, decode=functools.partial(self._decoded, frame), damaged=damaged)

    def _decoded(self, frame: VideoFrame) -> NDArray[np.uint8]:
        plain = self._reformatter.reformat(frame, format="bgr24", threads=1)
        image = np.asarray(plain.to_ndarray(), dtype=np.uint8)
        turned = np.rot90(image, round(frame.rotation / 90)) if frame.rotation else image
        return np.ascontiguousarray(turned)


@contextmanager
def _translated(address: str, too_late: str) -> Iterator[None]:
    """Raise FFmpeg's errors as `CameraLost`, apart from the address, which FFmpeg's own texts quote."""
    try:
        yield
    except av.error.ExitError:
        raise CameraLost(too_late) from None
    except (av.error.EOFError, av.error.OSError) as error:
        broke = isinstance(error, av.error.EOFError) or error.errno == errno.EIO
        raise CameraLost(_BROKE if broke else scrubbed(error.strerror or _BROKE, address)) from None
    except (av.FFmpegError, OSError) as error:
        raise CameraLost(scrubbed(error.strerror or type(error).__name__, address)) from None
