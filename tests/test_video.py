"""A video in, records out: through the whole of the product, with fakes for detector and VLM."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import jsonschema
import pytest
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

import hazardlens
from hazardlens.errors import DetectionError, OutputExistsError, SchemaError, VideoError
from hazardlens.frames.base import Frame
from hazardlens.frames.file import VideoFile
from hazardlens.resources import data_path
from hazardlens.testing import FakeDetector, FakeVlm, FunctionVlm
from hazardlens.testing.video import damage, draw_video, number_image, read_number, truncate
from hazardlens.vlm.base import Question

RECORD = jsonschema.Draft202012Validator(json.loads(data_path("schemas", "record.json").read_text(encoding="utf-8")))
ROOT = Path(__file__).parent.parent


def read_records(folder: Path) -> list[dict]:
    lines = (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    for record in records:
        assert list(RECORD.iter_errors(record)) == []
    return records


def read_summary(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text(encoding="utf-8"))


def verdict(question: Question) -> dict:
    """A hazard that tells the number of the frame that was seen."""
    number = read_number(question.frame.image)
    return {
        "notes": f"This is frame {number}.",
        "hazard": "spill",
        "severity": "low",
        "detections": [{"id": i, "hazard": "spill", "severity": "low"} for i in range(question.asked)],
    }


def two_walkers(frame: Frame) -> list:
    return [("person", 1, 2.0, 2.0, 12.0, 30.0), ("person", 2, 30.0, 2.0, 42.0, 30.0)]


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return draw_video(tmp_path / "clip.mp4", frames=50, rate=10)


def run(clip: Path, **arguments) -> list[hazardlens.FrameRecord]:
    settings = {"schema": "hazard", "max_age_s": 2.0, **arguments.pop("settings", {})}
    chosen = {"detector": FakeDetector(two_walkers), "vlm": FunctionVlm(verdict), **arguments}
    return list(hazardlens.process(clip, pipeline=settings, **chosen))


def test_one_record_per_frame_and_every_asked_frame_has_its_own_answer(clip: Path, tmp_path: Path) -> None:
    records = run(clip, out=tmp_path / "out")
    written = read_records(tmp_path / "out" / "clip")
    assert written == [json.loads(record.to_json()) for record in records]
    assert [record["frame"] for record in written] == list(range(50))
    assert [record["time_s"] for record in written] == pytest.approx([k / 10 for k in range(50)], abs=1e-9)
    for record in written:
        second = record["frame"] // 10
        assert record["vlm"]["status"] == ("ok" if record["frame"] % 10 == 0 else "carried")
        assert record["vlm"]["frame"] == second * 10
        assert record["fields"]["notes"] == f"This is frame {second * 10}."
        assert record["vlm"]["age_s"] == pytest.approx(record["time_s"] - second, abs=1e-6)
        assert [entry["fields"]["hazard"] for entry in record["detections"]] == ["spill", "spill"]


@pytest.mark.parametrize("demo", [True, False])
def test_what_demo_models_made_says_so(tmp_path: Path, demo: bool) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=3, rate=10, size_wh=(320, 240))
    vlm = FunctionVlm(verdict)
    vlm.demo = demo
    picture = tmp_path / "still.png"
    Image.fromarray(number_image(3, (320, 240))).save(picture)
    for source, made in ((clip, "annotated.mp4"), (picture, "annotated.jpg")):
        records = run(source, vlm=vlm, out=tmp_path / "out")
        folder = tmp_path / "out" / source.stem
        assert read_summary(folder)["demo"] is demo
        assert read_records(folder) == [json.loads(record.to_json()) for record in records]
        with VideoFile(folder / made) as video:
            corner = next(iter(video)).image[:8, -8:].astype(int)
        blue = (corner[..., 0] > corner[..., 2] + 60).mean() > 0.5
        assert blue == demo


def test_the_annotated_video_has_every_frame_at_its_time(clip: Path, tmp_path: Path) -> None:
    run(clip, out=tmp_path / "out")
    with VideoFile(tmp_path / "out" / "clip" / "annotated.mp4") as video:
        times = [frame.time_s for frame in video]
    assert times == pytest.approx([k / 10 for k in range(50)], abs=1e-4)


def test_a_slow_vlm_gets_every_asked_frame_and_memory_stays_bounded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("hazardlens.merge.stream._WAITING_FRAMES", 12)
    clip = draw_video(tmp_path / "clip.mp4", frames=120, rate=10)
    held = []

    class Watched(FakeDetector):
        def detect(self, frames, *, stream=None):
            held.append(len(process._work.stream._waiting))
            return super().detect(frames, stream=stream)

    process = hazardlens.process(
        clip, pipeline={"schema": "hazard", "ask": {"every_s": 0.5}}, detector=Watched(), vlm=FakeVlm(latency_s=0.05)
    )
    records = list(process)
    assert [r.frame for r in records if r.vlm.status == "ok"] == list(range(0, 120, 5))
    assert max(held) <= 13


def cancel(question: Question) -> dict:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (lambda q: 1 / 0, "error"),
        (lambda q: "{}", "invalid"),
        (lambda q: '{"notes": "All is well.", "hazard": "none"', "invalid"),
        (lambda q: "All is well, no hazard.", "invalid"),
        (cancel, "error"),
    ],
)
def test_a_failure_is_never_no_hazard(clip: Path, tmp_path: Path, answer: Callable, status: str) -> None:
    run(clip, vlm=FunctionVlm(answer), out=tmp_path / "out")
    for record in read_records(tmp_path / "out" / "clip"):
        assert record["vlm"]["status"] == (status if record["frame"] % 10 == 0 else "skipped")
        assert status in str(record["vlm"]["reason"]) or record["frame"] % 10 == 0
        assert record["fields"] is None
        assert all(entry["fields"] is None for entry in record["detections"])
    summary = read_summary(tmp_path / "out" / "clip")
    assert summary["questions"]["by_status"] == {status: 5}
    assert all(stretch["fields"] is None for stretch in summary["timeline"])


def test_fields_go_stale_after_max_age(clip: Path) -> None:
    records = run(clip, settings={"ask": {"every_s": 3.0}, "max_age_s": 1.0})
    assert [r.vlm.status for r in records[:30]] == ["ok"] + ["carried"] * 10 + ["stale"] * 19
    assert all(r.fields is None for r in records[11:30])


def test_without_a_vlm_there_are_detections_and_no_fields(clip: Path) -> None:
    records = run(clip, vlm="none")
    assert {(r.vlm.status, r.vlm.reason, r.fields) for r in records} == {("skipped", "no VLM", None)}
    assert {len(r.detections) for r in records} == {2}


@pytest.mark.parametrize("count", [0, 100])
def test_frames_with_no_detections_and_with_a_hundred_are_ordinary(clip: Path, tmp_path: Path, count: int) -> None:
    crowd = FakeDetector(lambda frame: [("person", k, 1.0, 1.0, 9.0, 9.0 + k % 7) for k in range(count)])
    run(clip, detector=crowd, vlm=FakeVlm(), out=tmp_path / "out", settings={"max_objects": 100})
    for record in read_records(tmp_path / "out" / "clip"):
        assert len(record["detections"]) == count
        assert sum(entry["fields"] is not None for entry in record["detections"]) == count


def test_beyond_max_objects_nobody_is_asked_about_and_has_no_fields(clip: Path) -> None:
    crowd = FakeDetector(lambda frame: [("person", k, 1.0, 1.0, 9.0, 9.0 + k) for k in range(30)])
    first = run(clip, detector=crowd, vlm=FakeVlm())[0]
    assert [entry.asked for entry in first.detections] == [True] * 20 + [False] * 10
    assert [entry.fields is None for entry in first.detections] == [False] * 20 + [True] * 10
    assert [entry.id for entry in first.detections] == list(range(30))


def test_rules_leave_their_trace_beside_the_raw_answer(clip: Path, tmp_path: Path) -> None:
    rule = {
        "name": "spills_are_serious",
        "kind": "escalate",
        "when": {"hazard": ["spill"]},
        "set": {"severity": "high"},
    }
    run(clip, settings={"rules": [rule]}, out=tmp_path / "out")
    first = read_records(tmp_path / "out" / "clip")[0]
    assert first["fields"]["severity"] == "high"
    assert json.loads(first["vlm"]["raw"])["severity"] == "low"
    (trace,) = first["rules"]
    assert (trace["name"], trace["field"], trace["before"], trace["after"]) == (
        "spills_are_serious",
        "/fields/severity",
        "low",
        "high",
    )
    assert trace["why"]


def test_the_account_tells_of_a_cut_file(tmp_path: Path) -> None:
    clip = draw_video(
        tmp_path / "cut.mp4", frames=100, rate=10, size_wh=(320, 240), container_options={"movflags": "faststart"}
    )
    truncate(clip, 0.6)
    records = run(clip, out=tmp_path / "out")
    frames = read_summary(tmp_path / "out" / "cut")["frames"]
    assert frames["expected"] == 100
    assert frames["ended_early"]
    assert 10 < frames["read"] == frames["records"] == len(records) < 100


def test_a_damaged_file_goes_on_behind_the_damage(tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "bad.mp4", frames=100, rate=10, size_wh=(320, 240))
    damage(clip)
    records = run(clip, out=tmp_path / "out")
    assert records[-1].time_s > 8
    frames = read_summary(tmp_path / "out" / "bad")["frames"]
    assert frames["read"] == len(records)
    assert frames["unreadable"] + frames["damaged"] > 0 or frames["read"] < 100


def test_a_picture_is_a_video_of_one_frame(tmp_path: Path) -> None:
    Image.fromarray(number_image(7)).save(tmp_path / "one.png")
    (record,) = run(tmp_path / "one.png", out=tmp_path / "out")
    assert (record.frame, record.time_s, record.vlm.status) == (0, 0.0, "ok")
    assert read_summary(tmp_path / "out" / "one")["complete"]


@pytest.mark.parametrize("name", ["with space.mp4", 'it\'s "quoted".mp4', "площадка-工地.mp4", "100%.mp4", "a[1].mp4"])
def test_names_are_kept_as_they_are(tmp_path: Path, name: str) -> None:
    clip = draw_video(tmp_path / name, frames=3, rate=10)
    run(clip, out=tmp_path / "out")
    assert read_records(tmp_path / "out" / Path(name).stem)[0]["source"] == name


def test_names_and_answers_that_are_not_utf_8_lose_nothing(tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "plain.mp4", frames=3, rate=10)
    odd = clip.rename(tmp_path / os.fsdecode(b"caf\xe9.mp4"))
    run(odd, vlm=FunctionVlm(lambda q: '{"notes": "\ud800"}'), out=tmp_path / "out", trace=tmp_path / "trace")
    (folder,) = (tmp_path / "out").iterdir()
    records = read_records(folder)
    assert len(records) == 3
    assert records[0]["source"] == "caf\\udce9.mp4"
    assert records[0]["vlm"]["status"] == "invalid"


class Odd(BaseModel):
    """An optional choice, a choice of numbers, and a choice that means something else for an object."""

    model_config = ConfigDict(extra="forbid")

    class Item(BaseModel):
        """One object."""

        model_config = ConfigDict(extra="forbid")
        id: int = Field(ge=0, le=100)
        severity: Literal["minor", "major"]

    level: Literal[1, 2, 3]
    severity: Literal["low", "high"] | None
    detections: list[Item] = Field(max_length=20)


def test_a_pydantic_class_with_optional_numeric_and_differing_choices(clip: Path, tmp_path: Path) -> None:
    def answer(question: Question) -> dict:
        items = [{"id": i, "severity": "major"} for i in range(question.asked)]
        return {"level": 2, "severity": None, "detections": items}

    run(clip, schema=Odd, vlm=FunctionVlm(answer), out=tmp_path / "out")
    first = read_records(tmp_path / "out" / "clip")[0]
    assert first["fields"] == {"level": 2, "severity": None}
    assert [entry["fields"] for entry in first["detections"]] == [{"severity": "major"}] * 2


def test_a_detector_that_fails_in_an_unforeseen_way_loses_no_finished_frame(clip: Path, tmp_path: Path) -> None:
    def boxes(frame: Frame) -> list:
        return [][frame.index - 19] if frame.index == 20 else []

    with pytest.raises(IndexError):
        run(clip, detector=FakeDetector(boxes), settings={"detector": {"batch": 1}}, out=tmp_path / "out")
    assert [r["frame"] for r in read_records(tmp_path / "out" / "clip")] == list(range(20))


def test_bad_input_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(VideoError, match=r"text\.mp4"):
        run(tmp_path / "text.mp4", out=tmp_path / "out")
    clip = draw_video(tmp_path / "clip.mp4", frames=3, rate=10)
    with pytest.raises(SchemaError):
        run(clip, schema={"type": "object", "properties": {"notes": {"type": "strin"}}}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_results_are_not_replaced_unless_asked_for(clip: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(clip, out=out)
    before = (out / "clip" / "records.jsonl").read_bytes()
    for arguments in ({}, {"if_exists": "resume"}):
        with pytest.raises(OutputExistsError, match="--overwrite"):
            run(clip, out=out, vlm="none", **arguments)
    assert (out / "clip" / "records.jsonl").read_bytes() == before
    run(clip, out=out, vlm="none", if_exists="overwrite")
    assert (out / "clip" / "records.jsonl").read_bytes() != before


def test_resuming_redoes_what_was_not_finished(clip: Path, tmp_path: Path) -> None:
    with hazardlens.process(
        clip, pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FakeVlm(), out=tmp_path / "out"
    ) as process:
        next(process)
    assert not read_summary(tmp_path / "out" / "clip")["complete"]
    run(clip, out=tmp_path / "out", if_exists="resume")
    assert len(read_records(tmp_path / "out" / "clip")) == 50
    assert read_summary(tmp_path / "out" / "clip")["complete"]


def test_leaving_early_keeps_whole_lines_and_a_playable_video_and_leaves_no_thread(clip: Path, tmp_path: Path) -> None:
    before = threading.active_count()
    with hazardlens.process(
        clip, pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FakeVlm(), out=tmp_path / "out"
    ) as process:
        for record in process:
            if record.frame == 20:
                break
    assert threading.active_count() == before
    assert [r["frame"] for r in read_records(tmp_path / "out" / "clip")] == list(range(21))
    with VideoFile(tmp_path / "out" / "clip" / "annotated.mp4") as video:
        assert sum(1 for _ in video) == 21
    assert list(process) == []


def test_a_detector_that_fails_ends_the_run_with_what_was_done(clip: Path, tmp_path: Path) -> None:
    def boxes(frame: Frame) -> list:
        if frame.index == 20:
            raise DetectionError("out of memory on frame 20")
        return []

    with pytest.raises(DetectionError, match="frame 20"):
        run(clip, detector=FakeDetector(boxes), out=tmp_path / "out")
    assert [r["frame"] for r in read_records(tmp_path / "out" / "clip")] == list(range(20))
    summary = read_summary(tmp_path / "out" / "clip")
    assert not summary["complete"]
    assert "out of memory" in summary["reason"]


def test_the_trace_holds_picture_prompt_and_answer_of_every_question(clip: Path, tmp_path: Path) -> None:
    run(clip, trace=tmp_path / "trace")
    (folder,) = (tmp_path / "trace").iterdir()
    assert folder.name.startswith("clip-")
    said = sorted(folder.glob("*.answer.json"))
    assert [path.name[:12] for path in said] == [f"frame_{k:06d}" for k in range(0, 50, 10)]
    answer = json.loads(said[1].read_text(encoding="utf-8"))
    assert (answer["frame"], answer["status"], answer["trigger"]) == (10, "ok", ["every"])
    assert "This is frame 10." in answer["raw"]
    assert "person" in (folder / "frame_000010.prompt.txt").read_text(encoding="utf-8")
    assert read_number(_bgr(folder / "frame_000010.png")) == 10


def _bgr(path: Path):
    import numpy as np

    return np.asarray(Image.open(path))[:, :, ::-1]


SLOW = """
import sys
from pathlib import Path
import hazardlens, time
from hazardlens.testing import FakeDetector, FakeVlm
class Slow(FakeDetector):
    def detect(self, frames, *, stream=None):
        time.sleep(0.02)
        return super().detect(frames, stream=stream)
