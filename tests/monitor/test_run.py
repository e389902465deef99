"""Live runs, through the whole of the product, with fakes for cameras, detector and VLM."""

import gc
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import hazardlens
from hazardlens.detect.base import Detections
from hazardlens.errors import InputError, VideoError
from hazardlens.frames.base import Frame
from hazardlens.merge.source import SourceMerge
from hazardlens.monitor.outputs import Outputs
from hazardlens.monitor.running import Running
from hazardlens.resources import data_path
from hazardlens.testing import FakeDetector, FakeVlm, FunctionVlm
from hazardlens.testing.cameras import FakeCamera, FakeClock
from hazardlens.testing.video import draw_video, read_number, truncate
from hazardlens.vlm.base import Question, Reply, Shown
from tests.cameras.http_camera import HttpCamera, motion_jpeg, serving, transport_stream
from tests.monitor.test_lane import Gate, eventually
from tests.monitor.test_soak import LeapingClock
from tests.threads import left

RECORD = jsonschema.Draft202012Validator(json.loads(data_path("schemas", "record.json").read_text(encoding="utf-8")))
LIVE = {"retry_first_s": 0.05, "retry_most_s": 0.2, "open_timeout_s": 2.0, "read_timeout_s": 1.0}


def verdict(question: Question) -> dict:
    """Fields that tell the number of the frame that was seen."""
    number = read_number(question.frame.image)
    found = {"hazard": "spill", "severity": "low"}
    things = [{"id": k, **found} for k in range(question.asked)]
    return {"notes": f"This is frame {number}.", **found, "detections": things}


def begin(
    sources: object, *, live: dict | None = None, settings: dict | None = None, **arguments
) -> hazardlens.LiveRun:
    pipeline = {"schema": "hazard", "max_age_s": 2.0, "live": {**LIVE, **(live or {})}, **(settings or {})}
    chosen = {"detector": FakeDetector(), "vlm": FunctionVlm(verdict), **arguments}
    return hazardlens.live(sources, pipeline=pipeline, **chosen)


def lines(folder: Path) -> list[dict]:
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    for record in records:
        assert list(RECORD.iter_errors(record)) == []
    return records


def frames(records: Sequence[hazardlens.FrameRecord], source: str = "fake") -> list[hazardlens.FrameRecord]:
    return [one for one in records if one.source == source and one.event is None]


def firsts(records: Sequence[hazardlens.FrameRecord], source: str = "fake") -> list[hazardlens.FrameRecord]:
    """The records that frames had as they came, without those that told later what became of a question."""
    seen: set[int] = set()
    return [one for one in frames(records, source) if one.frame not in seen and not seen.add(one.frame)]


def settled(run: hazardlens.LiveRun) -> Iterator[hazardlens.FrameRecord]:
    """The records of a run whose consumer lets the VLM finish before it takes the next."""
    for record in run:
        yield record
        eventually(lambda: run.lane is None or run.lane.is_idle)


def test_records_of_all_sources_come_as_they_happen_and_are_written(tmp_path: Path) -> None:
    cameras = [FakeCamera("a", sessions=[15], fps=50.0), FakeCamera("b", sessions=[10], fps=50.0, stamped=False)]
    with begin(cameras, out=tmp_path, live={"frames": "every"}) as run:
        records = list(run)
    assert lines(tmp_path) == [json.loads(record.to_json()) for record in records]
    for name, count in (("a", 15), ("b", 10)):
        mine = frames(records, name)
        assert [one.frame for one in firsts(records, name)] == list(range(count))
        times = [one.time_s for one in firsts(records, name)]
        assert times == sorted(times)
        assert all(one.at is not None for one in mine)
        assert [one.event.state for one in records if one.source == name and one.event] == ["online", "ended"]
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["complete"] is True
    assert status["sources"]["a"]["frames_detected"] == 15
    assert left() == []


def test_the_status_is_written_before_anything_is_seen(tmp_path: Path) -> None:
    with begin([FakeCamera("a", sessions=[5])], out=tmp_path):
        status = json.loads((tmp_path / "status.json").read_text())
        assert status["running"] is True
        assert status["sources"]["a"]["frames_detected"] == 0


