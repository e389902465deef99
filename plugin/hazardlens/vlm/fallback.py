"""Several VLMs in a row: the next is asked where the one before gives no valid answer, and the record says so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from hazardlens.errors import ServerError
from hazardlens.schema import GroundedSchema
from hazardlens.vlm.base import Enforced, Question, Reply, ReplyEnd, Shown, Vlm
from hazardlens.vlm.judging import Verdict, judged
from hazardlens.vlm.prompt import show

_log = logging.getLogger(__name__)

_LOOKS_UP_S = 0.05


class FallbackVlm(Vlm):
    """Asks VLMs in order until one gives a valid answer.

    Each is asked as many questions at once as its own `concurrency` says, whatever that of the first choice is.
    A refusal is an answer: nobody else is asked. Where all fail, the frame has what the detector found and nothing
    else, with the status of the last failure.

    Args:
        members: At least one VLM, the first choice first.
    """

    def __init__(self, members: Sequence[Vlm]) -> None:
        self.members = tuple(members)
        self.name = self.members[0].name
        self.view = self.members[0].view
        self.concurrency = self.members[0].concurrency
        self._places = [threading.Semaphore(member.concurrency) for member in self.members]
        self.demo = any(member.demo for member in self.members)

    @property
    def enforced(self) -> Enforced:  # type: ignore[override]
        """How the first choice holds the form; each reply says how its own was held."""
        return self.members[0].enforced

    def prepare(self, schema: GroundedSchema) -> None:
        """Prepare all; a server that cannot be used is warned of, as long as another member can.

        Raises:
            ServerError: If no member can be used.
        """
        failures = []
        for member in self.members:
            try:
                member.prepare(schema)
            except ServerError as error:
                failures.append(error)
                _log.warning("%s", error)
        if len(failures) == len(self.members):
            raise failures[0]

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        """Ask one after the other."""
        failed: list[str] = []
        said: list[Reply] = []
        for position, member in enumerate(self.members):
            verdict = self._ask(position, question, shown, stop)
            said.append(_said(verdict))
            reply = _told(said, member, tuple(failed))
            if verdict.status in ("ok", "refused") or stop.is_set():
                return reply
            if position == len(self.members) - 1:
                return replace(reply, reason=f"{verdict.reason}; detector only")
            failed.append(f"{member.name}: {verdict.status}: {verdict.reason}")
        raise AssertionError("at least one member")

    def _ask(self, position: int, question: Question, shown: Shown, stop: threading.Event) -> Verdict:
        member, places = self.members[position], self._places[position]

        def ask() -> Reply:
            own = shown if member.view == self.view else show(question, member.view)
            while not places.acquire(timeout=_LOOKS_UP_S):
                if stop.is_set():
                    raise TimeoutError("stopped before it was asked")
            try:
                return member.ask(question, own, stop)
            finally:
                places.release()

        return judged(ask, question)


def _said(verdict: Verdict) -> Reply:
    return verdict.reply or Reply(text="", end=cast("ReplyEnd", verdict.status), reason=verdict.reason)


def _told(said: Sequence[Reply], member: Vlm, failed: tuple[str, ...]) -> Reply:
    """The last reply with its member's name, how its form was held, and all that it took."""
    last = said[-1]
    return replace(
        last,
        model=last.model or member.name,
        enforced=last.enforced or member.enforced,
        fallback=failed,
        attempts=sum(reply.attempts for reply in said),
        input_tokens=_sum([reply.input_tokens for reply in said]),
        output_tokens=_sum([reply.output_tokens for reply in said]),
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
