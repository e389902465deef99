"""The live lane: the newest wins, each has its turn, limits hold, a VLM that hangs is told and nothing is lost."""

import threading
import time
from collections.abc import Callable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hazardlens.cameras.clock import Clock
from hazardlens.monitor.lane import LiveLane
from hazardlens.monitor.pace import Pace
from hazardlens.pipeline import LiveSettings
from hazardlens.testing import FunctionVlm
from hazardlens.testing.cameras import FakeClock
from hazardlens.vlm.base import Answer, Question, Reply, Shown, Vlm
from tests.merge.test_lane import VALID, question


class Gate(Vlm):
    """A VLM that answers once it is let."""

    name = "gate"
    enforced = "checked"

    def __init__(self, *, heeds_stop: bool = True) -> None:
        self.asked: list[tuple[float, int]] = []
        self.free = threading.Semaphore(0)
        self._heeds_stop = heeds_stop
        self.stopped = 0
        self.clock: Clock = Clock()

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        self.asked.append((self.clock.now(), question.frame.index))
        while not self.free.acquire(timeout=0.01):
            if stop.is_set() and self._heeds_stop:
                self.stopped += 1
                raise TimeoutError("stopped")
        return Reply(text=VALID)


class HandClock(Clock):
    """A clock that stands until it is moved."""

    time_s = 0.0

    def now(self) -> float:
        return self.time_s


def eventually(holds: Callable[[], object], seconds: float = 10) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.005)


def lane(vlm: Vlm, clock: Clock | None = None, **settings: object) -> LiveLane:
    return LiveLane(vlm, settings=LiveSettings(**settings), clock=clock or Clock(), changed=threading.Condition())


def taken(one: LiveLane, count: int) -> list[tuple[str, int, Answer]]:
    came: list[tuple[str, int, Answer]] = []

    def more() -> bool:
        answer = one.take_answer()
        if answer is not None:
            came.append((answer[0], answer[1].frame.index, answer[2]))
        return len(came) >= count

    eventually(more)
    return came


def test_the_newest_question_of_a_source_wins_and_the_other_is_named() -> None:
    vlm = Gate()
    one = lane(vlm)
    first, second, third = question(1), question(2), question(3)
    assert one.offer("a", first) is None
    eventually(lambda: vlm.asked)
    assert one.oldest("a") is first
    assert one.offer("a", second) is None
    assert one.offer("a", third) is second
    assert one.under_way == 2
    vlm.free.release(2)
    assert [(source, frame) for source, frame, _ in taken(one, 2)] == [("a", 1), ("a", 3)]
    assert one.under_way == 0
    one.stop()


def test_each_source_has_its_turn_however_often_another_one_asks() -> None:
    vlm = Gate()
    one = lane(vlm)
    one.offer("loud", question(0))
    eventually(lambda: vlm.asked)
    for number in range(1, 7):
        one.offer("loud", question(number))
        if number < 4:
            one.offer("quiet", question(100 + number))
            one.offer("third", question(200 + number))
        vlm.free.release()
        eventually(lambda number=number: len(vlm.asked) == number + 1)
    vlm.free.release()
    order = [source for source, _, _ in taken(one, 7)]
    assert order[:4] == ["loud", "quiet", "third", "loud"]
    assert set(order[1:4]) == {"loud", "quiet", "third"}
    one.stop()


def test_the_lane_keeps_its_pace() -> None:
    clock = FakeClock(speed=20.0)
    vlm = Gate()
    vlm.free.release(10)
    one = lane(vlm, clock, question_gap_s=2.0)
    began = clock.now()
    for source in ("a", "b", "c"):
        one.offer(source, question())
    assert [answer.status for _, _, answer in taken(one, 3)] == ["ok"] * 3
    assert clock.now() - began > 4.0
    one.stop()


@given(
    steps=st.lists(st.floats(0, 20), min_size=1, max_size=60),
    gap_s=st.floats(0, 5),
    per_minute=st.one_of(st.none(), st.integers(1, 8)),
)
def test_gap_and_calls_per_minute_hold(steps: list[float], gap_s: float, per_minute: int | None) -> None:
    pace, now, begun = Pace(gap_s, per_minute), 0.0, []
    for step in steps:
        now += step
        delay = pace.delay(now)
        now += max(delay, 0.0)
        assert pace.delay(now) <= 1e-9
        pace.begin(now)
        begun.append(now)
    assert all(b - a >= gap_s - 1e-9 for a, b in pairwise(begun))
    for place in range(len(begun) - (per_minute or len(begun))):
        assert begun[place + per_minute] - begun[place] >= 60.0 - 1e-9


