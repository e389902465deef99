"""The lane: every failure becomes a status, nothing is asked beyond its depth, and it closes."""

import threading

import numpy as np
import pytest

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.merge.lane import Lane, answer
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeVlm, FunctionVlm
from hazardlens.vlm.base import Question, Reply, Shown, View, Vlm
from hazardlens.vlm.prompt import show

SCHEMA = FieldSchema.load("hazard")
VALID = '{"notes": "Nothing of note.", "hazard": "none", "severity": "none", "detections": []}'


def question(index: int = 0) -> Question:
    image = np.zeros((8, 8, 3), np.uint8)
    return Question(
        frame=Frame(image=image, index=index, time_s=index / 10, source="x"),
        detections=Detections.empty({0: "person"}),
        asked=0,
        fields=SCHEMA,
        schema=SCHEMA.ground(0),
        context="",
        trigger=("every",),
    )


def raising(error: BaseException) -> FunctionVlm:
    def fail(_: Question) -> str:
        raise error

    return FunctionVlm(fail)


class Ending(Vlm):
    """A VLM whose replies end in a given way."""

    name = "ending"
    enforced = "server"

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        return self._reply


@pytest.mark.parametrize(
    ("vlm", "status", "reason"),
    [
        (FunctionVlm(lambda q: VALID), "ok", None),
        (FakeVlm(), "ok", None),
        (raising(TimeoutError("late")), "timeout", "late"),
        (raising(RuntimeError("out of memory")), "error", "RuntimeError: out of memory"),
        (raising(KeyError("surprise")), "error", "KeyError"),
        (FunctionVlm(lambda q: VALID[:-5]), "invalid", "JSON"),
        (FunctionVlm(lambda q: "```json\n" + VALID + "\n```"), "invalid", "JSON"),
        (FunctionVlm(lambda q: VALID.replace('"severity": "none"', '"severity": "high"')), "invalid", "severity"),
        (FunctionVlm(lambda q: ""), "invalid", "JSON"),
        (Ending(Reply(text=VALID[:20], end="truncated", reason="cut at 5 tokens")), "truncated", "cut at 5 tokens"),
        (Ending(Reply(text="I cannot help with that.", end="refused")), "refused", "refused"),
        (Ending(Reply(text=VALID, end="truncated")), "truncated", "truncated"),
        (Ending(VALID), "error", "expected a Reply"),
        (Ending(Reply(text=None)), "error", "expected a Reply"),
        (Ending(Reply(text=VALID, end="stopped")), "error", "'stopped'"),
        (raising(SystemExit("enough")), "error", "SystemExit"),
    ],
)
def test_what_a_vlm_does_becomes_a_status(vlm: Vlm, status: str, reason: str | None) -> None:
    result = answer(vlm, question(), threading.Event())
    assert result.status == status
    assert (result.fields is not None) == (status == "ok")
    if reason is None:
        assert result.reason is None
    else:
        assert reason in str(result.reason)


def test_a_question_is_shown_as_the_vlm_views_it() -> None:
    vlm = FakeVlm()
    plain = answer(vlm, question(), threading.Event()).shown
    vlm.view = View(longest_side_px=4, describe_fields=False)
    small = answer(vlm, question(), threading.Event()).shown
    assert (plain.image.shape, small.image.shape) == ((8, 8, 3), (4, 4, 3))
    assert len(small.prompt) < len(plain.prompt)


def test_asking_waits_while_the_lane_is_full() -> None:
    gate = threading.Event()
    lane = Lane(FunctionVlm(lambda q: VALID if gate.wait(10) else ""), depth=2)
    futures = [lane.ask(question(0)), lane.ask(question(1))]
    third: list[object] = []
    asking = threading.Thread(target=lambda: third.append(lane.ask(question(2))))
    asking.start()
    asking.join(0.2)
    assert asking.is_alive()
    assert lane.waiting == 2
    gate.set()
    asking.join(10)
    assert not asking.is_alive()
    assert [future.result().status for future in futures] == ["ok", "ok"]
    lane.close()


class Sleeper(Vlm):
    """A VLM that answers only when told to stop, or, if it hangs, not even then."""

    name = "sleeper"
    enforced = "checked"

    def __init__(self, *, hangs: bool = False) -> None:
        self.asked = threading.Event()
        self.release = threading.Event()
        self._hangs = hangs

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        self.asked.set()
        (self.release if self._hangs else stop).wait(60)
        raise TimeoutError("stopped")


def test_closing_stops_the_answer_under_way_and_leaves_no_thread() -> None:
    before = threading.active_count()
    vlm = Sleeper()
    lane = Lane(vlm)
    first, second = lane.ask(question(0)), lane.ask(question(1))
    assert vlm.asked.wait(10)
    lane.close()
    assert first.cancelled()
    assert second.cancelled()
    assert lane.ask(question(2)).cancelled()
    assert threading.active_count() == before


def test_closing_does_not_wait_for_a_vlm_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hazardlens.merge.lane._CLOSE_WAITS_S", 0.05)
    vlm = Sleeper(hangs=True)
    lane = Lane(vlm)
    future = lane.ask(question(0))
    assert vlm.asked.wait(10)
    lane.close()
    assert future.cancelled()
    assert "sleeper does not stop" in caplog.text
    vlm.release.set()


