"""The board, the window and the page: what is seen of a live run."""

import itertools
import shutil
import subprocess
import threading

import cv2
import httpx2
import numpy as np
import pytest

import hazardlens
from hazardlens.cameras.network import NetworkCamera
from hazardlens.errors import InputError
from hazardlens.frames.base import Frame
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.board import TILE_WH, Board
from hazardlens.outputs.draw import Painter
from hazardlens.outputs.page import _PAGE, Page
from hazardlens.outputs.window import Window
from hazardlens.record import CameraEvent, FrameRecord, VlmState
from tests.monitor.test_lane import HandClock, eventually
from tests.threads import left

SCHEMA = hazardlens.FieldSchema.load("hazard")
GREY = (150, 150, 150)


def outcome(
    time_s: float,
    severity: str | None = None,
    *,
    source: str = "gate",
    event: CameraEvent | None = None,
    alerts: tuple = (),
    is_late: bool = False,
) -> Outcome:
    fields = None if severity is None else {"notes": "Seen.", "hazard": "fire", "severity": severity}
    record = FrameRecord(
        source=source,
        frame=round(time_s * 10),
        time_s=time_s,
        size_wh=(320, 180),
        detections=(),
        fields=fields,
        vlm=VlmState(status="carried" if severity else "pending", age_s=0.5 if severity else None),
        event=event,
        alerts=alerts,
    )
    image = np.full((180, 320, 3), 200, np.uint8)
    frame = Frame(image=image, index=record.frame, time_s=time_s, source=source)
    return Outcome(record=record, frame=frame, is_late=is_late)


def board(*outcomes: Outcome) -> Board:
    made = Board(SCHEMA, hazardlens.Pipeline.load({}))
    for one in outcomes:
        made.write(one)
    return made


def colour(severity: str) -> tuple[int, ...]:
    return Painter(SCHEMA, (320, 180), {}).colour(outcome(0, severity).record)


def bar(picture: np.ndarray) -> list[tuple[int, ...]]:
    """Colours of the last seconds in the bar, newest first, one for each second of five minutes."""
    width, height = TILE_WH
    middles = [width - 1 - round((age + 0.4) * width / 300) for age in range(10)]
    return [tuple(int(value) for value in picture[height - 5, x]) for x in middles]


def test_before_anything_comes_there_is_a_picture_already() -> None:
    assert board().paint().shape == (TILE_WH[1], TILE_WH[0], 3)


@pytest.mark.parametrize(
    ("sources", "tiles"), [(1, (1, 1)), (2, (1, 2)), (3, (2, 2)), (4, (2, 2)), (5, (2, 3)), (7, (3, 3))]
)
def test_each_source_has_its_tile(sources: int, tiles: tuple[int, int]) -> None:
    picture = board(*(outcome(0, "low", source=f"camera{k}") for k in range(sources))).paint()
    assert picture.shape[:2] == (TILE_WH[1] * tiles[0], TILE_WH[0] * tiles[1])


def test_the_bar_tells_the_last_minutes_and_unknown_is_grey() -> None:
    made = board(outcome(0, "low"), outcome(1, "high"), outcome(1.5), outcome(2), outcome(4, "critical"))
    seen = bar(made.paint())
    assert seen[0] == colour("critical")
    assert seen[1] not in (colour("critical"), colour("low"), GREY), "a second without a frame is dark"
    assert seen[2] == GREY
    assert seen[3] == colour("high"), "what is known stands over what is not"
    assert seen[4] == colour("low")


def test_a_late_record_does_not_take_the_picture_back() -> None:
    made = board(outcome(5), outcome(2, "critical", is_late=True))
    assert bar(made.paint())[0] == GREY