def test_an_answer_belongs_to_the_frame_it_saw_and_later_frames_carry_it_until_it_is_stale() -> None:
    vlm = Gate()
    camera = FakeCamera(sessions=[60], fps=None)
    vlm.ask = answering(vlm)
    kept = {"ask": {"every_s": 100.0}, "max_age_s": 3.0}
    with begin(camera, vlm=vlm, live={"frames": "every", "buffer": 100}, settings=kept) as run:
        records = []
        for record in run:
            records.append(record)
            if record.frame == 9 and record.event is None:
                vlm.free.release()
                eventually(lambda: run.lane.is_idle)
    mine = frames(records)
    assert [one.frame for one in mine[:10]] == list(range(10))
    assert {one.vlm.status for one in mine[:10]} == {"pending"}
    assert mine[0].vlm.trigger == ("every",)
    answer = mine[10]
    assert (answer.frame, answer.time_s, answer.at) == (0, mine[0].time_s, mine[0].at)
    assert (answer.vlm.status, answer.fields["notes"]) == ("ok", "This is frame 0.")
    for one in mine[11:]:
        assert one.vlm.frame == 0
        assert one.vlm.age_s == pytest.approx(one.time_s - mine[0].time_s)
        assert one.vlm.status == ("carried" if one.vlm.age_s <= 3.0 else "stale")
        assert (one.fields is None) == (one.vlm.status == "stale")
        assert (one.detections[0].fields is None) == (one.vlm.status == "stale")
    assert {one.vlm.status for one in mine[11:]} == {"carried", "stale"}


def answering(gate: Gate) -> Callable[..., Reply]:
    wait = gate.ask

    def ask(question: Question, shown: Shown, stop: threading.Event) -> Reply:
        wait(question, shown, stop)
        return Reply(text=json.dumps(verdict(question)))

    return ask


def test_a_question_whose_place_is_taken_is_told() -> None:
    vlm = Gate()
    with begin(FakeCamera(sessions=[40], fps=None), vlm=vlm, live={"frames": "every"}) as run:
        records = []
        for record in run:
            records.append(record)
            if record.frame == 0 and record.event is None:
                eventually(lambda: vlm.asked)
            if record.frame == 39 and record.event is None:
                vlm.free.release(10)
    mine = frames(records)
    told = [one for one in mine if "newer question" in (one.vlm.reason or "")]
    assert [one.frame for one in told] == [10, 20]
    assert all(one.vlm.status == "skipped" and one.vlm.trigger == ("every",) and one.fields is None for one in told)
    asked = {one.frame for one in mine if one.vlm.trigger}
    done = {one.frame for one in mine if one.vlm.attempts} | {one.frame for one in told}
    assert asked == done == {0, 10, 20, 30}


def test_one_dead_camera_never_stops_the_others() -> None:
    dead = FakeCamera("dead", sessions=["no route to host"] * 1000)
    with begin([dead, FakeCamera(sessions=[20], fps=50.0)], live={"frames": "every"}) as run:
        records, states, ended = [], [], False
        for record in run:
            records.append(record)
            if record.event is not None and record.source == "dead":
                states.append(record.event.state)
            ended = ended or (record.event is not None and record.event.state == "ended")
            if ended and len(states) >= 3:
                break
    assert [one.frame for one in firsts(records)] == list(range(20))
    assert states[:3] == ["offline", "reconnecting", "reconnecting"]
    assert {(one.vlm.status, one.fields) for one in records if one.source == "dead"} == {("source_lost", None)}


