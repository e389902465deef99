"""The lane for live sources: the newest question of each wins, each has its turn, and no answer is waited for."""

from __future__ import annotations

import logging
import threading
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


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Call:
    """A question that the VLM has been given."""

    source: str
    question: Question
    begun_s: float
    stop: threading.Event = field(default_factory=threading.Event)


class LiveLane:
    """Asks one VLM, one question at a time, for several sources.

    A source has one question waiting at most: a newer one takes its place. Whose turn is longest ago comes first. A
    question over its time limit is settled at once; until the VLM lets go of it, nothing else is asked.

    Args:
        vlm: The VLM.
        settings: Time limit, gap and calls per minute.
        clock: The clock.
        changed: Notified when an answer is there; its lock guards all that is here.
    """

    def __init__(self, vlm: Vlm, *, settings: LiveSettings, clock: Clock, changed: threading.Condition) -> None:
        self.vlm = vlm
        self._settings = settings
        self._clock = clock
        self._changed = changed
        self._waiting: OrderedDict[str, Question] = OrderedDict()
        self._turns: dict[str, int] = {}
        self._pace = Pace(settings.question_gap_s, settings.questions_per_minute)
        self._calls = 0
        self._call: _Call | None = None
        self._settled = True
        self._answers: deque[tuple[str, Question, Answer]] = deque()
        self._stopped = False
        self._failing = False
        self._worker = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
        self._worker.start()

    @property
    def under_way(self) -> int:
        """Questions that wait, are being answered, or whose answers wait to be taken."""
        with self._changed:
            return len(self._waiting) + (not self._settled) + len(self._answers)

    @property
    def is_idle(self) -> bool:
        """Whether the VLM has nothing to do: no question waits or is being answered."""
        with self._changed:
            return not self._waiting and self._call is None

    @property
    def calls(self) -> int:
        """Questions that the VLM was given."""
        return self._calls

    @property
    def held_s(self) -> float | None:
        """Seconds for which the VLM has not let go of a question that is over its time limit, or None."""
        with self._changed:
            return self._clock.now() - self._call.begun_s if self._call is not None and self._settled else None

    def oldest(self, source: str) -> Question | None:
        """The oldest question of a source that has no answer yet, or None."""
        with self._changed:
            if self._call is not None and not self._settled and self._call.source == source:
                return self._call.question
            return self._waiting.get(source)

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
        """Settle a question that is over its time limit; call it every now and then."""
        with self._changed:
            call, limit_s = self._call, self._settings.question_timeout_s
            if call is None or self._settled or self._clock.now() - call.begun_s <= limit_s:
                return
            call.stop.set()
            self._settle(call, _failure("timeout", f"no answer within {limit_s:g} s", limit_s))

    def stop(self) -> list[tuple[str, Question, Answer]]:
        """Ask nothing more and tell the VLM to stop; whatever has no answer yet, with an answer that says so."""
        with self._changed:
            self._stopped = True
            if self._call is not None and not self._settled:
                self._settle(self._call, _failure("error", _STOPPED))
                self._call.stop.set()
            left = list(self._answers)
            left += [(source, question, _failure("error", _STOPPED)) for source, question in self._waiting.items()]
            self._answers.clear()
            self._waiting.clear()
            self._changed.notify_all()
            return left

    def join(self, seconds: float) -> bool:
        """Give the VLM a moment to stop; whether its thread has ended."""
        self._worker.join(max(0.0, seconds))
        return not self._worker.is_alive()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            result = answer(self.vlm, call.question, call.stop)
            with self._changed:
                if not self._settled:
                    self._settle(call, self._in_time(result, call))
                self._call = None
                self._changed.notify_all()

    def _next(self) -> _Call | None:
        """Wait for a question that may be asked now; None once stopped."""
        with self._changed:
            while not self._stopped:
                delay_s = self._pace.delay(self._clock.now())
                if self._waiting and delay_s <= 0:
                    return self._begin()
                self._changed.wait(min(delay_s, _LOOKS_UP_S) if self._waiting else None)
            return None

    def _begin(self) -> _Call:
        source = min(self._waiting, key=lambda name: self._turns.get(name, -1))
        self._calls += 1
        self._turns[source] = self._calls
        now_s = self._clock.now()
        self._pace.begin(now_s)
        self._call = _Call(source=source, question=self._waiting.pop(source), begun_s=now_s)
        self._settled = False
        return self._call

    def _in_time(self, result: Answer, call: _Call) -> Answer:
        """The answer, unless it is over its time limit and nobody has noticed yet."""
        limit_s = self._settings.question_timeout_s
        if self._clock.now() - call.begun_s > limit_s:
            return _failure("timeout", f"no answer within {limit_s:g} s", limit_s)
        return result

    def _settle(self, call: _Call, result: Answer) -> None:
        self._settled = True
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
