"""Alerts as they are written and kept: lines, pictures, videos; and the same for a file and a camera."""

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from PIL import Image

import hazardlens
from hazardlens.alerts.evidence import Evidence, _name
from hazardlens.alerts.kept import Kept
from hazardlens.frames.base import Frame
from hazardlens.frames.file import VideoFile
from hazardlens.pipeline import EvidenceSettings
from hazardlens.resources import data_path
from hazardlens.testing import FakeDetector, FunctionVlm
from hazardlens.testing.cameras import FakeCamera, FakeClock
from hazardlens.testing.video import draw_video, read_number
from hazardlens.vlm.base import Question
from tests.monitor.test_lane import eventually
from tests.outputs.test_board import SCHEMA
from tests.outputs.test_board import outcome as seen

RECORD = jsonschema.Draft202012Validator(json.loads(data_path("schemas", "record.json").read_text(encoding="utf-8")))
RULES = [
    {"name": "fire", "at_least": {"severity": "high"}, "for_answers": 2, "clear_s": 1},
    {"name": "truck", "classes": ["truck"], "zone": "gate", "for_s": 0.5, "clear_s": 1, "cooldown_s": 0},
    {"name": "worker", "scope": "object", "at_least": {"severity": "high"}, "clear_s": 0.5},
]
ZONES = {"gate": {"polygon": [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]}}


def pipeline(**alerts: Any) -> dict:
    return {
        "schema": "hazard",
        "zones": ZONES,
        "ask": {"every_s": 0.5},
        "max_age_s": 2.0,
        "alerts": {"rules": RULES, **alerts},
        "live": {"frames": "every"},
    }


def burning(question: Question) -> dict:
    """Fire from frame 10 to 29; the first person is in it."""
    burns = 10 <= read_number(question.frame.image) < 30
    bad, calm = {"hazard": "fire", "severity": "high"}, {"hazard": "none", "severity": "none"}
    things = [{"id": k, **(bad if burns and k == 0 else calm)} for k in range(question.asked)]
    return {"notes": "What there is to be seen.", **(bad if burns else calm), "detections": things}


def passing(frame: Frame) -> list:
    """Two persons; a truck in the gate from frame 15 to 34."""
    number = read_number(frame.image)
    truck = [("truck", 9, 4.0, 2.0, 24.0, 30.0)] if 15 <= number < 35 else []
    return [("person", 1, 2.0, 2.0, 12.0, 30.0), ("person", 2, 40.0, 2.0, 52.0, 30.0), *truck]


def parts() -> dict:
    return {"detector": FakeDetector(passing), "vlm": FunctionVlm(burning)}


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return draw_video(tmp_path / "clip.mp4", frames=60, rate=10)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


EXPECTED = [
    ("fire-1", "began", 1.5),
    ("worker-1", "began", 1.0),
    ("truck-1", "began", 2.0),
    ("worker-1", "ended", 3.5),
    ("fire-1", "ended", 4.0),
    ("truck-1", "ended", 4.5),
]


def test_a_file_has_its_alerts_with_evidence(clip: Path, tmp_path: Path) -> None:
    heard: list[dict] = []
    run = hazardlens.process(
        clip,
        pipeline=pipeline(evidence={"before_s": 1, "after_s": 1}),
        out=tmp_path / "out",
        on_alert=heard.append,
        **parts(),
    )
    records = list(run)
    folder = tmp_path / "out" / "clip"
    for line in lines(folder / "records.jsonl"):
        assert list(RECORD.iter_errors(line)) == []
    told = lines(folder / "alerts.jsonl")
    assert heard == told
    assert sorted((one["id"], one["state"], round(one["time_s"], 3)) for one in told) == sorted(EXPECTED)
    in_records = [{**alert} for record in records for alert in record.alerts]
    assert [{key: value for key, value in one.items() if key != "evidence"} for one in told] == in_records
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["alerts"] == {"fire": 1, "worker": 1, "truck": 1}
    for alert in told:
        assert (alert["evidence"] is not None) == (alert["state"] == "began")
        if alert["evidence"] is None:
            continue
        with Image.open(folder / alert["evidence"]["picture"]) as picture:
            assert picture.size == (64, 48)
        with VideoFile(folder / alert["evidence"]["video"]) as video:
            numbers = [read_number(frame.image) for frame in video]
        at = round(alert["time_s"] * 10)
        assert numbers == list(range(at - 10, at + 11))
    assert {path.suffix for path in (folder / "evidence").iterdir()} == {".jpg", ".mp4"}