run = hazardlens.process(sys.argv[1], pipeline={"schema": "hazard"}, detector=Slow(), vlm=FakeVlm(), out=sys.argv[2])
for record in run:
    print(record.frame, flush=True)
"""


def test_a_run_that_nobody_holds_any_more_is_ended(clip: Path, tmp_path: Path) -> None:
    before = threading.active_count()
    for record in hazardlens.process(
        clip, pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FakeVlm(), out=tmp_path / "out"
    ):
        if record.frame == 10:
            break
    gc.collect()
    assert threading.active_count() == before
    assert [r["frame"] for r in read_records(tmp_path / "out" / "clip")] == list(range(11))
    assert read_summary(tmp_path / "out" / "clip")["reason"] == "ended before the video did"


def test_a_run_that_the_collector_finds_in_another_thread_is_ended(clip: Path, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    held = [
        hazardlens.process(
            clip, pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FakeVlm(), out=tmp_path / "out"
        )
    ]
    next(held[0])
    dropping = threading.Thread(target=held.clear)
    dropping.start()
    dropping.join()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive(), thread
    assert read_summary(tmp_path / "out" / "clip")["reason"] == "ended before the video did"


def test_a_run_that_cannot_be_started_leaves_nothing_open(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("hazardlens.merge.stream.Lane", fail)
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="new thread") as caught:
        run(clip, out=tmp_path / "out")
    assert threading.active_count() == before, caught
    assert read_summary(tmp_path / "out" / "clip")["reason"] == "could not be started"


def test_a_run_may_be_closed_from_another_thread(clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hazardlens.merge.lane._CLOSE_WAITS_S", 0.05)
    asked, release = threading.Event(), threading.Event()

    def answer(question: Question) -> dict:
        asked.set()
        assert release.wait(60)
        return verdict(question)

    process = hazardlens.process(
        clip, pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FunctionVlm(answer), out=tmp_path / "out"
    )
    records: list[hazardlens.FrameRecord] = []
    reading = threading.Thread(target=lambda: records.extend(process))
    reading.start()
    assert asked.wait(60)
    closing = threading.Thread(target=process.close)
    closing.start()
    reading.join(60)
    assert not reading.is_alive()
    release.set()
    closing.join(60)
    assert not closing.is_alive()
    assert read_summary(tmp_path / "out" / "clip")["reason"] == "ended before the video did"


def fail_in_the_loop(run: hazardlens.VideoRun) -> None:
    with run:
        for record in run:
            raise KeyError(record.frame)


def test_an_error_in_the_users_loop_is_the_reason(clip: Path, tmp_path: Path) -> None:
    process = hazardlens.process(
        clip, pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FakeVlm(), out=tmp_path / "out"
    )
    with pytest.raises(KeyError):
        fail_in_the_loop(process)
    assert read_summary(tmp_path / "out" / "clip")["reason"] == "KeyError: 0"


LIMITED = """
import resource, signal, sys
import hazardlens
from hazardlens.testing import FakeDetector, FakeVlm
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    list(hazardlens.process(
        sys.argv[1], pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FakeVlm(), out=sys.argv[2]))
