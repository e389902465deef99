"""Where nobody waits: the newest answer is carried, finished records come later, and a lost camera is no clear view."""

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

import hazardlens
from hazardlens.merge.lane import Lane
from hazardlens.merge.lane import answer as answer_now
from hazardlens.record import FrameRecord
from hazardlens.testing import FunctionVlm
from hazardlens.testing.video import draw_video, number_image, read_number, truncate
from tests.callback.sights import PIPELINE, answer, numbered, vlm
from tests.callback.test_attach import RECORD, plain


class Gate(FunctionVlm):
    """Answers one question each time that it is let."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.asked: list[int] = []
        self._let = threading.Semaphore(0)

    def _answer(self, question: Any) -> Any:
        self.asked.append(question.frame.index)
        assert self._let.acquire(timeout=20)
        return answer(question)

    def let(self, plugin: hazardlens.Plugin) -> None:
        """Let it answer, and wait until the record has come."""
        before = plugin.counts.answers.total()
        self._let.release()
        wait_until(lambda: plugin.counts.answers.total() > before)


def wait_until(true: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_results_carry_the_newest_answer_and_records_come_when_they_are_finished(load: Callable, clip: Path) -> None:
    model, gate = load(), Gate()
    plugin = hazardlens.attach(model, {**PIPELINE, "max_age_s": 1.5}, vlm=gate, wait=False)
    states, came = [], {}
    for index, result in enumerate(model.track(clip, stream=True)):
        state = result.record.vlm
        states.append((state.status, state.frame, state.trigger))
        for record in plugin.records():
            came[record.frame] = (index, record.vlm.status, record.fields["notes"])
        if index in (4, 22):
            gate.let(plugin)
    assert states[0] == ("pending", None, ("every",))
    assert states[1:5] == [("pending", None, ())] * 4
    assert states[5:10] == [("carried", 0, ())] * 5
    assert states[10] == ("carried", 0, ("every",)), "it was asked, and is carried meanwhile"
    assert states[11:16] == [("carried", 0, ())] * 5
    assert states[16:23] == [("stale", 0, ())] * 7
    assert states[23] == ("carried", 10, ("every",)), "what would have asked at 20 waited"
    assert came == {0: (5, "ok", "This is frame 0 of clip.mkv."), 10: (23, "ok", "This is frame 10 of clip.mkv.")}
    gate._let.release()
    plugin.close()
    assert [record.frame for record in plugin.records()] == [23]
    assert gate.asked == [0, 10, 23]


def test_what_is_carried_meanwhile_has_its_age_and_says_whom_it_asks_about(load: Callable, clip: Path) -> None:
    model, gate = load(), Gate()
    with hazardlens.attach(model, PIPELINE, vlm=gate, wait=False) as plugin:
        records = []
        for index, result in enumerate(model.track(clip, stream=True)):
            records.append(result.record)
            if index == 3:
                gate.let(plugin)
        assert records[7].vlm.age_s == pytest.approx(0.7)
        assert all(one.asked for one in records[0].detections)
        assert all(one.fields is None for one in records[0].detections)
        assert not any(one.asked for one in records[1].detections)
        plain(records)
        gate.let(plugin)
    assert plugin.counts.asked == 2


def test_a_callable_gets_each_finished_record(load: Callable, clip: Path) -> None:
    got: list[tuple[str, FrameRecord]] = []
    model = load()
    with hazardlens.attach(
        model,
        {**PIPELINE, "ask": {"every_s": 0.5}},
        vlm=vlm(latency_s=0.01),
        wait=False,
        on_record=lambda record: got.append((threading.current_thread().name, record)),
    ) as plugin:
        for _ in model.predict(clip, stream=True):
            time.sleep(0.02)
    assert {name for name, _ in got} == {"hazardlens-vlm"}
    assert [record.frame for _, record in got] == [0, 5, 10, 15, 20]
    assert plain([record for _, record in got])[1]["fields"]["notes"] == "The picture shows 5."
    assert plugin.records() == []


def test_the_picture_that_is_asked_about_is_not_what_the_user_makes_of_it(load: Callable, clip: Path) -> None:
    changed = threading.Event()
    notes: list[str] = []

    def read_later(question: Any) -> Any:
        assert changed.wait(20)
        notes.append(numbered(question)["notes"])
        return answer(question)

    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=FunctionVlm(read_later), wait=False):
        for result in model.predict(clip, stream=True):
            result.orig_img[:] = 77
        changed.set()
    assert notes == ["The picture shows 0."]


def test_pictures_tracked_from_call_to_call_are_one_live_source(load: Callable) -> None:
    model, gate, now = load(), Gate(), [100.0]
    plugin = hazardlens.attach(model, PIPELINE, vlm=gate, clock=lambda: now[0])
    records = []
    for number in range(15):
        (result,) = model.track(number_image(number, (96, 64)), persist=True)
        records.append(result.record)
        now[0] += 0.25
        if number == 1:
            gate.let(plugin)
    assert {record.source for record in records} == {"frames"}
    assert [record.frame for record in records] == list(range(15))
    assert [record.time_s for record in records] == [k / 4 for k in range(15)]
    assert [record.vlm.status for record in records] == ["pending"] * 2 + ["carried"] * 13
    assert [record.frame for record in records if record.vlm.trigger] == [0, 4]
    gate._let.release()
    plugin.close()
    assert [record.frame for record in plugin.records()] == [0, 4]


def test_pictures_that_are_not_tracked_stand_by_themselves(load: Callable) -> None:
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()):
        notes = [model(number_image(number, (96, 64)))[0].fields["notes"] for number in range(3)]
    assert notes == [f"The picture shows {number}." for number in range(3)]


def test_of_many_pictures_only_some_are_under_way_and_nobody_waits(load: Callable) -> None:
    model, gate = load(), Gate()
    plugin = hazardlens.attach(model, PIPELINE, vlm=gate, wait=False)
    results = model([number_image(number, (96, 64)) for number in range(9)])
    assert [result.record.vlm.status for result in results] == ["pending"] * 4 + ["skipped"] * 5
    assert plugin.counts.asked == 4
    for _ in range(4):
        gate._let.release()
    plugin.close()
    assert [record.source for record in plugin.records()] == [f"image{k}.jpg" for k in range(4)]


# Cameras: Ultralytics opens what a .streams file lists, and cameras and files look the same to OpenCV.


class Camera:
    """Stands for OpenCV's capture: it plays pictures, and an outage where there is None, and never ends by itself."""

    def __init__(self, pictures: list[np.ndarray | None]) -> None:
        self._pictures = pictures
        self._at = -1

    def isOpened(self) -> bool:  # noqa: N802 - OpenCV's name
        return True

    def open(self, address: str) -> bool:
        return True

    def get(self, of: int) -> float:
        return {cv2.CAP_PROP_FRAME_WIDTH: 96, cv2.CAP_PROP_FRAME_HEIGHT: 64, cv2.CAP_PROP_FPS: 100}.get(of, 0)

    def grab(self) -> bool:
        self._at += 1
        return True

    def retrieve(self) -> tuple[bool, np.ndarray | None]:
        picture = self._pictures[min(self._at, len(self._pictures) - 1)]
        return picture is not None, None if picture is None else picture.copy()

    def read(self) -> tuple[bool, np.ndarray | None]:
        self.grab()
        return self.retrieve()

    def release(self) -> None:
        pass