def test_the_same_clip_as_a_file_and_as_a_live_source_gives_the_same_alerts(clip: Path, tmp_path: Path) -> None:
    list(hazardlens.process(clip, pipeline=pipeline(), out=tmp_path / "out", **parts()))
    with hazardlens.live(
        clip, pipeline=pipeline(), out=tmp_path / "live", clock=FakeClock(speed=20.0), **parts()
    ) as run:
        for _ in run:
            eventually(lambda: run.lane is not None and run.lane.is_idle)
    as_file, as_live = (lines(place / "alerts.jsonl") for place in (tmp_path / "out" / "clip", tmp_path / "live"))
    varying = ("at", "evidence")
    plain = [
        sorted(({k: v for k, v in one.items() if k not in varying} for one in told), key=json.dumps)
        for told in (as_file, as_live)
    ]
    assert plain[0] == plain[1]
    assert len(plain[0]) == len(EXPECTED)
    assert all(one["at"] is not None for one in as_live)
    for alert in as_live:
        if alert["evidence"] is not None:
            files = [tmp_path / "live" / name for name in alert["evidence"].values()]
            eventually(lambda files=files: all(file.is_file() and file.stat().st_size > 0 for file in files))


def test_an_alert_under_way_ends_with_the_source_and_with_a_stop(clip: Path, tmp_path: Path) -> None:
    short = draw_video(tmp_path / "short.mp4", frames=25, rate=10)
    list(hazardlens.process(short, pipeline=pipeline(), out=tmp_path / "out", **parts()))
    ended = [one for one in lines(tmp_path / "out" / "short" / "alerts.jsonl") if one["state"] == "ended"]
    assert {(one["id"], one["why"], one["time_s"]) for one in ended} == {
        (name, "the video ended", 2.4) for name in ("fire-1", "worker-1", "truck-1")
    }
    with hazardlens.live(
        clip, pipeline=pipeline(), out=tmp_path / "live", clock=FakeClock(speed=20.0), **parts()
    ) as run:
        for record in run:
            eventually(lambda: run.lane is not None and run.lane.is_idle)
            if record.frame == 24 and record.event is None:
                break
    ended = [one for one in lines(tmp_path / "live" / "alerts.jsonl") if one["state"] == "ended"]
    assert {one["why"] for one in ended} == {"the run was stopped"}
    assert len(ended) == 3


def test_alerts_of_a_source_that_has_ended_end_while_the_others_go_on(tmp_path: Path) -> None:
    short = draw_video(tmp_path / "short.mp4", frames=25, rate=10)
    other = FakeCamera("other", sessions=["absent"] * 10_000)
    heard: list[dict] = []
    with hazardlens.live(
        [short, other], pipeline=pipeline(), clock=FakeClock(speed=20.0), on_alert=heard.append, **parts()
    ) as run:
        for _ in run:
            eventually(lambda: run.lane is not None and run.lane.is_idle)
            if len([one for one in heard if one["state"] == "ended"]) == 3:
                break
        assert run.sources[1].reader.state != "ended"
    assert {one["why"] for one in heard if one["state"] == "ended"} == {"the source ended"}


def test_a_date_that_goes_back_deletes_no_evidence_that_was_just_kept(tmp_path: Path) -> None:
    def kept() -> list[str]:
        return sorted(path.stem[-1] for path in tmp_path.glob("*.jpg"))

    future = time.time() + 1e6
    for run in range(2):
        settings = {"settings": EvidenceSettings(), "schema": SCHEMA, "pipeline": hazardlens.Pipeline.load({})}
        evidence = Evidence(tmp_path, keep=2, **settings)
        for number in range(4 * run, 4 * run + 4):
            alert = {"source": "gate", "id": f"fire-{number}", "time_s": 1.0, "at": None}
            (name, _) = evidence.begin(alert, seen(1.0)).values()
            future -= 100
            os.utime(tmp_path / name, (future, future))
            assert str(number) in kept()
        assert kept() == [str(4 * run + 2), str(4 * run + 3)]


def test_names_that_are_cut_or_have_odd_letters_stay_apart() -> None:
    def name(source: str, number: int = 1) -> str:
        return _name({"source": source, "id": f"fire-{number}", "at": "2026-11-30T15:18:04.120Z"})

    assert name("gate") == "20261130T151804.120Z-gate-fire-1"
    long = "north-" * 20
    alike = [name(long), name(long, 2), name(long + "x"), name("a/b"), name("a_b"), name("a b"), name("rtsp://h/1")]
    assert len(set(alike)) == len(alike)
    assert max(map(len, alike)) <= len("20261130T151804.120Z-") + 80


