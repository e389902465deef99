"""The lane for live sources: the newest question of each wins, each has its turn, and no answer is waited for."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from hazardlens.cameras.clock import Clock
from hazardlens.merge.lane import THREAD_NAME, answer
from hazardlens.monitor.pace import Pace
from hazardlens.pipeline.live import LiveSettings
from hazardlens.vlm.base import Answer, Question, Vlm

_log = logging.getLogger(__name__)

_LOOKS_UP_S = 0.2
_STOPPED = "the run was stopped before the answer came"


@dataclass(kw_only=True, eq=False, slots=True)
class _Call:
    """A question that the VLM has been given and has not let go of; `settled` once its answer is made."""

    source: str
    question: Question
    begun_s: float
    stop: threading.Event = field(default_factory=threading.Event)
    settled: bool = False


class LiveLane:
    """Asks one VLM for several sources.

    A source has one question waiting at most, where a newer one takes its place, and one being answered. Whose turn is
    longest ago comes first. A question over its time limit is settled at once; until the VLM lets go of it, its worker
    asks nothing else.

    Args:
        vlm: The VLM.
        settings: Time limit, gap and calls per minute.
        clock: The clock.
        changed: Notified when an answer is there; its lock guards all that is here.
        workers: Questions asked at once; more than one only of a VLM that can be called from several threads.
    """

    def __init__(
        self, vlm: Vlm, *, settings: LiveSettings, clock: Clock, changed: threading.Condition, workers: int = 1
    ) -> None:
        self.vlm = vlm
        self._settings = settings
        self._clock = clock
        self._changed = changed
        self._pace = Pace(settings.question_gap_s, settings.questions_per_minute)
        self._waiting: OrderedDict[str, Question] = OrderedDict()
        self._turns: dict[str, int] = {}
        self._begun = 0
        self._calls: list[_Call] = []
        self._answers: deque[tuple[str, Question, Answer]] = deque()
        self._stopped = False
        self._failing = False
        self._workers = [
            threading.Thread(target=self._work, name=THREAD_NAME, daemon=True) for _ in range(max(1, workers))
        ]
        for worker in self._workers:
            worker.start()

    @property
    def under_way(self) -> int:
        """Questions that wait, are being answered, or whose answers wait to be taken."""
        with self._changed:
            return len(self._waiting) + sum(not call.settled for call in self._calls) + len(self._answers)

    @property
    def is_idle(self) -> bool:
        """Whether the VLM has nothing to do: no question waits or is being answered."""
        with self._changed:
            return not self._waiting and not self._calls

    @property
    def calls(self) -> int:
        """Questions that the VLM was given."""
        return self._begun

    @property
    def held_s(self) -> float | None:
        """Seconds for which the VLM has not let go of a question that is over its time limit, or None."""
        with self._changed:
            held = [self._clock.now() - call.begun_s for call in self._calls if call.settled]
            return max(held, default=None)

    def oldest(self, source: str) -> Question | None:
        """The oldest question of a source that has no answer yet, or None."""
        with self._changed:
            asked = (call.question for call in self._calls if call.source == source and not call.settled)
            return next(asked, self._waiting.get(source))

    def is_busy_with(self, source: str) -> bool:
        """Whether a source has a question that waits, is being answered, or whose answer nobody has taken."""
        with self._changed:
            return self.oldest(source) is not None or any(name == source for name, _, _ in self._answers)

    def offer(self, source: str, question: Question) -> Question | None:
        """Put a question into the place of its source; the one that stood there and will never be asked, or None."""
        with self._changed:
            replaced = self._waiting.pop(source, None)
            self._waiting[source] = question
            self._changed.notify_all()
            return replaced

    def take_answer(self) -> tuple[str, Question, Answer] | None:
        """The oldest answer that nobody has taken, with its source and question, or None."""
        with self._changed:
            return self._answers.popleft() if self._answers else None

    def expire(self) -> None:
        """Settle questions that are over their time limit; call it every now and then."""
        with self._changed:
            limit_s = self._settings.question_timeout_s
            for call in self._calls:
                if not call.settled and self._clock.now() - call.begun_s > limit_s:
                    call.stop.set()
                    self._settle(call, _failure("timeout", f"no answer within {limit_s:g} s", limit_s))

    def stop(self) -> list[tuple[str, Question, Answer]]:
        """Ask nothing more and tell the VLM to stop; whatever has no answer yet, with an answer that says so."""
        with self._changed:
            self._stopped = True
            for call in self._calls:
                if not call.settled:
                    self._settle(call, _failure("error", _STOPPED))
                    call.stop.set()
            left = list(self._answers)
            left += [(source, question, _failure("error", _STOPPED)) for source, question in self._waiting.items()]
            self._answers.clear()
            self._waiting.clear()
            self._changed.notify_all()
            return left

    def join(self, seconds: float) -> bool:
        """Give the VLM a moment to stop; whether its threads have ended."""
        ends_s = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, ends_s - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            result = answer(self.vlm, call.question, call.stop)
            with self._changed:
                if not call.settled:
                    self._settle(call, self._in_time(result, call))
                self._calls.remove(call)
                self._changed.notify_all()

    def _next(self) -> _Call | None:
        """Wait for a question that may be asked now; None once stopped."""
        with self._changed:
            while not self._stopped:
                busy = {call.source for call in self._calls if not call.settled}
                ready = [source for source in self._waiting if source not in busy]
                delay_s = self._pace.delay(self._clock.now())
                if ready and delay_s <= 0:
                    return self._begin(min(ready, key=lambda source: self._turns.get(source, -1)))
                self._changed.wait(min(delay_s, _LOOKS_UP_S) if ready else None)
            return None

    def _begin(self, source: str) -> _Call:
        self._begun += 1
        self._turns[source] = self._begun
        now_s = self._clock.now()
        self._pace.begin(now_s)
        call = _Call(source=source, question=self._waiting.pop(source), begun_s=now_s)
        self._calls.append(call)
        return call

    def _in_time(self, result: Answer, call: _Call) -> Answer:
        """The answer, unless it is over its time limit and nobody has noticed yet."""
        limit_s = self._settings.question_timeout_s
        if self._clock.now() - call.begun_s > limit_s:
            return _failure("timeout", f"no answer within {limit_s:g} s", limit_s)
        return result

    def _settle(self, call: _Call, result: Answer) -> None:
        call.settled = True
        self._answers.append((call.source, call.question, result))
        level = logging.INFO if self._failing else logging.WARNING
        self._failing = result.status != "ok"
        if self._failing and not self._stopped:
            frame = call.question.frame.index
            _log.log(level, "%s: question about frame %d: %s: %s", call.source, frame, result.status, result.reason)
        self._changed.notify_all()


def _failure(status: str, reason: str, latency_s: float = 0.0) -> Answer:
    return Answer(
        status="timeout" if status == "timeout" else "error",
        reason=reason,
        fields=None,
        reply=None,
        latency_s=latency_s,
        attempts=1 if status == "timeout" else 0,
        shown=None,
    )