class Following(FakeDetector):
    """Gives ids as a tracker does: from 1 on for each stream, and anew for a new one."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[object, int] = {}
        self.forgotten: list[object] = []

    def detect(self, frames: Sequence[Frame], *, stream: object = None) -> list[Detections]:
        number = self.streams.setdefault(stream, 0) + 1
        self.streams[stream] = number
        self._boxes = lambda frame: [("person", 1, 2, 2, 20, 30), ("truck", 1 + (number + 1) // 2, 30, 2, 60, 30)]
        return super().detect(frames, stream=stream)

    def forget(self, stream: object) -> None:
        self.forgotten.append(stream)


def test_a_size_that_changes_after_reconnection_begins_new_tracks_with_new_ids() -> None:
    detector = Following()
    camera = FakeCamera(sessions=[4, 4, 2], fps=None, size_wh=lambda session: [(64, 48), (96, 64), (96, 64)][session])
    with begin(camera, detector=detector, live={"frames": "every"}) as run:
        mine = firsts(list(run))
    assert [one.size_wh for one in mine] == [(64, 48)] * 4 + [(96, 64)] * 6
    ids = [[found.track_id for found in one.detections] for one in mine]
    assert ids[:4] == [[1, 2], [1, 2], [1, 3], [1, 3]]
    assert ids[4:] == [[4, 5], [4, 5], [4, 6], [4, 6], [4, 7], [4, 7]], "the second size keeps its tracks"
    assert len(detector.streams) == 2
    assert set(detector.forgotten) >= set(detector.streams)


@pytest.mark.parametrize(("away", "anew"), [(1.0, False), (5.0, True)])
def test_behind_a_long_outage_nobody_gets_an_old_id_or_an_old_answer(away: float, anew: bool) -> None:
    """The tracker would take whoever stands at the same place for whoever stood there."""

    class Steady(Following):
        def detect(self, frames: Sequence[Frame], *, stream: object = None) -> list[Detections]:
            found = super().detect(frames, stream=stream)
            return [replace(one, track_id=(1, 2)) for one in found]

    detector, clock = Steady(), LeapingClock()
    waits = {"retry_first_s": away / 0.875, "retry_most_s": away / 0.875}
    ask = {"ask": {"every_s": None, "new_track": ["person"]}}
    camera = FakeCamera(sessions=[5, 5], fps=10.0, clock=clock)
    with begin(camera, detector=detector, clock=clock, live={"frames": "every", **waits}, settings=ask) as run:
        records = list(settled(run))
    mine = firsts(records)
    assert len(mine) == 10
    ids = [[found.track_id for found in one.detections] for one in mine]
    assert ids == [[1, 2]] * 5 + [[3, 4] if anew else [1, 2]] * 5
    assert [one.frame for one in mine if one.vlm.trigger] == ([0, 5] if anew else [0])
    assert mine[5].vlm.status == ("stale" if anew else "carried")
    assert (mine[5].detections[0].fields is None) == anew


def test_a_camera_that_is_slow_keeps_its_tracks() -> None:
    detector, clock = Following(), LeapingClock()
    camera = FakeCamera(sessions=[6], fps=0.1, clock=clock)
    patient = {"frames": "every", "read_timeout_s": 100.0}
    with begin(camera, detector=detector, clock=clock, vlm="none", live=patient) as run:
        mine = firsts(list(run))
    assert len(mine) == 6
    assert len(detector.streams) == 1


def test_a_detector_that_fails_on_a_frame_gives_a_status_and_the_run_goes_on() -> None:
    class Failing(FakeDetector):
        def detect(self, frames: Sequence[Frame], *, stream: object = None) -> list[Detections]:
            if frames[0].index == 2:
                raise RuntimeError("out of memory")
            return super().detect(frames, stream=stream)

    with begin(FakeCamera(sessions=[5], fps=None), detector=Failing(), vlm="none", live={"frames": "every"}) as run:
        mine = frames(list(run))
    assert [one.vlm.status for one in mine] == ["skipped", "skipped", "error", "skipped", "skipped"]
    assert mine[2].vlm.reason == "RuntimeError: out of memory"


@pytest.mark.parametrize("heeds_stop", [True, False])
def test_closing_writes_what_was_accepted_and_does_not_wait_for_a_vlm_that_hangs(
    heeds_stop: bool, tmp_path: Path
) -> None:
    vlm = Gate(heeds_stop=heeds_stop)
    run = begin(FakeCamera(sessions=[1000], fps=100.0), vlm=vlm, out=tmp_path, live={"frames": "every"})
    try:
        for record in run:
            if record.frame == 25:
                break
        run.close()
        (asked,) = [one for one in lines(tmp_path) if one["vlm"]["status"] == "error"]
        assert asked["frame"] == 0
        assert "stopped before the answer came" in asked["vlm"]["reason"]
        assert list(run) == []
        assert json.loads((tmp_path / "status.json").read_text())["running"] is False
        run.close()
    finally:
        vlm.free.release(10)


def test_behind_a_stop_the_loop_gets_what_was_under_way_and_the_rest_is_counted(tmp_path: Path) -> None:
    vlm = Gate()
    camera = FakeCamera(sessions=[30, *["unplugged"] * 1000], fps=None)
    with begin(camera, vlm=vlm, out=tmp_path, live={"frames": "every"}) as run:
        before = []
        for record in run:
            before.append(record)
            if record.event is None and record.frame == 4:
                break
        eventually(lambda: run.sources[0].reader.reason == "unplugged")
        run.stop()
        behind = list(run)
        assert list(run) == []
    (unanswered,) = [one for one in behind if one.event is None]
    assert (unanswered.frame, unanswered.vlm.reason) == (0, "the run was stopped before the answer came")
    assert [one.event.state for one in behind if one.event is not None][:3] == ["offline", "reconnecting", "offline"]
    assert lines(tmp_path) == [json.loads(record.to_json()) for record in [*before, *behind]]
    told = json.loads((tmp_path / "status.json").read_text())["sources"]["fake"]
    assert (told["frames_read"], told["frames_detected"], told["frames_dropped"]) == (30, 5, 25)


def test_what_the_merge_trips_over_is_a_status_and_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    question, record = SourceMerge.question, SourceMerge.record

    def bad_question(self: SourceMerge, frame: Frame, *given: object, **more: object) -> object:
        if frame.index in (3, 4):
            raise KeyError("zone")
        return question(self, frame, *given, **more)

    def bad_record(self: SourceMerge, frame: Frame, *given: object, late: bool = False) -> object:
        if late:
            raise ValueError("rule")
        return record(self, frame, *given, late=late)

    monkeypatch.setattr(SourceMerge, "question", bad_question)
    monkeypatch.setattr(SourceMerge, "record", bad_record)
    with begin(FakeCamera(sessions=[25], fps=None), live={"frames": "every"}) as run:
        records = list(settled(run))
        told = run.status["sources"]["fake"]
    assert [one.frame for one in firsts(records)] == list(range(25))
    failed = [(one.frame, one.vlm.reason) for one in frames(records) if one.vlm.status == "error"]
    assert failed == [
        *((0, "ValueError: rule"), (3, "KeyError: 'zone'"), (4, "KeyError: 'zone'")),
        *((10, "ValueError: rule"), (20, "ValueError: rule")),
    ]
    assert len(firsts(records)[3].detections) == 1
    assert told["failed"] == 5
    assert len([one for one in caplog.records if "merge" in one.message and one.levelno == logging.WARNING]) == 2


def test_outputs_are_closed_whatever_fails_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Running) -> None:
        raise RuntimeError("release")

    monkeypatch.setattr(Running, "release", fail)
    close, closed = Outputs.close, []

    def noted(self: Outputs, *, complete: bool) -> None:
        closed.append(complete)
        close(self, complete=complete)

    monkeypatch.setattr(Outputs, "close", noted)
    run = begin(FakeCamera(sessions=[1], fps=None), vlm="none", out=tmp_path)
    with pytest.raises(RuntimeError, match="release"):
        list(run)
    assert closed == [True]


def test_stopping_from_another_thread_ends_the_loop() -> None:
    run = begin(FakeCamera(sessions=["absent"] * 1000))
    begun = threading.Event()
    threading.Thread(target=lambda: begun.wait(20) and run.stop()).start()
    states = []
    for record in run:
        states.append(record.event.state)
        if len(states) == 2:
            begun.set()
    assert states[:2] == ["offline", "reconnecting"]


def test_a_file_is_played_at_its_own_pace_and_ends(tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=10, rate=10)
    clock = FakeClock(speed=5.0)
    began = clock.now()
    with begin(clip, clock=clock, live={"frames": "every"}) as run:
        mine = firsts(list(run), "clip.mp4")
    assert clock.now() - began > 0.85
    assert [one.time_s for one in mine] == pytest.approx([k / 10 for k in range(10)])


@pytest.mark.parametrize("cut", [True, False])
def test_a_file_that_ends_before_its_end_says_so_and_is_not_complete(cut: bool, tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=40, size_wh=(320, 240), container_options={"movflags": "faststart"})
    if cut:
        truncate(clip, 0.6)
    with begin(clip, clock=FakeClock(speed=50.0), vlm="none", live={"frames": "every"}, out=tmp_path / "out") as run:
        records = list(run)
    (reason,) = [one.event.reason for one in records if one.event is not None and one.event.state == "ended"]
    assert (len(frames(records, "clip.mp4")) < 40) is cut
    assert reason.startswith("ended early: ") if cut else reason == "the source has come to its end"
    assert json.loads((tmp_path / "out" / "status.json").read_text())["complete"] is not cut


def test_an_http_camera_whose_server_breaks_off_and_changes_its_size() -> None:
    bodies = [transport_stream(12), b"", transport_stream(12, (96, 64))]
    with (
        serving(HttpCamera(bodies)) as camera,
        begin({"gate": camera.url.replace("//", "//me:Passw0rd@")}, live={"frames": "every"}) as run,
    ):
        records = []
        for record in run:
            records.append(record)
            if record.size_wh == (96, 64) and record.event is None:
                break
    sizes = {one.size_wh for one in frames(records, "gate")}
    assert sizes == {(64, 48), (96, 64)}
    states = [one.event.state for one in records if one.event]
    assert states[:4] == ["online", "offline", "reconnecting", "offline"] or states[:3] == [
        "online",
        "offline",
        "reconnecting",
    ]
    assert states[-1] == "online"
    times = [one.time_s for one in firsts(records, "gate")]
    assert times == sorted(times)
    assert "Passw0rd" not in "".join(one.to_json() for one in records)


def test_a_camera_that_comes_back_with_another_codec_goes_on() -> None:
    bodies = [transport_stream(12), motion_jpeg(40)]
    with serving(HttpCamera(bodies)) as camera, begin({"gate": camera.url}, live={"frames": "every"}) as run:
        records = []
        for record in run:
            records.append(record)
            if [one.event.state for one in records if one.event].count("online") == 2 and record.event is None:
                break
    notes = [one.event.reason for one in records if one.event and one.event.state == "online"]
    assert notes == ["h264 64x48", "mjpeg 64x48"]
    mine = firsts(records, "gate")
    assert [one.frame for one in mine] == list(range(len(mine)))
    assert len(mine) == 13
    assert {one.vlm.status for one in frames(records, "gate")} <= {"ok", "pending", "carried", "skipped"}


def test_a_damaged_frame_says_so_and_its_question_waits_for_a_whole_one(tmp_path: Path) -> None:
    camera = FakeCamera(sessions=[30, "unplugged"], fps=None, damaged=lambda number: 8 <= number < 13)
    with begin(camera, out=tmp_path, live={"frames": "every"}) as run:
        records = []
        for record in settled(run):
            records.append(record)
            if record.event is None and record.frame == 29:
                assert run.sources[0].reader.state != "ended"
                assert run.status["sources"]["fake"]["damaged"] == 5, "counted while the camera is online"
                break
    mine = firsts(records)
    assert [one.frame for one in mine if one.damaged] == [8, 9, 10, 11, 12]
    assert [one.frame for one in mine if one.vlm.trigger] == [0, 13, 20]
    assert [one["frame"] for one in lines(tmp_path) if one["damaged"]] == [8, 9, 10, 11, 12]


def test_a_camera_whose_pictures_are_all_damaged_is_asked_about_all_the_same() -> None:
    camera = FakeCamera(sessions=[45], fps=None, damaged=lambda number: True)
    with begin(camera, live={"frames": "every"}) as run:
        records = list(settled(run))
    answered = [one for one in frames(records) if one.vlm.status == "ok"]
    assert [one.frame for one in answered] == [21, 30, 40], "max_age_s is two seconds"
    assert all(one.damaged for one in frames(records))


def test_no_secret_is_written_or_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    address = "http://us3rname:Passw0rd@127.0.0.1:9/live?token=T0ken"
    with begin([address], out=tmp_path) as run:
        for record in run:
            if record.event.state == "reconnecting" and record.event.attempt == 2:
                break
        said = repr(run.sources)
    said += caplog.text + "".join(path.read_text() for path in tmp_path.iterdir())
    assert "http://127.0.0.1:9/live?token=***" in said
    assert not [word for word in ("us3rname", "Passw0rd", "T0ken") if word in said]


def test_sources_that_are_mistakes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(VideoError, match="does not exist"):
        begin(str(tmp_path / "absent.mp4"))
    with pytest.raises(InputError, match="no sources"):
        begin([])
    with pytest.raises(InputError, match="two sources are called 'a'"):
        begin(["a=rtsp://x", "a=rtsp://y"])
    with pytest.raises(InputError, match="no GATE"):
        begin("env:GATE")
    with pytest.raises(InputError, match="got float"):
        begin([1.5])


def test_the_consumers_own_error_ends_the_run_cleanly(tmp_path: Path) -> None:
    def fail() -> None:
        with begin(FakeCamera(sessions=[1000], fps=50.0), out=tmp_path, live={"frames": "every"}) as run:
            for record in run:
                1 / (record.frame - 3)

    with pytest.raises(ZeroDivisionError):
        fail()
    assert lines(tmp_path)[-1]["vlm"]["status"] in ("ok", "carried", "pending", "error")
    assert left() == []


def test_a_loop_that_is_left_without_a_with_block_ends_the_run(tmp_path: Path) -> None:
    vlm = Gate()
    for record in begin(FakeCamera(sessions=[1000], fps=50.0), vlm=vlm, out=tmp_path):
        if record.frame >= 3 and record.event is None:
            break
    gc.collect()
    eventually(lambda: not left())
    written = lines(tmp_path)
    assert "stopped before the answer came" in written[-1]["vlm"]["reason"]
    assert vlm.stopped == 1


ABANDONED = """
import sys, hazardlens
from hazardlens.testing import FakeDetector, FakeVlm
from hazardlens.testing.cameras import FakeCamera
camera = FakeCamera(sessions=[1000], fps=50.0)
run = hazardlens.live(
    camera, pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FakeVlm(latency_s=60), out=sys.argv[1]
)
for record in run:
    if record.frame >= 3:
        break
