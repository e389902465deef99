"""Proof instead of trust: does a server answer, does it see pictures, does it hold the schema that it is sent?

A server that ignores a schema answers with 200 all the same. Only one that constrains its decoding can echo a constant
that stands in the schema and nowhere in the prompt; the parameters of a function are an exception, for servers tell
them to the model in words. Nothing is concluded from a fault that may pass: it is tried again, as a question is.
"""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tenacity import Retrying, retry_if_exception
from tenacity.stop import stop_before_delay

from hazardlens.errors import ServerError
from hazardlens.schema import GroundedSchema
from hazardlens.vlm.remote.connection import Connection, Messages, messages_for
from hazardlens.vlm.remote.dialects import Api, Dialect
from hazardlens.vlm.remote.faults import Fault, Kind, fault_of
from hazardlens.vlm.remote.limits import Gate, Spending
from hazardlens.vlm.remote.marking import marked_request
from hazardlens.vlm.remote.patience import Patience
from hazardlens.vlm.remote.reading import Said, read_response
from hazardlens.vlm.remote.restoring import unwrapped
from hazardlens.vlm.remote.sight import Seen, told_apart, two_pictures
from hazardlens.vlm.remote.waiting import within
from hazardlens.vlm.remote.wire import budget_for, budget_in, merged

_PROMPT = "Tell in one short sentence what you see."
_SHORT, _LONG, _LEAST = 48, 512, 16
_TICK_S = 0.02


