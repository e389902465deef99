"""The bounded lane: questions are answered off the detector's path, and whoever asks waits while the lane is full."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from hazardlens.record import Status
from hazardlens.schema import AnswerError
from hazardlens.vlm.base import Answer, Question, Reply, Shown, Vlm
from hazardlens.vlm.prompt import show

_log = logging.getLogger(__name__)


class Lane:
    """Asks one VLM, one question at a time, with a bounded number of them under way.

    Args:
        vlm: The VLM to ask; the lane does not close it.
        depth: Questions waiting or being answered at most; `ask` waits beyond that.
    """

    def __init__(self, vlm: Vlm, *, depth: int = 4) -> None:
        self._vlm = vlm
        self._places = threading.BoundedSemaphore(depth)
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="hazardlens-vlm")
        self._under_way: set[Future[Answer]] = set()

    @property
    def waiting(self) -> int:
        """Questions waiting or being answered now."""
        return len(self._under_way)

    def ask(self, question: Question) -> Future[Answer]:
        """Put a question into the lane, waiting for a place; the future never holds an exception."""
        self._places.acquire()
        future = self._worker.submit(answer, self._vlm, question)
        self._under_way.add(future)
        future.add_done_callback(self._leave)
        return future

    def _leave(self, future: Future[Answer]) -> None:
        self._under_way.discard(future)
        self._places.release()

    def close(self) -> None:
        """Drop the questions that still wait, interrupt the one under way, and end the thread."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        self._vlm.interrupt()
        self._worker.shutdown(wait=True)


def answer(vlm: Vlm, question: Question) -> Answer:
    """Ask, then judge the reply by the schema that it was asked with; every failure becomes a status."""
    started = time.perf_counter()
    shown: Shown | None = None
    reply: Reply | None = None
    fields = None
    status: Status
    reason: str | None
    try:
        shown = show(question, longest_side_px=vlm.longest_side_px, draw_ids=vlm.draw_ids)
        reply = vlm.ask(question, shown)
        status, reason = _ended(reply)
        if status == "ok":
            fields = question.schema.parse(reply.text)
    except AnswerError as error:
        status, reason = "invalid", str(error)
    except TimeoutError as error:
        status, reason = "timeout", str(error) or "no answer in time"
    except Exception as error:  # noqa: BLE001 - whatever a VLM raises must become a status, or the video would be lost
        _log.warning("question about frame %d failed", question.frame.index, exc_info=error)
        status, reason = "error", f"{type(error).__name__}: {error}"
    return Answer(
        status=status,
        reason=reason,
        fields=fields,
        reply=reply,
        latency_s=time.perf_counter() - started,
        attempts=1,
        shown=shown,
    )


def _ended(reply: Reply) -> tuple[Status, str | None]:
    if reply.end == "complete":
        return "ok", None
    return reply.end, reply.reason or f"the answer is {reply.end}"