@pytest.fixture
def cameras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Gives a source of cameras, one per list of pictures."""

    def make(*shows: list[np.ndarray | None]) -> str:
        playing = {f"rtsp://user:secret@host{k}/cam": Camera(pictures) for k, pictures in enumerate(shows)}
        monkeypatch.setattr("ultralytics.data.loaders.cv2.VideoCapture", lambda address: playing[address])
        (tmp_path / "cameras.streams").write_text("\n".join(playing))
        return str(tmp_path / "cameras.streams")

    return make


def taken(results: Any, count: int) -> list[Any]:
    return [result for _, result in zip(range(count), results, strict=False)]


@pytest.mark.parametrize("method", ["predict", "track"])
def test_several_cameras_are_sources_of_their_own(load: Callable, cameras: Callable, method: str) -> None:
    model, ticks = load(), iter(range(10**6))
    source = cameras([number_image(1, (96, 64))] * 9, [number_image(2, (96, 64))] * 9)
    plugin = hazardlens.attach(model, PIPELINE, vlm=vlm(), clock=lambda: next(ticks) / 20)
    run = getattr(model, method)(source, stream=True, stream_buffer=True)
    records = [result.record for result in taken(run, 12)]
    run.close()
    plugin.close()
    assert [(record.source, record.frame) for record in records] == [
        (f"stream{slot}", frame) for frame in range(6) for slot in (0, 1)
    ]
    assert [record.time_s for record in records if record.source == "stream0"] == [k / 10 for k in range(6)]
    notes = {(record.source, record.fields["notes"]) for record in plugin.records()}
    assert notes == {("stream0", "The picture shows 1."), ("stream1", "The picture shows 2.")}
    assert "secret" not in "".join(record.to_json() for record in records)


def test_a_black_frame_is_a_lost_source_and_never_no_hazard(load: Callable, cameras: Callable) -> None:
    shows = [number_image(5, (96, 64))] * 4 + [None] * 3 + [number_image(6, (96, 64))] * 4
    model, now = load(), iter(range(1000))
    plugin = hazardlens.attach(
        model, {**PIPELINE, "ask": {"every_s": 0.1}}, vlm=vlm(), wait=True, clock=lambda: next(now) / 10
    )
    run = model.track(cameras(shows), stream=True, stream_buffer=True)
    results = taken(run, 11)
    run.close()
    plugin.close()
    statuses = [result.record.vlm.status for result in results]
    lost = [k for k, result in enumerate(results) if not result.orig_img.any()]
    assert len(lost) == 3
    assert [k for k, status in enumerate(statuses) if status == "source_lost"] == lost
    for k in lost:
        record = results[k].record
        assert list(RECORD.iter_errors(record.to_dict())) == []
        assert record.fields is None
        assert "black frame" in record.vlm.reason
        assert "no answer: source_lost" in results[k].verbose()
    assert plugin.counts.source_lost == 3
    assert plugin.counts.asked == 8
    assert "3 source_lost" in plugin.counts.line()


def test_a_camera_that_ends_is_told_of(load: Callable, tmp_path: Path, caplog: Any) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=4, rate=10, size_wh=(96, 64))
    (tmp_path / "a.streams").write_text(str(clip))
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()):
        results = model.predict(str(tmp_path / "a.streams"), stream=False, stream_buffer=True)
    assert 1 <= len(results) <= 4
    assert caplog.text.count("a camera ended, and Ultralytics ends all others with it") == 1


def test_a_loader_that_stops_early_is_told_of_and_its_record_says_so(
    load: Callable, clip: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ultralytics.data.loaders import LoadImagesAndVideos

    opened = LoadImagesAndVideos._new_video

    def miscount(self: Any, path: str) -> None:
        opened(self, path)
        self.frames = 15

    monkeypatch.setattr(LoadImagesAndVideos, "_new_video", miscount)
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        results = model.predict(clip)
    assert len(results) == 15
    lost = [record for record in plugin.records() if record.vlm.status == "source_lost"]
    assert [(record.source, record.frame, record.time_s, record.size_wh) for record in lost] == [
        ("clip.mkv", 15, 1.5, (96, 64))
    ]
    assert list(RECORD.iter_errors(lost[0].to_dict())) == []
    assert "clip.mkv: source_lost: Ultralytics' loader stopped after frame 14, but the file goes on" in caplog.text
    assert plugin.counts.source_lost == 1


def test_a_loop_that_is_left_is_no_loss(load: Callable, clip: Path, caplog: Any) -> None:
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        for _ in taken(model.predict(clip, stream=True), 3):
            pass
    assert plugin.counts.source_lost == 0
    assert "source_lost" not in caplog.text


def test_records_that_nobody_takes_are_bounded(load: Callable, clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hazardlens.callback.core.KEPT_RECORDS", 3)
    model = load()
    with hazardlens.attach(model, {**PIPELINE, "ask": {"every_s": 0.1}}, vlm=vlm()) as plugin:
        model.predict(clip)
    assert [record.frame for record in plugin.records()] == [22, 23, 24]
    assert plugin.counts.unread == 22


def test_a_file_whose_header_counts_too_few_frames_is_told_of(load: Callable, tmp_path: Path, caplog: Any) -> None:
    times = [k * 0.02 for k in range(100)]
    path = draw_video(tmp_path / "v.mkv", times_s=times, rate=10, size_wh=(96, 64))
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        results = model.predict(path)
    lost = [record for record in plugin.records() if record.vlm.status == "source_lost"]
    assert [(record.frame, record.time_s) for record in lost] == [(len(results), pytest.approx(times[len(results)]))]
    assert "but the file goes on" in caplog.text


def test_a_file_that_was_cut_off_is_told_of(load: Callable, tmp_path: Path) -> None:
    faststart = {"movflags": "faststart"}
    path = draw_video(
        tmp_path / "c.mp4", frames=40, rate=10, codec="mpeg4", size_wh=(96, 64), container_options=faststart
    )
    truncate(path, 0.8)
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        results = model.predict(path)
    (lost,) = [record for record in plugin.records() if record.vlm.status == "source_lost"]
    assert lost.frame == len(results)
    assert f"after {len(results)} of the 40 frames" in lost.vlm.reason


@pytest.mark.parametrize("arguments", [{}, {"batch": 4}, {"vid_stride": 3}])
def test_frames_keep_their_numbers_where_ultralytics_loads_ahead(load: Callable, clip: Path, arguments: dict) -> None:
    model = load()
    model.predict(number_image(0, (96, 64)))
    model.predictor.model.prefetch = True  # as on CUDA, which is not tried here: no GPU takes part
    with hazardlens.attach(model, {**PIPELINE, "ask": {"every_s": 0.1}}, vlm=vlm()):
        results = model.predict(clip.parent, **arguments) + model.predict(clip, **arguments)
    assert [result.record.frame for result in results] == [read_number(result.orig_img) for result in results]
    assert [result.record.time_s for result in results] == [result.record.frame / 10 for result in results]
    assert all(result.fields["notes"] == f"The picture shows {result.record.frame}." for result in results)


def test_an_answer_that_is_there_at_once_is_carried_as_any_other(
    load: Callable, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(lane: Lane, question: Any) -> Future:
        future: Future = Future()
        future.set_result(answer_now(lane._vlm, question, lane._stop))
        return future

    monkeypatch.setattr(Lane, "ask", ask)
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm(), wait=False):
        states = [result.record.vlm for result in model.track(clip, stream=True)]
    assert [(state.status, state.frame) for state in states] == [
        ("carried" if k % 10 else "ok", k // 10 * 10) for k in range(25)
    ]


def test_a_screen_is_a_live_source(load: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = np.dstack([number_image(9, (96, 64)), np.zeros((64, 96), np.uint8)])
    area = {"top": 0, "left": 0, "width": 96, "height": 64}
    grabber = SimpleNamespace(monitors=[area], grab=lambda monitor: screen)
    monkeypatch.setitem(sys.modules, "mss", SimpleNamespace(mss=lambda: grabber))
    monkeypatch.setattr("ultralytics.data.loaders.check_requirements", lambda *_: True)
    model, ticks = load(), iter(range(1000))
    plugin = hazardlens.attach(model, PIPELINE, vlm=vlm(), clock=lambda: next(ticks) / 4)
    run = model.predict("screen", stream=True)
    results = taken(run, 6)
    run.close()
    plugin.close()
    assert [(one.record.source, one.record.frame, one.record.time_s) for one in results] == [
        ("screen", k, k / 4) for k in range(6)
    ]
    assert [record.fields["notes"] for record in plugin.records()] == ["The picture shows 9."] * 2
