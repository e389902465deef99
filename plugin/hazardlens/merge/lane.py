"""The bounded lane: questions are answered off the detector's path, and whoever asks waits while the lane is full.

What a question shows is made ready in threads of their own, so that none of the VLM's places stands empty for it.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field

from hazardlens.vlm.base import Answer, Question, Reply, Shown, Vlm
from hazardlens.vlm.judging import judged
from hazardlens.vlm.prompt import show

_log = logging.getLogger(__name__)

THREAD_NAME = "hazardlens-vlm"
_CLOSE_WAITS_S = 5.0
_LOOKS_UP_S = 0.2
_MAKERS = 4
"""Most pictures that are made ready at once."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Put:
    """A question in the lane."""

    question: Question
    shown: Future[Shown] = field(default_factory=Future)
    answer: Future[Answer] = field(default_factory=Future)


class Lane:
    """Asks one VLM, as many questions at once as it takes, with a bounded number of them under way.

    Args:
        vlm: The VLM to ask.
        depth: Questions waiting or being answered at most, or None for three more than are asked at once; `ask` waits
            beyond that.
    """

    def __init__(self, vlm: Vlm, *, depth: int | None = None) -> None:
        self._vlm = vlm
        self._stop = threading.Event()
        self._places = threading.BoundedSemaphore(vlm.concurrency + 3 if depth is None else depth)
        self._questions: queue.SimpleQueue[_Put | None] = queue.SimpleQueue()
        self._to_show: queue.SimpleQueue[_Put | None] = queue.SimpleQueue()
        self._under_way: set[Future[Answer]] = set()
        self._failing = False
        self._workers = _started(self._work, vlm.concurrency)
        self._makers = _started(self._make_ready, min(vlm.concurrency, _MAKERS))

    @property
    def waiting(self) -> int:
        """Questions waiting or being answered now."""
        return len(self._under_way)

    def ask(self, question: Question) -> Future[Answer]:
        """Put a question into the lane, waiting for a place; whatever a VLM raises is in the answer's status.

        Once the lane is closed, the future is cancelled.
        """
        put = _Put(question=question)
        future = put.answer
        while not self._places.acquire(timeout=_LOOKS_UP_S):
            if self._stop.is_set():
                future.cancel()
                return future
        self._under_way.add(future)
        self._to_show.put(put)
        self._questions.put(put)
        if self._stop.is_set():
            future.cancel()
        return future

    def stop(self) -> None:
        """Cancel the questions under way and tell the VLM to stop."""
        self._stop.set()
        for future in list(self._under_way):
            future.cancel()

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller runs in a thread of the lane, as what is done when a future is settled does."""
        return threading.current_thread() in self._workers

    def end(self) -> None:
        """Stop, and let the threads end by themselves; nobody waits for them."""
        self.stop()
        for _ in self._workers:
            self._questions.put(None)
        for _ in self._makers:
            self._to_show.put(None)

    def close(self) -> None:
        """Stop, and give the VLM a moment to do so."""
        self.end()
        waits_until = time.monotonic() + _CLOSE_WAITS_S
        for thread in (*self._workers, *self._makers):
            thread.join(max(0.0, waits_until - time.monotonic()))
        if any(worker.is_alive() for worker in self._workers):
            _log.warning("%s does not stop; its last answer is not waited for", self._vlm.name)

    def _make_ready(self) -> None:
        while (put := self._to_show.get()) is not None:
            if self._stop.is_set():
                put.shown.cancel()
                continue
            try:
                put.shown.set_result(show(put.question, self._vlm.view))
            except BaseException as error:  # noqa: BLE001 - becomes the status of the answer
                put.shown.set_exception(error)

    def _work(self) -> None:
        while (put := self._questions.get()) is not None:
            if not self._stop.is_set():
                self._settle(put, answer(self._vlm, put.question, self._stop, shown=put.shown.result))
            self._under_way.discard(put.answer)
            self._places.release()

    def _settle(self, put: _Put, result: Answer) -> None:
        if not self._stop.is_set():
            self._tell(put.question, result)
        with contextlib.suppress(InvalidStateError):  # cancelled by `close` at this very moment
            put.answer.set_result(result)

    def _tell(self, question: Question, result: Answer) -> None:
        """Log the first of failures in a row as a warning; all are in the records."""
        level = logging.INFO if self._failing else logging.WARNING
        self._failing = result.status != "ok"
        if self._failing:
            _log.log(level, "question about frame %d: %s: %s", question.frame.index, result.status, result.reason)


def _started(work: Callable[[], None], count: int) -> list[threading.Thread]:
    """So many threads; daemons, for a VLM that hangs must not keep the program from ending."""
    threads = [threading.Thread(target=work, name=THREAD_NAME, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def answer(vlm: Vlm, question: Question, stop: threading.Event, *, shown: Callable[[], Shown] | None = None) -> Answer:
    """Ask, then judge the reply by the schema that it was asked with; every failure becomes a status.

    Args:
        vlm: Who is asked.
        question: What.
        stop: Set when nobody waits for the answer any more.
        shown: Gives what is shown if that was made ready before.
    """
    started = time.perf_counter()
    seen: Shown | None = None

    def ask() -> Reply:
        nonlocal seen
        seen = shown() if shown is not None else show(question, vlm.view)
        return vlm.ask(question, seen, stop)

    verdict = judged(ask, question)
    reply = verdict.reply
    return Answer(
        status=verdict.status,
        reason=verdict.reason,
        fields=verdict.fields,
        reply=reply,
        latency_s=time.perf_counter() - started,
        attempts=reply.attempts if reply else 1,
        shown=seen,
    )