except hazardlens.OutputError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("limit_bytes", [60_000, 200_000])
def test_a_full_disk_leaves_whole_lines_and_a_playable_video(tmp_path: Path, limit_bytes: int) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=600, rate=10, size_wh=(320, 240))
    command = [sys.executable, "-c", LIMITED, clip, tmp_path / "out", str(limit_bytes)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 1
    assert str(tmp_path / "out") in run.stderr
    records = read_records(tmp_path / "out" / "clip")
    assert [record["frame"] for record in records] == list(range(len(records)))
    assert 20 < len(records) < 600
    with VideoFile(tmp_path / "out" / "clip" / "annotated.mp4") as video:
        assert sum(1 for _ in video) > 20
    assert not read_summary(tmp_path / "out" / "clip")["complete"]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_runs_leave_whole_lines_and_a_playable_video(tmp_path: Path, ending: signal.Signals) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=2000, rate=20)
    child = subprocess.Popen(
        [sys.executable, "-c", SLOW, clip, tmp_path / "out"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 150:
            break
    os.kill(child.pid, ending)
    child.stdout.close()
    assert child.wait(30) != 0
    text = (tmp_path / "out" / "clip" / "records.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.split("\n") if line]
    assert text.endswith("\n")
    assert [record["frame"] for record in records] == list(range(len(records)))
    assert len(records) >= 150
    with VideoFile(tmp_path / "out" / "clip" / "annotated.mp4") as video:
        shown = sum(1 for _ in video)
    if ending == signal.SIGINT:
        # The signal may fall between a frame's record and its picture.
        assert shown in (len(records) - 1, len(records))
        assert not read_summary(tmp_path / "out" / "clip")["complete"]
    else:
        assert shown > 20


def test_each_run_is_a_stream_of_its_own_and_is_forgotten(clip: Path, tmp_path: Path) -> None:
    seen, forgotten = [], []

    class Remembering(FakeDetector):
        def detect(self, frames, *, stream=None):
            seen.append(stream)
            return super().detect(frames, stream=stream)

        def forget(self, stream) -> None:
            forgotten.append(stream)

    detector = Remembering()
    run(clip, detector=detector)
    run(clip, detector=detector)
    assert len(set(seen)) == 2
    assert set(forgotten) == set(seen)
    Image.fromarray(number_image(7)).save(tmp_path / "one.png")
    run(tmp_path / "one.png", detector=detector)
    assert seen[-1] is None


def test_answers_do_not_hold_up_the_frames_before_them(clip: Path) -> None:
    """The first record comes while the second question is still being answered."""
    gate = threading.Event()

    def answer(question: Question) -> dict:
        if question.frame.index == 10:
            gate.wait(10)
        return verdict(question)

    with hazardlens.process(
        clip, pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FunctionVlm(answer)
    ) as process:
        firsts = [next(process).frame for _ in range(10)]
        assert firsts == list(range(10))
        gate.set()
        assert next(process).frame == 10
