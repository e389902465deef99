"""The judge: a reply becomes fields that satisfy the schema, or a status and its reason. It has the last word."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from hazardlens.record import Fields, Status
from hazardlens.schema import AnswerError
from hazardlens.vlm.base import Question, Reply, ReplyEnd

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a reply is worth.

    Attributes:
        status: `ok`, `truncated`, `invalid`, `refused`, `timeout`, `error` or `skipped`.
        reason: Why the status is not `ok`, or None.
        fields: The fields, or None unless `ok`.
        reply: What the VLM said, or None where it raised an error.
    """

    status: Status
    reason: str | None
    fields: Fields | None
    reply: Reply | None


def judged(ask: Callable[[], Reply], question: Question) -> Verdict:
    """Ask, and judge the reply by the schema that it was asked with; every failure becomes a status.

    Args:
        ask: Asks the VLM; whatever it raises becomes a status.
        question: What it is asked.
    """
    reply: Reply | None = None
    fields: Fields | None = None
    status: Status
    reason: str | None
    try:
        reply = _checked(ask())
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
    return Verdict(status=status, reason=reason, fields=fields, reply=reply)


def _checked(reply: object) -> Reply:
    if not isinstance(reply, Reply) or not isinstance(reply.text, str):
        raise TypeError(f"expected a Reply with a text, the VLM gave {type(reply).__name__}")
    if reply.end not in get_args(ReplyEnd):
        raise TypeError(f"expected a Reply that ends in one of {', '.join(get_args(ReplyEnd))}, got {reply.end!r}")
    return reply


def _ended(reply: Reply) -> tuple[Status, str | None]:
    if reply.end == "complete":
        return ("ok", None) if reply.reason is None else ("invalid", reply.reason)
    return reply.end, reply.reason or f"the answer is {reply.end}"