"""


def test_a_program_that_ends_writes_what_was_accepted(tmp_path: Path) -> None:
    run = subprocess.run([sys.executable, "-c", ABANDONED, tmp_path], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    assert "stopped before the answer came" in lines(tmp_path)[-1]["vlm"]["reason"]
    assert json.loads((tmp_path / "status.json").read_text())["running"] is False


def test_a_full_disk_loses_nothing_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hazardlens.outputs.rotating import RotatingLines

    whole = RotatingLines._write
    full = threading.Event()

    def write(self: RotatingLines, data: bytes) -> None:
        if full.is_set():
            raise OSError(28, "No space left on device")
        whole(self, data)

    monkeypatch.setattr(RotatingLines, "_write", write)
    with begin(FakeCamera(sessions=[30], fps=None), vlm=FakeVlm(), out=tmp_path, live={"frames": "every"}) as run:
        records = []
        for record in run:
            records.append(record)
            if record.event is None and record.frame in (5, 20):
                full.set() if record.frame == 5 else full.clear()
            if record.event is None and record.frame == 15:
                told = run.status["files"]["records.jsonl"]
                assert (told["failure"], told["lost"]) == ("No space left on device", 0)
                assert told["waiting"] > 5
    assert lines(tmp_path) == [json.loads(record.to_json()) for record in records]


def test_a_stage_that_stands_still_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(speed=100.0)
    with begin(FakeCamera(sessions=[2], fps=None), clock=clock, live={"stall_s": 5.0}) as run:
        next(run)
        eventually(lambda: run.stages.stalls["the loop that takes the records"])
    assert run.stages.stalls["the loop that takes the records"] == 1, "told once"
    assert "stands still: the loop that takes the records" in caplog.text


def test_nobody_waits_for_the_vlm(tmp_path: Path) -> None:
    """Frames go on while a question is under way, and the answer's own record says how long it took."""
    vlm = Gate()
    with begin(FakeCamera(sessions=[30], fps=100.0), vlm=vlm, live={"frames": "every"}) as run:
        mine = []
        for record in run:
            mine.extend([record] if record.event is None else [])
            if record.event is None and record.frame == 20:
                vlm.free.release(10)
    first_answer = next(one for one in mine if one.vlm.attempts)
    assert next(one.frame for one in mine if one.vlm.status == "pending") == 0
    assert mine.index(first_answer) > 20
    assert first_answer.vlm.latency_s >= 0.1, "twenty frames came meanwhile, a hundred in a second"
