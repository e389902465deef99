"""A camera on loopback: an HTTP server that streams MPEG-TS, and misbehaves where it is told to. It is a fake."""

import io
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import av

from hazardlens.testing.video import number_image


def transport_stream(
    frames: int = 10, size_wh: tuple[int, int] = (64, 48), rate: int = 10, halved: Collection[int] = ()
) -> bytes:
    """Numbered pictures as MPEG-TS; of those in `halved`, the second half of the data is missing."""
    file = io.BytesIO()
    with av.open(file, "w", format="mpegts") as container:
        stream = container.add_stream("libx264", rate=rate, options={"g": "5", "tune": "zerolatency"})
        stream.width, stream.height = size_wh
        for number in range(frames):
            for packet in stream.encode(av.VideoFrame.from_ndarray(number_image(number, size_wh), format="bgr24")):
                container.mux(_half(packet) if number in halved else packet)
        for packet in stream.encode():
            container.mux(packet)
    return file.getvalue()


def motion_jpeg(frames: int = 10, size_wh: tuple[int, int] = (64, 48), rate: int = 10) -> bytes:
    """Numbered pictures as JPEGs one after the other, as most HTTP cameras send them."""
    file = io.BytesIO()
    with av.open(file, "w", format="mpjpeg") as container:
        stream = container.add_stream("mjpeg", rate=rate)
        stream.width, stream.height = size_wh
        stream.pix_fmt = "yuvj420p"
        for number in range(frames):
            for packet in stream.encode(av.VideoFrame.from_ndarray(number_image(number, size_wh), format="bgr24")):
                container.mux(packet)
    return file.getvalue()


def _half(packet: av.Packet) -> av.Packet:
    half = av.Packet(bytes(packet)[: packet.size // 2])
    half.stream, half.pts, half.dts = packet.stream, packet.pts, packet.dts
    half.time_base = packet.time_base
    return half


@dataclass
class HttpCamera:
    """What each connection gets, one after the other; the last one again and again.

    Attributes:
        bodies: What is sent.
        hangs: Whether a connection stays open, without a word, after its body.
        paths: What was asked for.
        url: Its address.
    """

    bodies: list[bytes]
    hangs: bool = False
    status: int = 200
    paths: list[str] = field(default_factory=list)
    url: str = ""
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(camera: HttpCamera) -> Iterator[HttpCamera]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = camera.bodies[min(len(camera.paths), len(camera.bodies) - 1)]
            camera.paths.append(self.path)
            self.send_response(camera.status)
            self.send_header("Content-Type", "video/mp2t")
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()
            if camera.hangs:
                camera.over.wait(30)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    camera.url = f"http://127.0.0.1:{server.server_port}/stream"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield camera
    finally:
        camera.over.set()
        server.shutdown()
        thread.join()
        server.server_close()
