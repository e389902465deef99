"""One question to one server: tries, waits and what becomes of them. The only layer that tries again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pybreaker
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.stop import stop_before_delay

from hazardlens.schema import GroundedSchema
from hazardlens.vlm.base import Enforced, Reply, ReplyEnd
from hazardlens.vlm.keeping import kept
from hazardlens.vlm.remote.connection import Connection, Messages
from hazardlens.vlm.remote.faults import SERVER_FAULTS, Fault, Kind, fault_of
from hazardlens.vlm.remote.limits import Gate, Spending
from hazardlens.vlm.remote.patience import Patience
from hazardlens.vlm.remote.reading import Said, encodable, read_response
from hazardlens.vlm.remote.verdict import judged
from hazardlens.vlm.remote.wire import budget_in

_ENDS: Mapping[Kind, ReplyEnd] = {
    "invalid": "complete",
    "truncated": "truncated",
    "refused": "refused",
    "timeout": "timeout",
    "spent": "skipped",
}
_SAID: frozenset[Kind] = frozenset({"invalid", "truncated", "refused"})
"""Faults of an answer; all others tell only that there is none."""
_TOLD = 1_000
_TICK_S = 0.02
_LARGE = 16 * 2**10
"""Characters from which on an answer is judged in another thread, for all questions share the loop's."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Line:
    """What all questions to one server share.

    Attributes:
        connection: Calls it.
        breaker: Leaves it alone for a while after several failures in a row.
        gate: Holds all calls back while it asks for that.
        spending: What may still be spent.
        patience: How long and how often a question is tried.
    """

    connection: Connection
    breaker: pybreaker.CircuitBreaker
    gate: Gate
    spending: Spending
    patience: Patience


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Asked:
    """One question on the wire.

    Attributes:
        schema: The schema that it is asked with.
        messages: Makes the input of a request, given what is to be added to the prompt.
        arguments: Makes the other arguments, given the token budget.
        budget: Tokens that an answer may take at first.
        enforced: How the form of the answer is held.
    """

    schema: GroundedSchema
    messages: Callable[[str], Messages]
    arguments: Callable[[int], Mapping[str, Any]]
    budget: int
    enforced: Enforced


def new_breaker(failures: int, reset_s: float) -> pybreaker.CircuitBreaker:
    """A circuit breaker that counts faults of the server only."""
    return pybreaker.CircuitBreaker(
        fail_max=failures, reset_timeout=reset_s, exclude=[_is_no_fault], throw_new_error_on_trip=False
    )


def _is_no_fault(error: BaseException) -> bool:
    """Whether an error says that the server itself is well.

    Raises:
        BaseException: The error itself where it says nothing of the server: nobody waited for the answer any more, or
            nothing was sent. Raised from here it is neither counted nor, as one that is left out, taken for a success.
    """
    if isinstance(error, asyncio.CancelledError) or (isinstance(error, Fault) and error.kind == "unsent"):
        raise error
    return isinstance(error, Fault) and error.kind not in SERVER_FAULTS


