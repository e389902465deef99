"""Why a try failed, and whether another one can help."""

from __future__ import annotations

import email.utils
import ssl
import time
from collections.abc import Mapping
from typing import Any, Literal

import openai
import pybreaker

from hazardlens.vlm.keeping import kept
from hazardlens.vlm.remote.reading import MalformedResponseError, encodable
from hazardlens.vlm.remote.redaction import Redactor
from hazardlens.vlm.remote.transport import AnswerTooLargeError, UnsentError

Kind = Literal[
    "transport",
    "server",
    "malformed",
    "timeout",
    "busy",
    "invalid",
    "truncated",
    "refused",
    "rejected",
    "unsent",
    "open",
    "spent",
]
"""What went wrong: on the way, in the server, an answer that is no answer, no answer in time, too many requests, an
answer that the schema does not allow, one that was cut, a refusal, a request that will never be taken, one that cannot
even be written, a circuit breaker that is open or a wait that is too long, a limit of ours that is spent."""

SERVER_FAULTS: frozenset[Kind] = frozenset({"transport", "server", "malformed", "timeout"})
"""What speaks against the server itself: it is tried again, and counted by the circuit breaker."""

_TOLD = 300
_MOST_REASON = 4_000
_MOST_WAIT_S = 3600.0


class Fault(Exception):  # noqa: N818 - it never leaves the package
    """One try that failed.

    Args:
        kind: What went wrong.
        reason: The same in words, without secrets.
        wait_s: Seconds that the server asks to wait, or None.
        text: The answer's text in the schema's own form, where there is one.

    In both texts a mark stands in place of half a surrogate pair, which nothing could write, and both are cut to what
    records keep, for a server may say any amount.
    """

    def __init__(self, kind: Kind, reason: str, *, wait_s: float | None = None, text: str = "") -> None:
        reason = encodable(reason)
        self.reason = reason if len(reason) <= _MOST_REASON else f"{reason[:_MOST_REASON]} ..."
        super().__init__(self.reason)
        self.kind = kind
        self.wait_s = wait_s
        self.text = kept(encodable(text))


def fault_of(error: Exception, redact: Redactor) -> Fault:
    """What an error of the SDK means, without secrets; they are taken out before anything is cut short."""
    match error:
        case Fault():
            return error
        case openai.APITimeoutError():
            return Fault("timeout", f"no answer in time ({type(error.__cause__ or error).__name__})")
        case TimeoutError():
            return Fault("timeout", "no answer in time")
        case openai.APIStatusError():
            return _by_status(error, redact)
        case openai.APIConnectionError():
            return _on_the_way(error, redact)
        case pybreaker.CircuitBreakerError():
            return Fault("open", "not asked: the server failed several times in a row and is left alone for a while")
        case MalformedResponseError() | openai.APIResponseValidationError():
            return Fault("malformed", redact(str(error)))
        case UnsentError():
            return Fault("unsent", redact(str(error))[:_TOLD])
        case ValueError() | RecursionError():
            told = f"{type(error).__name__}: {redact(str(error))[:_TOLD]}"
            return Fault("malformed", f"the server's answer cannot be read: {told}")
        case _:
            return Fault("rejected", f"{type(error).__name__}: {redact(str(error))[:_TOLD]}")


def _on_the_way(error: openai.APIConnectionError, redact: Redactor) -> Fault:
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, AnswerTooLargeError):
            return Fault("rejected", redact(str(cause)))
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Fault("rejected", f"the server's certificate is not trusted: {redact(cause.verify_message)}")
    last = chain[-1]
    return Fault("transport", f"no connection, or it broke: {redact(str(last))[:_TOLD] or type(last).__name__}")


def _causes(error: BaseException) -> list[BaseException]:
    found = [error]
    while (inner := found[-1].__cause__ or found[-1].__context__) is not None and inner not in found:
        found.append(inner)
    return found


def _by_status(error: openai.APIStatusError, redact: Redactor) -> Fault:
    status = error.status_code
    reason = f"HTTP {status}: {_message(error, redact)}"
    wait_s = retry_after_s(error.response.headers)
    if 300 <= status < 400:
        return Fault("rejected", f"HTTP {status}: the server sends to another address, which is not followed")
    if status == 429:
        if "insufficient_quota" in (error.code, error.type):
            return Fault("rejected", reason)
        return Fault("busy", reason, wait_s=wait_s)
    if status >= 500:
        return Fault("busy" if status == 503 and wait_s is not None else "server", reason, wait_s=wait_s)
    return Fault("rejected", reason)


def _message(error: openai.APIStatusError, redact: Redactor) -> str:
    body: Any = redact.within(error.body)
    for key in ("error", "message", "detail"):
        if isinstance(body, Mapping) and key in body:
            body = body[key]
    text = " ".join(redact(body if isinstance(body, str) else str(body)).split())
    return redact(text)[:_TOLD] or "no reason given"


def retry_after_s(headers: Mapping[str, str], *, now_s: float | None = None) -> float | None:
    """Seconds that a server asks to wait, as seconds, milliseconds or a date; None where it does not, or in riddles.

    Args:
        headers: Of its answer.
        now_s: Seconds since the epoch; for tests.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            asked = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if 0 <= asked < float("inf"):
            return min(asked, _MOST_WAIT_S)
    moment = email.utils.parsedate_tz(headers.get("retry-after", ""))
    if moment is None:
        return None
    try:
        asked = email.utils.mktime_tz(moment) - (time.time() if now_s is None else now_s)
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, asked), _MOST_WAIT_S)
