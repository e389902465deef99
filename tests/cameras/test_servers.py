"""Real servers: GStreamer's over RTSP, FFmpeg's over HTTP; killed, started again, and with another size.

Debian's live555 has left its current release, so GStreamer's server stands for RTSP.
"""

import logging
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hazardlens
from hazardlens.frames.base import Frame
from hazardlens.testing import FakeDetector, FakeVlm
from hazardlens.testing.video import draw_video, read_number

pytestmark = [pytest.mark.full, pytest.mark.timeout(120)]

SYSTEM_PYTHON = "/usr/bin/python3"
BINDINGS = "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
PIPELINE = {
    "schema": "hazard",
    "ask": {"every_s": 0.5},
    "live": {
        "frames": "every",
        "open_timeout_s": 5.0,
        "read_timeout_s": 2.0,
        "retry_first_s": 0.2,
        "retry_most_s": 0.5,
    },
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Servers:
    """Starts servers and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen] = []

    def clip(self, size_wh: tuple[int, int]) -> Path:
        path = self.folder / f"{size_wh[0]}.mp4"
        return path if path.exists() else draw_video(path, frames=600, rate=10, size_wh=size_wh)

    def rtsp(self, port: int, size_wh: tuple[int, int]) -> subprocess.Popen:
        script = Path(__file__).with_name("rtsp_server.py")
        command = [SYSTEM_PYTHON, script, str(port), self.clip(size_wh), "us3rname", "Passw0rd"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.running.append(server)
        assert server.stdout.readline() == "ready\n"
        return server

    def http(self, port: int, size_wh: tuple[int, int]) -> subprocess.Popen:
        """FFmpeg's server takes one client, then ends."""
        command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-re", "-i", self.clip(size_wh), "-c", "copy"]
        command += ["-f", "mpegts", "-listen", "1", f"http://127.0.0.1:{port}/stream"]
        self.running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        return self.running[-1]

    def http_jpeg(self, port: int, size_wh: tuple[int, int]) -> subprocess.Popen:
        command = [
            "ffmpeg",
            "-nostdin",
            "-loglevel",
            "error",
            "-re",
            "-i",
            self.clip(size_wh),
            "-c:v",
            "mjpeg",
            "-q:v",
            "2",
        ]
        command += ["-pix_fmt", "yuvj420p", "-f", "mpjpeg", "-listen", "1", f"http://127.0.0.1:{port}/stream"]
        self.running.append(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        return self.running[-1]

    def end(self) -> None:
        for one in self.running:
            one.kill()
            one.wait()
            if one.stdout is not None:
                one.stdout.close()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def gstreamer() -> None:
    found = Path(SYSTEM_PYTHON).exists() and subprocess.run([SYSTEM_PYTHON, "-c", BINDINGS]).returncode == 0
    if not found:
        pytest.skip("needs GStreamer's RTSP server: apt-get install gir1.2-gst-rtsp-server-1.0 python3-gi")


@pytest.fixture
def ffmpeg() -> None:
    if shutil.which("ffmpeg") is None:
        pytest.skip("needs ffmpeg: apt-get install ffmpeg")


def watched_through_a_restart(
    address: str, start: Callable[[tuple[int, int]], subprocess.Popen], folder: Path, pipeline: dict = PIPELINE
) -> list[hazardlens.FrameRecord]:
    """Records of a camera that is absent at first, then there, killed, and there again with another size."""
    records: list[hazardlens.FrameRecord] = []
    server: subprocess.Popen | None = None
    vlm, detector = FakeVlm(), FakeDetector(readable)
    with hazardlens.live({"gate": address}, pipeline=pipeline, detector=detector, vlm=vlm, out=folder / "out") as run:
        for record in run:
            records.append(record)
            waits = record.event is not None and record.event.state == "reconnecting"
            answered = {one.size_wh for one in records if one.vlm.status == "ok"}
            if waits and server is None and record.event.attempt == 2:
                server = start((64, 48))
            elif answered == {(64, 48)} and record.frame >= 20 and server.poll() is None and record.size_wh == (64, 48):
                server.kill()
                server.wait()
            elif waits and answered and server.poll() is not None:
                server = start((96, 64))
            elif (96, 64) in answered:
                break
    return records


def readable(frame: Frame) -> list:
    """Somebody, on a picture whose number can be read."""
    read_number(frame.image)
    return [("person", 1, 2.0, 2.0, 20.0, 30.0)]


def check(records: list[hazardlens.FrameRecord], folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    states = [one.event.state for one in records if one.event is not None]
    first, second = states.index("online"), len(states) - 1 - states[::-1].index("online")
    assert states[:2] == ["offline", "reconnecting"], "absent at the start, and waited for"
    assert first < second
    assert {"offline", "reconnecting"} <= set(states[first:second])
    firsts: dict[int, float] = {}
    for one in records:
        if one.event is None:
            firsts.setdefault(one.frame, one.time_s)
    assert list(firsts) == sorted(firsts)
    assert list(firsts.values()) == sorted(firsts.values())
    assert not [one.vlm.reason for one in records if one.vlm.status == "error"], "a picture that cannot be read"
    sizes = [one.size_wh for one in records if one.event is None]
    assert set(sizes) == {(64, 48), (96, 64)}
    written = (folder / "out" / "records.jsonl").read_text() + (folder / "out" / "status.json").read_text()
    said = written + caplog.text
    assert not [word for word in ("us3rname", "Passw0rd", "T0ken") if word in said]


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_rtsp_with_a_password_through_a_restart_with_another_size(
    transport: str, gstreamer: None, servers: Servers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="hazardlens")
    port = free_port()
    address = f"rtsp://us3rname:Passw0rd@127.0.0.1:{port}/live"
    pipeline = {**PIPELINE, "live": {**PIPELINE["live"], "rtsp_transport": transport}}
    records = watched_through_a_restart(address, lambda size: servers.rtsp(port, size), tmp_path, pipeline)
    check(records, tmp_path, caplog)


def test_a_wrong_password_is_a_state_and_is_not_shown(
    gstreamer: None, servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    port = free_port()
    servers.rtsp(port, (64, 48))
    address = f"rtsp://us3rname:WrongPassw0rd@127.0.0.1:{port}/live"
    with hazardlens.live(address, pipeline=PIPELINE, detector=FakeDetector(), vlm="none") as run:
        record = next(run)
    assert record.event.state == "offline"
    assert "401" in record.event.reason
    assert "Passw0rd" not in record.to_json() + caplog.text


def test_http_through_a_restart_with_another_size(
    ffmpeg: None, servers: Servers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="hazardlens")
    port = free_port()
    address = f"http://127.0.0.1:{port}/stream?token=T0ken"
    records = watched_through_a_restart(address, lambda size: servers.http(port, size), tmp_path)
    check(records, tmp_path, caplog)


def test_http_through_a_restart_with_another_codec(
    ffmpeg: None, servers: Servers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="hazardlens")
    port = free_port()

    def start(size_wh: tuple[int, int]) -> subprocess.Popen:
        return servers.http(port, size_wh) if size_wh == (64, 48) else servers.http_jpeg(port, size_wh)

    records = watched_through_a_restart(f"http://127.0.0.1:{port}/stream?token=T0ken", start, tmp_path)
    check(records, tmp_path, caplog)
    online = [one.event.reason for one in records if one.event is not None and one.event.state == "online"]
    assert (online[0], online[-1]) == ("h264 64x48", "mjpeg 96x64")


def test_a_half_open_connection_is_a_state(gstreamer: None, servers: Servers) -> None:
    """The server stops in its tracks: its connections stay open, and nothing comes through them."""
    port = free_port()
    server = servers.rtsp(port, (64, 48))
    address = f"rtsp://us3rname:Passw0rd@127.0.0.1:{port}/live"
    with hazardlens.live(address, pipeline=PIPELINE, detector=FakeDetector(), vlm="none") as run:
        for record in run:
            if record.event is None and record.frame == 5:
                server.send_signal(19)
            if record.event is not None and record.event.state == "offline":
                break
        server.send_signal(18)
        for back in run:
            if back.event is not None and back.event.state == "online":
                break
    assert record.event.reason == "no picture for 2 s"
    assert back.time_s > record.time_s
