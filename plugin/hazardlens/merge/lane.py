"""The bounded lane: questions are answered off the detector's path, and whoever asks waits while the lane is full."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from concurrent.futures import Future, InvalidStateError
from typing import get_args

from hazardlens.record import Status
from hazardlens.schema import AnswerError
from hazardlens.vlm.base import Answer, Question, Reply, ReplyEnd, Shown, Vlm
from hazardlens.vlm.prompt import show

_log = logging.getLogger(__name__)

THREAD_NAME = "hazardlens-vlm"
_CLOSE_WAITS_S = 5.0
_LOOKS_UP_S = 0.2


class Lane:
    """Asks one VLM, one question at a time, with a bounded number of them under way.

    Args:
        vlm: The VLM to ask.
        depth: Questions waiting or being answered at most; `ask` waits beyond that.
    """

    def __init__(self, vlm: Vlm, *, depth: int = 4) -> None:
        self._vlm = vlm
        self._stop = threading.Event()
        self._places = threading.BoundedSemaphore(depth)
        self._questions: queue.SimpleQueue[tuple[Question, Future[Answer]] | None] = queue.SimpleQueue()
        self._under_way: set[Future[Answer]] = set()
        self._failing = False
        # A daemon, for a VLM that hangs must not keep the program from ending.
        self._worker = threading.Thread(target=self._work, name=THREAD_NAME, daemon=True)
        self._worker.start()

    @property
    def waiting(self) -> int:
        """Questions waiting or being answered now."""
        return len(self._under_way)

    def ask(self, question: Question) -> Future[Answer]:
        """Put a question into the lane, waiting for a place; whatever a VLM raises is in the answer's status.

        Once the lane is closed, the future is cancelled.
        """
        future: Future[Answer] = Future()
        while not self._places.acquire(timeout=_LOOKS_UP_S):
            if self._stop.is_set():
                future.cancel()
                return future
        self._under_way.add(future)
        self._questions.put((question, future))
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
        """Whether the caller runs in the lane's thread, as what is done when a future is settled does."""
        return threading.current_thread() is self._worker

    def end(self) -> None:
        """Stop, and let the thread end by itself; nobody waits for it."""
        self.stop()
        self._questions.put(None)

    def close(self) -> None:
        """Stop, and give the VLM a moment to do so."""
        self.end()
        self._worker.join(_CLOSE_WAITS_S)
        if self._worker.is_alive():
            _log.warning("%s does not stop; its last answer is not waited for", self._vlm.name)

    def _work(self) -> None:
        while (item := self._questions.get()) is not None:
            question, future = item
            if not self._stop.is_set():
                self._settle(question, future, answer(self._vlm, question, self._stop))
            self._under_way.discard(future)
            self._places.release()

    def _settle(self, question: Question, future: Future[Answer], result: Answer) -> None:
        if not self._stop.is_set():
            self._tell(question, result)
        with contextlib.suppress(InvalidStateError):  # cancelled by `close` at this very moment
            future.set_result(result)

    def _tell(self, question: Question, result: Answer) -> None:
        """Log the first of failures in a row as a warning; all are in the records."""
        level = logging.INFO if self._failing else logging.WARNING
        self._failing = result.status != "ok"
        if self._failing:
            _log.log(level, "question about frame %d: %s: %s", question.frame.index, result.status, result.reason)


def answer(vlm: Vlm, question: Question, stop: threading.Event) -> Answer:
    """Ask, then judge the reply by the schema that it was asked with; every failure becomes a status."""
    started = time.perf_counter()
    shown: Shown | None = None
    reply: Reply | None = None
    fields = None
    status: Status
    reason: str | None
    try:
        shown = show(question, vlm.view)
        reply = _checked(vlm.ask(question, shown, stop))
        status, reason = _ended(reply)
        if status == "ok":
            fields = question.schema.parse(reply.text)
    except AnswerError as error:
        status, reason = "invalid", str(error)
    except TimeoutError as error:
        status, reason = "timeout", str(error) or "no answer in time"
    except BaseException as error:  # noqa: BLE001 - whatever a VLM raises becomes a status, or the lane would stand still
        status, reason = "error", f"{type(error).__name__}: {error}"
        _log.debug("question about frame %d", question.frame.index, exc_info=error)
    return Answer(
        status=status,
        reason=reason,
        fields=fields,
        reply=reply,
        latency_s=time.perf_counter() - started,
        attempts=reply.attempts if reply else 1,
        shown=shown,
    )


def _checked(reply: object) -> Reply:
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        raise TypeError(f"expected a Reply with a text, the VLM gave {type(reply).__name__}")
    if reply.end not in get_args(ReplyEnd):
        raise TypeError(f"expected a Reply that ends in one of {', '.join(get_args(ReplyEnd))}, got {reply.end!r}")
    return reply


def _ended(reply: Reply) -> tuple[Status, str | None]:
    if reply.end == "complete":
        return "ok", None
    return reply.end, reply.reason or f"the answer is {reply.end}"