def test_videos_that_a_killed_run_left_half_made_are_finished_or_deleted(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "evidence"
    folder.mkdir()
    shutil.copy(clip, folder / "plays.mp4.part")
    (folder / "empty.mp4.part").write_bytes(b"")
    (folder / "broken.mp4.part").write_bytes(clip.read_bytes()[:40])
    Kept(folder, None)
    assert [path.name for path in folder.iterdir()] == ["plays.mp4"]
    with VideoFile(folder / "plays.mp4") as video:
        assert len(list(video)) == 60


def test_a_video_without_its_picture_counts_and_one_made_too_late_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "old.mp4").write_bytes(b"video")
    kept = Kept(tmp_path, 2)
    for name in ("first", "second"):
        kept.add(name)
    assert list(tmp_path.iterdir()) == []
    kept.part("first").write_bytes(b"video")
    kept.add("third")
    kept.part("third").write_bytes(b"video")
    for name in ("first", "third"):
        kept.finish(name, whole=True)
    assert [path.name for path in tmp_path.iterdir()] == ["third.mp4"]


@pytest.mark.parametrize(
    ("where", "what"), [(Evidence, "see"), (Evidence, "begin"), (Kept, "add"), (Evidence, "close")]
)
def test_evidence_that_fails_costs_no_alert(
    where: type,
    what: str,
    clip: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    close = Evidence.close

    def fail(evidence: Evidence, *given: Any) -> None:
        if what == "close":  # or its thread would be left behind
            close(evidence, *given)
        raise ZeroDivisionError(what)

    monkeypatch.setattr(where, what, fail)
    list(hazardlens.process(clip, pipeline=pipeline(), out=tmp_path, **parts()))
    told = lines(tmp_path / "clip" / "alerts.jsonl")
    assert sorted((one["id"], one["state"], round(one["time_s"], 3)) for one in told) == sorted(EXPECTED)
    assert f"ZeroDivisionError: {what}" in caplog.text


def test_a_second_run_over_a_file_leaves_no_evidence_of_the_first(clip: Path, tmp_path: Path) -> None:
    first = hazardlens.process(clip, pipeline=pipeline(), out=tmp_path, **parts())
    list(first)
    assert list((tmp_path / "clip" / "evidence").iterdir())
    calm = {"detector": FakeDetector(lambda frame: []), "vlm": "none"}
    list(hazardlens.process(clip, pipeline=pipeline(), out=tmp_path, if_exists="overwrite", **calm))
    assert list((tmp_path / "clip" / "evidence").iterdir()) == []
    assert (tmp_path / "clip" / "alerts.jsonl").read_bytes() == b""


def test_without_evidence_there_is_none_and_whoever_hears_may_fail(
    clip: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def deaf(alert: dict) -> None:
        raise ValueError(alert["id"])

    run = hazardlens.process(clip, pipeline=pipeline(evidence=None), out=tmp_path, on_alert=deaf, **parts())
    assert len(list(run)) == 60
    assert not (tmp_path / "clip" / "evidence").exists()
    assert len(lines(tmp_path / "clip" / "alerts.jsonl")) == 6
    assert "on_alert: ValueError: fire-1" in caplog.text


def test_a_callable_without_rules_is_warned_of(clip: Path, caplog: pytest.LogCaptureFixture) -> None:
    list(hazardlens.process(clip, pipeline={"schema": "hazard"}, on_alert=print, **parts()))
    assert "never called" in caplog.text


def test_only_the_newest_evidence_is_kept(tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=90, rate=10)
    rules = [{"name": "person", "classes": ["person"], "clear_s": 0.2, "cooldown_s": 0}]
    settings = {**pipeline(), "alerts": {"rules": rules, "evidence": {"before_s": 0.2, "after_s": 0.2}}}
    settings["live"] = {"frames": "every", "keep_evidence": 3}

    def coming_and_going(frame: Frame) -> list:
        return passing(frame)[:1] if read_number(frame.image) % 10 < 5 else []

    with hazardlens.live(
        clip,
        pipeline=settings,
        out=tmp_path,
        clock=FakeClock(speed=20.0),
        detector=FakeDetector(coming_and_going),
        vlm="none",
    ) as run:
        list(run)
    told = lines(tmp_path / "alerts.jsonl")
    assert sum(one["state"] == "began" for one in told) == 9
    pictures = sorted(path.name for path in (tmp_path / "evidence").glob("*.jpg"))
    newest = [Path(one["evidence"]["picture"]).name for one in told if one["state"] == "began"][-3:]
    assert pictures == sorted(newest)