class Prober:
    """Asks one server short questions, all of them within the time that probing may take, counted from here on.

    Args:
        connection: Calls it.
        request: Arguments that go with every request.
        spending: Counts the tokens.
        gate: Holds calls back while the server asks for that.
        patience: How long and how often a question is tried, and how long all may take.

    Attributes:
        name: What is asked, and where.
    """

    def __init__(
        self, connection: Connection, request: Mapping[str, Any], spending: Spending, gate: Gate, patience: Patience
    ) -> None:
        self._connection = connection
        self._request = request
        self._spending = spending
        self._gate = gate
        self._patience = patience
        self._until_s = time.monotonic() + patience.probe_s
        self.name = f"{connection.endpoint.model} at {connection.endpoint.place}"

    @property
    def api(self) -> Api:
        """The API that is called."""
        return self._connection.endpoint.api

    def answers(self, dialect: Dialect) -> Mapping[str, Any]:
        """See that the server answers at all.

        Returns:
            Its response as plain JSON types, which may tell what kind of server it is.

        Raises:
            ServerError: If it does not.
        """
        try:
            return self._ask(dialect, "Say yes.")[1]
        except Fault as fault:
            raise ServerError(f"{self.name} does not answer: {fault.reason}", help=_advice(fault)) from None

    def held(self, schema: GroundedSchema, dialect: Dialect) -> tuple[Seen, str]:
        """Whether the server holds `schema`, with a constant added that the prompt never names, and why.

        What was cut ahead of the constant, or is empty, is no verdict: a model may have thought for too long.

        Raises:
            Fault: If it does not take the request, or a fault does not pass.
        """
        mark = secrets.token_hex(4)
        arguments, expected = marked_request(schema, dialect, self.api, mark)
        if not arguments:
            return "no", "it takes none"
        begins = ""
        for budget in (_SHORT, _LONG):  # the longer one for a model that thinks first, or fills up with blanks
            said, _ = self._ask(dialect, _PROMPT, arguments=arguments, budget=budget)
            begins = "".join(unwrapped(said.text).split())[: len(expected)]
            if begins == expected:
                return "yes", "it wrote the constant"
            if not expected.startswith(begins):
                return "no", "it wrote something else"
        return "unknown", f"what it said was {'cut' if begins else 'empty'}, within {_LONG} tokens"

    def images(self, dialect: Dialect) -> tuple[Seen, str]:
        """Whether the server looks at pictures: two different ones must make a difference."""
        try:
            first, second = (self._shown(dialect, picture) for picture in two_pictures())
        except Fault as fault:
            takes_none = fault.kind == "rejected" or (fault.kind == "server" and self._talks(dialect))
            return ("no" if takes_none else "unknown"), fault.reason
        return told_apart(first, second)

    @property
    def _too_long(self) -> str:
        return f"no answer in time: all questions of a check together may take {self._patience.probe_s:g} s"

    def _shown(self, dialect: Dialect, picture: str) -> tuple[Said, Mapping[str, Any]]:
        return self._ask(dialect, _PROMPT, pictures=(picture,), budget=_LEAST, probabilities=True)

    def _talks(self, dialect: Dialect) -> bool:
        try:
            self._ask(dialect, _PROMPT, budget=_LEAST)
        except Fault:
            return False
        return True

    def _ask(
        self,
        dialect: Dialect,
        prompt: str,
        *,
        pictures: tuple[str, ...] = (),
        arguments: Mapping[str, Any] | None = None,
        budget: int = _SHORT,
        probabilities: bool = False,
    ) -> tuple[Said, Mapping[str, Any]]:
        base = {
            **merged(arguments or {}, budget_for(dialect, self.api, budget), self._request),
            "stream": False,
        }
        messages = messages_for(prompt, pictures, self.api)
        if probabilities and self.api == "chat.completions":
            try:
                return self._tried(messages, {**base, "logprobs": True, "top_logprobs": 5})
            except Fault as fault:
                if fault.kind != "rejected":
                    raise
        return self._tried(messages, base)

    def _tried(self, messages: Messages, arguments: Mapping[str, Any]) -> tuple[Said, Mapping[str, Any]]:
        """Ask until there is an answer or another try cannot help.

        Raises:
            Fault: There is none.
        """
        faults: Counter[Kind] = Counter()
        began_s = time.monotonic()
        until_s = min(began_s + self._patience.within_s, self._until_s)

        def once() -> tuple[Said, Mapping[str, Any]]:
            try:
                return self._asked(messages, arguments, until_s)
            except Fault as fault:
                faults[fault.kind] += 1
                raise

        retrying = Retrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, Fault) and self._patience.helps(error.kind, faults)
            ),
            wait=lambda state: self._patience.wait_s(state, self._gate),
            stop=stop_before_delay(max(0.0, until_s - began_s)),
            reraise=True,
        )
        return retrying(once)

    def _asked(
        self, messages: Messages, arguments: Mapping[str, Any], until_s: float
    ) -> tuple[Said, Mapping[str, Any]]:
        if time.monotonic() >= self._until_s:
            raise Fault("timeout", self._too_long)
        if not self._gate.passed_here(until_s):
            raise Fault("busy", f"the server asks to wait {self._gate.closed_s:.0f} s, longer than an answer may take")
        try:
            left_s = until_s - time.monotonic()
            response = within(lambda: self._connection.call(messages, arguments), left_s)
            said = read_response(response, self.api, self._connection.redact)
        except Exception as error:  # noqa: BLE001 - each becomes a fault
            fault = fault_of(error, self._connection.redact)
            if fault.kind == "timeout" and time.monotonic() >= self._until_s - _TICK_S:
                fault = Fault("timeout", self._too_long)
            if fault.wait_s is not None:
                self._gate.hold(fault.wait_s)
            raise fault from None
        self._spending.add_tokens(said.input_tokens, said.output_tokens, budget=budget_in(arguments) or 0)
        if said.end == "failed":
            raise Fault("server", said.reason or "the server failed")
        body = response.to_dict(mode="json", warnings=False) if hasattr(response, "to_dict") else {}
        return said, body


def kind_of_server(body: Mapping[str, Any]) -> str | None:
    """The dialect that a server gives away in its responses, or None."""
    fingerprint = str(body.get("system_fingerprint") or "")
    if fingerprint == "fp_ollama":
        return "ollama"
    if "timings" in body or re.match(r"b\d+-[0-9a-f]+$", fingerprint):
        return "llama.cpp"
    if "prompt_logprobs" in body or "kv_transfer_params" in body or fingerprint.startswith("vllm"):
        return "vllm"
    return None


def _advice(fault: Fault) -> str:
    if fault.kind == "timeout":
        return "See that the server is not overloaded, or raise vlm.timeout_s and vlm.probe_timeout_s."
    if fault.kind == "transport":
        return "See that the server runs and that vlm.base_url is right; it ends in /v1 as a rule."
    if "401" in fault.reason or "403" in fault.reason:
        return "See that the variable named in vlm.api_key_env holds a key for this server."
    if "404" in fault.reason:
        return "See that vlm.model is a name that the server knows, and that vlm.base_url and vlm.api are right."
    return "See the server's own log; vlm.probe: false leaves this check out."