def test_asking_a_closed_lane_that_is_full_does_not_wait() -> None:
    vlm = Sleeper()
    lane = Lane(vlm, depth=1)
    lane.ask(question(0))
    waiting: list[object] = []
    asking = threading.Thread(target=lambda: waiting.append(lane.ask(question(1))))
    asking.start()
    assert vlm.asked.wait(10)
    lane.close()
    asking.join(10)
    assert not asking.is_alive()
    assert waiting[0].cancelled()


def test_closing_one_lane_leaves_the_other_alone() -> None:
    gate = threading.Event()
    vlm = FunctionVlm(lambda q: VALID if gate.wait(10) else "")
    ours, theirs = Lane(vlm), Lane(vlm)
    future = ours.ask(question(0))
    theirs.close()
    gate.set()
    assert future.result(10).status == "ok"
    ours.close()


def test_a_lane_can_be_ended_from_its_own_thread() -> None:
    gate = threading.Event()
    lane = Lane(FunctionVlm(lambda q: VALID if gate.wait(10) else ""))
    own: list[bool] = []

    def finish(_: object) -> None:
        own.append(lane.is_own_thread)
        lane.end()

    future = lane.ask(question(0))
    future.add_done_callback(finish)
    gate.set()
    assert future.result(10).status == "ok"
    for worker in lane._workers:
        worker.join(10)
    assert not any(worker.is_alive() for worker in lane._workers)
    assert own == [True]
    assert not lane.is_own_thread


def test_a_lane_asks_as_many_questions_at_once_as_its_vlm_takes() -> None:
    together = threading.Barrier(3)
    vlm = FunctionVlm(lambda q: VALID if together.wait(10) is not None else "")
    vlm.concurrency = 3
    lane = Lane(vlm)
    futures = [lane.ask(question(index)) for index in range(6)]
    assert lane.waiting <= 6
    assert [future.result(10).status for future in futures] == ["ok"] * 6
    lane.close()
    assert not any(worker.is_alive() for worker in lane._workers)


def test_the_next_pictures_are_made_ready_while_the_vlm_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, busy, ready, asked = threading.Event(), threading.Event(), threading.Event(), list[int]()

    def show_and_tell(one: Question, view: View) -> Shown:
        if one.frame.index == 2:
            ready.set()
        return show(one, view)

    def say(one: Question) -> str:
        asked.append(one.frame.index)
        busy.set()
        return VALID if gate.wait(10) else ""

    monkeypatch.setattr("hazardlens.merge.lane.show", show_and_tell)
    lane = Lane(FunctionVlm(say))
    futures = [lane.ask(question(index)) for index in range(3)]
    assert ready.wait(10)
    assert busy.wait(10)
    assert asked == [0]
    gate.set()
    assert [future.result(10).status for future in futures] == ["ok"] * 3
    assert asked == [0, 1, 2]
    lane.close()


@pytest.mark.parametrize("error", [ValueError("no such picture"), SystemExit("no such picture")])
def test_a_picture_that_cannot_be_made_ready_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def show_some(one: Question, view: View) -> Shown:
        if one.frame.index == 0:
            raise error
        return show(one, view)

    monkeypatch.setattr("hazardlens.merge.lane.show", show_some)
    lane = Lane(FunctionVlm(lambda q: VALID))
    first, second = lane.ask(question(0)).result(10), lane.ask(question(1)).result(10)
    assert (first.status, first.reason) == ("error", f"{type(error).__name__}: no such picture")
    assert (first.fields, second.status) == (None, "ok")
    lane.close()


def test_pictures_of_several_questions_are_made_ready_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3)

    def show_together(one: Question, view: View) -> Shown:
        together.wait(10)
        return show(one, view)

    monkeypatch.setattr("hazardlens.merge.lane.show", show_together)
    vlm = FunctionVlm(lambda q: VALID)
    vlm.concurrency = 3
    lane = Lane(vlm)
    futures = [lane.ask(question(index)) for index in range(3)]
    assert [future.result(10).status for future in futures] == ["ok"] * 3
    lane.close()


def test_closing_while_pictures_are_made_ready_cancels_the_questions_and_ends_the_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def show_late(one: Question, view: View) -> Shown:
        begun.set()
        go_on.wait(10)
        return show(one, view)

    monkeypatch.setattr("hazardlens.merge.lane.show", show_late)
    lane = Lane(FakeVlm())
    futures = [lane.ask(question(index)) for index in range(3)]
    assert begun.wait(10)
    lane.end()
    go_on.set()
    lane.close()
    assert all(future.cancelled() for future in futures)
    assert not any(thread.is_alive() for thread in (*lane._makers, *lane._workers))


@pytest.mark.parametrize("end", ["timeout", "error", "skipped"])
def test_a_reply_that_says_nothing_has_its_status(end: str) -> None:
    result = answer(Ending(Reply(text="", end=end, reason="why", attempts=3)), question(), threading.Event())
    assert (result.status, result.reason, result.attempts, result.fields) == (end, "why", 3, None)
    assert result.reply is not None
    assert result.reply.told is None