@dataclass(kw_only=True, eq=False)
class Exchange:
    """One question being asked. `run` it once.

    Attributes:
        line: The server.
        asked: The question.
    """

    line: Line
    asked: Asked
    _addition: str = ""
    _budget: int = 0
    _sent: int | None = None
    _attempts: int = 0
    _faults: Counter[Kind] = field(default_factory=Counter)
    _tokens: dict[str, int | None] = field(default_factory=lambda: {"input": None, "output": None})
    _said: Fault | None = None
    _last: Fault | None = None
    _until_s: float = 0.0

    async def run(self) -> Reply:
        """Ask until there is an answer or another try cannot help; whatever happens becomes a reply."""
        patience = self.line.patience
        self._budget = self.asked.budget
        self._until_s = time.monotonic() + patience.within_s
        retrying = AsyncRetrying(
            retry=retry_if_exception(self._helps),
            wait=self._wait,
            stop=stop_before_delay(patience.within_s),
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            return await retrying(self._try)
        except Fault as fault:
            if self._said is None or fault.kind in _SAID:
                return self._failed(fault, fault.reason)
            return self._failed(self._said, f"{self._said.reason}; asked again: {fault.reason}")

    def _helps(self, error: BaseException) -> bool:
        """Whether another try can help."""
        if not isinstance(error, Fault) or time.monotonic() >= self._until_s - _TICK_S:
            return False
        if error.kind in ("invalid", "truncated"):
            return self._faults[error.kind] < 2
        return self.line.patience.helps(error.kind, self._faults)

    def _wait(self, state: RetryCallState) -> float:
        """Seconds until the next try; none where the server itself is well."""
        fault = state.outcome.exception() if state.outcome is not None else None
        if isinstance(fault, Fault) and fault.kind in ("invalid", "truncated"):
            return 0.0
        return self.line.patience.wait_s(state, self.line.gate)

    async def _try(self) -> Reply:
        try:
            return await self._ask()
        except Fault as fault:
            is_over = fault.kind == "timeout" and time.monotonic() >= self._until_s - _TICK_S
            if self._last is not None and (is_over or fault.kind in ("spent", "open")):
                self._until_s = 0.0  # no further try
                raise self._last from None  # what became of it before says more than that it was not asked again
            self._last = fault
            self._faults[fault.kind] += 1
            if fault.kind in _SAID:
                self._said = fault
            if fault.kind == "truncated":
                self._enlarge()
            if fault.kind == "invalid":
                self._addition = (
                    f"An earlier answer was not valid:\n{fault.text[:_TOLD]}\nWhat is wrong with it: "
                    f"{fault.reason[:_TOLD]}\nAnswer again, and mend that."
                )
            raise

    def _enlarge(self) -> None:
        """Double the budget; where the request names another one, which stays as it is, there is no further try."""
        before, after = (budget_in(self.asked.arguments(tokens)) for tokens in (self._budget, 2 * self._budget))
        if before is None or after is None or after <= before:
            self._faults["truncated"] += 1
        self._budget *= 2

    async def _ask(self) -> Reply:
        if not await self.line.gate.passed(self._until_s):
            asks = f"the server asks to wait {self.line.gate.closed_s:.0f} s, longer than an answer may take"
            raise Fault("open", asks)
        spent = self.line.spending.take_call()
        if spent is not None:
            raise Fault("spent", spent)
        try:
            said = await self._call()
        except pybreaker.CircuitBreakerError as error:
            raise fault_of(error, self.line.connection.redact) from None
        judging = partial(judged, said, self.asked.schema, self.line.connection.redact, budget=self._sent)
        text, raw = judging() if len(said.text) < _LARGE else await asyncio.to_thread(judging)
        return self._reply(text=text, raw=raw)

    async def _call(self) -> Said:
        """Call the server once, under the breaker."""
        connection, left_s = self.line.connection, self._until_s - time.monotonic()
        with self.line.breaker.calling():
            self._attempts += 1
            arguments = self.asked.arguments(self._budget)
            try:
                async with asyncio.timeout(min(self.line.patience.try_s, left_s)):
                    response = await connection.call_async(self.asked.messages(self._addition), arguments)
                said = read_response(response, connection.endpoint.api, connection.redact)
            except Exception as error:  # noqa: BLE001 - each becomes a fault, of which some are tried again
                fault = fault_of(error, connection.redact)
                self._attempts -= fault.kind == "unsent"
                if fault.wait_s is not None:
                    self.line.gate.hold(fault.wait_s)
                raise fault from None
            self._sent = budget_in(arguments)
            self._count(said)
            if said.end == "failed":
                raise Fault("server", said.reason or "the server failed")
            return said

    def _count(self, said: Said) -> None:
        for name, count in (("input", said.input_tokens), ("output", said.output_tokens)):
            if count is not None:
                self._tokens[name] = (self._tokens[name] or 0) + count
        self.line.spending.add_tokens(said.input_tokens, said.output_tokens, budget=self._sent or self._budget)

    def _reply(self, *, text: str, raw: str, end: ReplyEnd = "complete", reason: str | None = None) -> Reply:
        return Reply(
            text=text,
            raw=kept(encodable(raw)) if raw != text else None,
            end=end,
            reason=reason,
            input_tokens=self._tokens["input"],
            output_tokens=self._tokens["output"],
            attempts=self._attempts,
            enforced=self.asked.enforced,
        )

    def _failed(self, fault: Fault, reason: str) -> Reply:
        end = _ENDS.get(fault.kind, "error")
        tries = f" ({self._attempts} tries)" if self._attempts > 1 else ""
        return self._reply(text=fault.text, raw=fault.text, end=end, reason=f"{reason}{tries}")