def test_a_question_over_its_limit_is_a_timeout_at_once_and_nothing_is_asked_until_the_vlm_lets_go() -> None:
    clock = HandClock()
    vlm = Gate(heeds_stop=False)
    one = lane(vlm, clock, question_timeout_s=2.0)
    one.offer("a", question(1))
    eventually(lambda: vlm.asked)
    clock.time_s = 2.0
    one.expire()
    assert (one.take_answer(), one.held_s) == (None, None)
    clock.time_s = 2.5
    one.expire()
    assert one.take_answer()[2].status == "timeout"
    assert (one.under_way, one.held_s) == (0, 2.5)
    one.offer("a", question(2))
    time.sleep(0.05)
    assert [frame for _, frame in vlm.asked] == [1]
    vlm.free.release(2)
    ((_, frame, answer),) = taken(one, 1)
    assert (frame, answer.status) == (2, "ok"), "the late answer must not be taken for that of the next question"
    assert one.held_s is None
    one.stop()


def test_a_vlm_that_heeds_its_stop_is_free_again_at_the_limit() -> None:
    clock = FakeClock(speed=50.0)
    vlm = Gate()
    one = lane(vlm, clock, question_timeout_s=2.0)
    one.offer("a", question(1))
    eventually(lambda: vlm.asked)
    eventually(lambda: one.expire() or vlm.stopped)
    ((_, _, answer),) = taken(one, 1)
    assert (answer.status, answer.reason, answer.fields) == ("timeout", "no answer within 2 s", None)
    one.stop()


def test_an_answer_that_nobody_saw_to_be_late_is_late_all_the_same() -> None:
    clock = FakeClock(speed=100.0)
    one = lane(FunctionVlm(lambda q: VALID, latency_s=0.05), clock, question_timeout_s=1.0)
    one.offer("a", question(1))
    assert [answer.status for _, _, answer in taken(one, 1)] == ["timeout"]
    one.stop()


def test_several_at_once_but_of_each_source_one_at_a_time() -> None:
    vlm = Gate()
    settings = {"settings": LiveSettings(), "clock": Clock(), "changed": threading.Condition()}
    one = LiveLane(vlm, workers=3, **settings)
    for source, number in (("a", 1), ("b", 2)):
        one.offer(source, question(number))
    eventually(lambda: len(vlm.asked) == 2)
    one.offer("a", question(3))
    time.sleep(0.05)
    assert sorted(frame for _, frame in vlm.asked) == [1, 2], "answers of a source must come in order"
    one.offer("c", question(4))
    eventually(lambda: len(vlm.asked) == 3)
    assert one.oldest("a").frame.index == 1
    vlm.free.release(4)
    came = taken(one, 4)
    assert [frame for source, frame, _ in came if source == "a"] == [1, 3]
    eventually(lambda: one.is_idle)
    one.stop()
    assert one.join(5)


def test_stopping_hands_out_whatever_has_no_answer() -> None:
    vlm = Gate()
    one = lane(vlm)
    one.offer("a", question(1))
    eventually(lambda: vlm.asked)
    one.offer("a", question(2))
    one.offer("b", question(3))
    left = one.stop()
    assert [(source, one.frame.index, answer.status) for source, one, answer in left] == [
        ("a", 1, "error"),
        ("a", 2, "error"),
        ("b", 3, "error"),
    ]
    assert "stopped before" in left[0][2].reason
    assert one.join(5)
    assert vlm.stopped == 1


def test_whatever_a_vlm_raises_is_a_status_and_the_lane_goes_on() -> None:
    said = iter([RuntimeError("500 Internal Server Error"), SystemExit("out"), None])

    def fail(_: Question) -> str:
        if (error := next(said)) is not None:
            raise error
        return VALID

    one = lane(FunctionVlm(fail))
    statuses = []
    for number in range(3):
        one.offer("a", question(number))
        statuses += [answer.status for _, _, answer in taken(one, 1)]
    assert statuses == ["error", "error", "ok"]
    one.stop()