def test_a_camera_that_is_offline_is_dark_and_says_so() -> None:
    online = board(outcome(0, "low", event=CameraEvent(state="online")), outcome(1, "low"))
    bright = online.paint()
    online.write(outcome(2, event=CameraEvent(state="offline", reason="no route to host")))
    dark = online.paint()
    middle = (TILE_WH[1] // 3, TILE_WH[0] // 2)
    assert bright[middle].tolist() == [200, 200, 200]
    assert dark[middle].tolist() == [66, 66, 66]
    assert not np.array_equal(bright[:24], dark[:24])


@pytest.mark.parametrize("state", ["online", "offline"])
def test_a_picture_that_stands_still_is_dark_and_says_its_age(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = HandClock(), []
    monkeypatch.setattr("hazardlens.outputs.board.write_line", lambda tile, text, *_: said.append(text))
    made = Board(SCHEMA, hazardlens.Pipeline.load({}), clock=clock)
    made.write(outcome(0, event=CameraEvent(state="online")))
    made.write(outcome(0, "low"))
    middle = (TILE_WH[1] // 3, TILE_WH[0] // 2)
    clock.time_s = 2.9
    assert made.paint()[middle].tolist() == [200, 200, 200]
    assert said == ["gate   online   VLM: carried, 0.5 s old"]
    clock.time_s = 754.2
    made.write(outcome(1, event=CameraEvent(state=state)))
    made.write(outcome(0, "low", is_late=True))
    assert made.paint()[middle].tolist() == [66, 66, 66]
    assert said[1] == f"gate   picture 754 s old   {state}   VLM: carried, 0.5 s old"
    made.write(outcome(1, "low"))
    made.paint()
    assert "picture" not in said[2]


def test_the_last_alerts_are_kept_newest_first() -> None:
    made = board(*(outcome(k, "high", alerts=({"id": f"fire-{k}"},)) for k in range(60)))
    assert [one["id"] for one in made.alerts] == [f"fire-{k}" for k in range(59, 9, -1)]


class FakeScreen:
    """Stands for OpenCV's windows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, keys: list[int]) -> None:
        self.shown: list[np.ndarray] = []
        self.closed = 0
        self.visible = 1.0
        monkeypatch.setenv("DISPLAY", ":fake")
        monkeypatch.setattr(cv2, "namedWindow", lambda *_: None)
        monkeypatch.setattr(cv2, "imshow", lambda _, image: self.shown.append(image))
        monkeypatch.setattr(cv2, "waitKey", lambda _: keys.pop(0) if keys else -1)
        monkeypatch.setattr(cv2, "getWindowProperty", lambda *_: self.visible)
        monkeypatch.setattr(cv2, "destroyAllWindows", lambda: setattr(self, "closed", 1))


@pytest.mark.parametrize("how", ["q", "closed"])
def test_the_window_shows_the_board_and_may_be_closed(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hazardlens.outputs.window._EVERY_S", 0.005)
    keys = [-1, -1, ord("q")] if how == "q" else []
    screen = FakeScreen(monkeypatch, keys)
    quits: list[int] = []
    window = Window(board(outcome(0, "low")), lambda: quits.append(1))
    eventually(lambda: screen.shown)
    screen.visible = 1.0 if how == "q" else 0.0
    eventually(lambda: quits)
    eventually(lambda: screen.closed)
    window.write(outcome(1))
    window.close(complete=False)
    assert quits == [1]
    assert left() == []


def test_the_age_in_the_window_grows_while_the_run_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written and nobody asks for a picture: the detector, say, hangs in the run's own thread."""
    monkeypatch.setattr("hazardlens.outputs.window._EVERY_S", 0.005)
    said: list[str] = []
    monkeypatch.setattr("hazardlens.outputs.board.write_line", lambda tile, text, *_: said.append(text))
    screen, clock = FakeScreen(monkeypatch, []), HandClock()
    made = Board(SCHEMA, hazardlens.Pipeline.load({}), clock=clock)
    made.write(outcome(0, "low"))
    window = Window(made, lambda: None)
    for age in (10, 20):
        clock.time_s = float(age)
        eventually(lambda age=age: any(f"picture {age} s old" in text for text in said))
    window.close(complete=False)
    assert screen.closed
    assert left() == []


def test_an_opencv_without_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeScreen(monkeypatch, [])

    def none(*_: object) -> None:
        raise cv2.error("The function is not implemented")

    monkeypatch.setattr(cv2, "namedWindow", none)
    with pytest.raises(InputError, match="no windows"):
        Window(board(), lambda: None)


def test_without_a_screen_the_error_names_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(InputError, match="--serve"):
        Window(board(), lambda: None)


def test_the_page_shows_picture_alerts_and_state_on_loopback_only() -> None:
    told = {"sources": {"gate": {"state": "online"}}, "vlm": None}
    alert = {"id": "fire-1", "why": "<script>"}
    page = Page(board(outcome(0, "high", alerts=(alert,))), 0, lambda: told)
    try:
        with httpx2.Client(base_url=page.address, timeout=10) as browser:
            html = browser.get("/").text
            assert "innerHTML" not in html, "text of a model must never become markup"
            assert "STANDS STILL: ${still.stage}, for ${still.seconds} s" in html
            assert browser.get("/state").json() == {"alerts": [alert], "status": told}
            assert browser.get("/state", headers={"Host": "evil.example"}).status_code == 400
            with browser.stream("GET", "/picture") as stream:
                assert stream.headers["content-type"].startswith("multipart/x-mixed-replace")
                data = b""
                for part in stream.iter_bytes():
                    data += part
                    if data.count(b"--frame") == 2:
                        break
                start = data.index(b"\r\n\r\n") + 4
                length = int(data.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                image = cv2.imdecode(np.frombuffer(data[start : start + length], np.uint8), cv2.IMREAD_COLOR)
                assert image.shape[:2] == TILE_WH[::-1]
        assert page.address.startswith("http://127.0.0.1:")
        port = int(page.address.rsplit(":", 1)[1])
        with pytest.raises(InputError, match="another port"):
            Page(board(), port, lambda: told)
    finally:
        page.close(complete=True)
    with pytest.raises(httpx2.TransportError):
        httpx2.get(page.address, timeout=2)


def test_the_page_is_a_camera_too_as_most_http_cameras_are() -> None:
    """Motion JPEG over HTTP, read as a camera is."""
    page = Page(board(outcome(0, "high")), 0, dict)
    settings = hazardlens.Pipeline.load({"live": {"open_timeout_s": 10, "read_timeout_s": 5}}).live
    try:
        feed = NetworkCamera(f"{page.address}/picture", name="page", settings=settings).open()
        pictures = list(itertools.islice(feed.pictures(threading.Event()), 3))
        assert [one.decode().shape for one in pictures] == [(TILE_WH[1], TILE_WH[0], 3)] * 3
        feed.close()
    finally:
        page.close(complete=True)


BROWSER = """
const parts = {};
const make = () => ({hidden: true, textContent: "", className: "", src: "/picture", replaceChildren() {}});
globalThis.document = {body: make(), createElement: make, getElementById: id => parts[id] ??= make()};
let next; globalThis.setTimeout = call => { next = call };
const good = {ok: true, json: async () => ({alerts: [], status: {sources: {}, vlm: null}})};
const answers = [good, "gone", {ok: false, status: 500}, good];
globalThis.fetch = async (_, {signal}) => {
  if (!(signal instanceof AbortSignal)) throw new Error("waits for ever");
  const answer = answers.shift(); if (answer === "gone") throw new Error(answer); return answer };
const settle = () => new Promise(done => setImmediate(done));
const tell = () => console.log(JSON.stringify(
  [parts.lost.hidden, document.body.className, parts.picture?.src.startsWith("/picture?") ?? false]));
(async () => { await settle(); tell(); while (answers.length) { next(); await settle(); tell() }
  console.log(parts.lost.textContent) })();
"""


@pytest.mark.full
@pytest.mark.skipif(shutil.which("node") is None, reason="runs the page's script with node")
def test_a_page_without_contact_is_dark_until_there_is_contact_again() -> None:
    script = _PAGE.split("<script>")[1].split("</script>")[0]
    done = subprocess.run(["node", "-e", BROWSER + script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:4] == [
        '[true,"",false]',
        '[false,"old",false]',
        '[false,"old",false]',
        '[true,"",true]',
    ]
    assert "No contact with hazardlens since " in done.stdout
