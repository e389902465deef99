"""VLMs that hang, fail or are slow: each is a state, every question has its end, and no frame waits."""

from collections.abc import Callable
from pathlib import Path

import pytest

import hazardlens
from hazardlens.frames.base import Frame
from hazardlens.testing import FakeDetector, FunctionVlm
from hazardlens.testing.cameras import FakeCamera
from hazardlens.testing.video import draw_video
from hazardlens.vlm.base import Question, Vlm
from tests.monitor.test_lane import Gate, eventually
from tests.monitor.test_run import begin, firsts, frames, settled, verdict
from tests.monitor.test_soak import LeapingClock, SoakCamera

FRAMES = 100


def failing(_: Question) -> dict:
    raise RuntimeError("500 Internal Server Error")


def watched(vlm: Vlm, *, live: dict, at_end: Callable[[hazardlens.LiveRun], object]) -> tuple[list, dict]:
    """Ten seconds of one camera at 10 fps with a question each second; the records, and the status before the end."""
    camera = SoakCamera(sessions=[FRAMES])
    settings = {"frames": "every", "buffer": 4, **live}
    with begin(camera, vlm=vlm, clock=LeapingClock(), live=settings) as run:
        records, told = [], {}
        for record in run:
            records.append(record)
            if record.vlm.trigger:
                eventually(lambda: run.lane.calls)
            if record.event is not None and record.event.state == "ended":
                told = run.status
                at_end(run)
    return records, told


def ends(records: list[hazardlens.FrameRecord]) -> list[tuple[str, str | None]]:
    """What became of each question: the last record of each frame that was asked about."""
    last = {one.frame: one for one in frames(records) if one.vlm.trigger}
    return [(one.vlm.status, one.vlm.reason) for one in last.values()]


def nothing_waited(records: list[hazardlens.FrameRecord]) -> None:
    assert [one.frame for one in firsts(records)] == list(range(FRAMES))


def test_a_vlm_that_fails_is_an_error_with_its_reason_and_no_fields() -> None:
    records, told = watched(FunctionVlm(failing), live={}, at_end=lambda run: None)
    nothing_waited(records)
    assert set(ends(records)) <= {
        ("error", "RuntimeError: 500 Internal Server Error"),
        ("skipped", "never asked: a newer question took its place"),
    }
    assert len(ends(records)) == 10
    assert all(one.fields is None for one in frames(records))
    assert told["vlm"]["calls"] >= 1


def test_a_vlm_that_takes_half_a_minute_costs_no_frame() -> None:
    records, _ = watched(FunctionVlm(verdict, latency_s=1.0), live={}, at_end=lambda run: None)
    nothing_waited(records)
    statuses = [status for status, _ in ends(records)]
    assert len(statuses) == 10
    assert statuses[0] == statuses[-1] == "ok", "the first question, and the newest that waited for its end"
    assert statuses.count("ok") + statuses.count("skipped") == 10


@pytest.mark.parametrize("heeds_stop", [True, False])
def test_a_vlm_that_hangs_is_a_timeout_and_then_stands_in_the_status(heeds_stop: bool) -> None:
    vlm = Gate(heeds_stop=heeds_stop)
    release = vlm.free.release
    records, told = watched(vlm, live={"question_timeout_s": 2.0}, at_end=lambda run: release(100))
    nothing_waited(records)
    assert ("timeout", "no answer within 2 s") in ends(records)
    assert len(ends(records)) == 10
    assert all(one.fields is None for one in frames(records))
    if not heeds_stop:
        assert told["vlm"]["state"] == "hangs"
        assert told["vlm"]["held_s"] > 2.0
        assert told["vlm"]["calls"] == 1, "a model must not run twice at once"


class FailsFirst(FunctionVlm):
    """Fails on the first question."""

    def __init__(self) -> None:
        super().__init__(self._first)
        self.asked: list[int] = []

    def _first(self, question: Question) -> dict:
        self.asked.append(question.frame.index)
        return failing(question) if len(self.asked) == 1 else verdict(question)


NEW = {"ask": {"every_s": None, "new_track": ["person"]}}
PERSON = FakeDetector(lambda frame: [("person", 1, 2, 2, 20, 30)])


def test_a_failed_question_about_a_new_track_is_asked_again_live() -> None:
    vlm = FailsFirst()
    with begin(
        FakeCamera(sessions=[30], fps=None), vlm=vlm, detector=PERSON, live={"frames": "every"}, settings=NEW
    ) as run:
        records = list(settled(run))
    assert vlm.asked == [0, 10]
    assert [one.fields is not None for one in firsts(records)] == [False] * 11 + [True] * 19


def test_a_failed_question_about_a_new_track_is_asked_again_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hazardlens.merge.stream._WAITING_FRAMES", 4)
    clip, vlm = draw_video(tmp_path / "clip.mp4", frames=30, rate=10), FailsFirst()
    pipeline = {"schema": "hazard", "max_age_s": 2.0, "detector": {"batch": 1}, **NEW}
    records = list(hazardlens.process(clip, pipeline=pipeline, detector=PERSON, vlm=vlm))
    assert vlm.asked == [0, 10]
    assert [one.fields is not None for one in records] == [False] * 10 + [True] * 20


def test_who_was_in_a_question_that_was_never_asked_is_asked_about_when_it_is_seen_again() -> None:
    def boxes(frame: Frame) -> list:
        seen = {0: 1, 1: 2, 2: 3, 3: 2}
        track = seen.get(frame.index)
        return [] if track is None else [("person", track, 2, 2, 20, 30)]

    vlm, detector = Gate(), FakeDetector(boxes)
    camera = FakeCamera(sessions=[5], fps=None)
    with begin(camera, vlm=vlm, detector=detector, live={"frames": "every"}, settings=NEW) as run:
        records = []
        for record in run:
            records.append(record)
            if record.event is None and record.frame == 0:
                eventually(lambda: vlm.asked)
            if record.event is None and record.frame == 4:
                vlm.free.release(9)
    superseded = [one.frame for one in frames(records) if one.vlm.trigger and one.vlm.status == "skipped"]
    assert superseded == [1, 2]
    assert [frame for _, frame in vlm.asked] == [0, 3]
