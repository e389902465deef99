"""Proof instead of trust: does a server answer, does it see pictures, does it hold the schema that it is sent?

A server that ignores a schema answers with 200 all the same. Only one that constrains its decoding can echo a constant
that stands in the schema and nowhere in the prompt; the parameters of a function are an exception, for servers tell
them to the model in words. Nothing is concluded from a fault that may pass: it is tried again, as a question is.
"""

from __future__ import annotations

import math
import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tenacity import Retrying, retry_if_exception
from tenacity.stop import stop_before_delay

from hazardlens.errors import ServerError
from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.bare import GroundedText
from hazardlens.vlm.remote.connection import Connection, Messages, messages_for
from hazardlens.vlm.remote.dialects import Api, Dialect
from hazardlens.vlm.remote.faults import Fault, Kind, fault_of
from hazardlens.vlm.remote.forms import Node, form_for
from hazardlens.vlm.remote.limits import Gate, Spending
from hazardlens.vlm.remote.patience import Patience
from hazardlens.vlm.remote.pictures import data_uri
from hazardlens.vlm.remote.reading import Said, read_response
from hazardlens.vlm.remote.restoring import unwrapped
from hazardlens.vlm.remote.wire import arguments_for, budget_for, merged, wire

Sight = Literal["yes", "no", "unknown"]
"""Whether a server was seen to look at pictures."""

MARK = "mark"
_SIZES_WH = (64, 64), (448, 224)
"""In pixels; they differ in shape as well, since some models scale every picture to one longest side."""
LEAST_DIFFERENCE = 0.01
"""Two runs of the same request may give probabilities that differ by less."""
_PROMPT = "Tell in one short sentence what you see."
_SHORT, _LONG, _LEAST = 48, 512, 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What a server was seen to do.

    Attributes:
        dialect: The dialect that it was asked in.
        enforces: Whether it held the schema.
        images: Whether it looks at pictures.
        why: What the verdict on pictures rests on.
    """

    dialect: str
    enforces: bool
    images: Sight
    why: str


class Prober:
    """Asks one server short questions.

    Args:
        connection: Calls it.
        request: Arguments that go with every request.
        spending: Counts the tokens.
        gate: Holds calls back while the server asks for that.
        patience: How long and how often a question is tried.
    """

    def __init__(
        self, connection: Connection, request: Mapping[str, Any], spending: Spending, gate: Gate, patience: Patience
    ) -> None:
        self._connection = connection
        self._request = request
        self._spending = spending
        self._gate = gate
        self._patience = patience

    @property
    def _api(self) -> Api:
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
            endpoint = self._connection.endpoint
            raise ServerError(
                f"{endpoint.model} at {endpoint.place} does not answer: {fault.reason}", help=_advice(fault)
            ) from None

    def enforces(self, schema: GroundedSchema, dialect: Dialect) -> bool:
        """Whether the server holds `schema`, with a constant added that the prompt never names.

        Raises:
            Fault: If it does not take the request, or a fault does not pass.
        """
        mark = secrets.token_hex(4)
        arguments, expected = _marked_request(schema, dialect, self._api, mark)
        if not arguments:
            return False
        for budget in (_SHORT, _LONG):  # the longer one for a model that thinks first
            said, _ = self._ask(dialect, _PROMPT, arguments=arguments, budget=budget)
            if said.text.strip():
                return re.match(expected, unwrapped(said.text)) is not None
        return False

    def images(self, dialect: Dialect) -> tuple[Sight, str]:
        """Whether the server looks at pictures: two different ones must make a difference."""
        try:
            first, second = (self._shown(dialect, size) for size in _SIZES_WH)
        except Fault as fault:
            takes_none = fault.kind == "rejected" or (fault.kind == "server" and self._talks(dialect))
            return ("no" if takes_none else "unknown"), fault.reason
        (one, body), (two, other) = first, second
        if None not in (one.input_tokens, two.input_tokens) and one.input_tokens != two.input_tokens:
            return "yes", f"tokens with a picture and with a larger one: {one.input_tokens}, {two.input_tokens}"
        apart = _apart(_probabilities(body), _probabilities(other))
        if apart is not None and apart > LEAST_DIFFERENCE:
            return "yes", "two pictures give different probabilities"
        if apart is not None:
            return "unknown", f"two pictures give the same tokens, and the same probabilities within {LEAST_DIFFERENCE}"
        counted = "tokens that differ" if one.input_tokens is not None else "tokens"
        return "unknown", f"the server tells neither {counted} nor probabilities"

    def _shown(self, dialect: Dialect, size_wh: tuple[int, int]) -> tuple[Said, Mapping[str, Any]]:
        return self._ask(dialect, _PROMPT, pictures=(_picture(size_wh),), budget=_LEAST, probabilities=True)

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
            **merged(arguments or {}, budget_for(dialect, self._api, budget), self._request),
            "stream": False,
        }
        messages = messages_for(prompt, pictures, self._api)
        if probabilities and self._api == "chat.completions":
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
        until_s = time.monotonic() + self._patience.within_s

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
            stop=stop_before_delay(self._patience.within_s),
            reraise=True,
        )
        return retrying(once)

    def _asked(
        self, messages: Messages, arguments: Mapping[str, Any], until_s: float
    ) -> tuple[Said, Mapping[str, Any]]:
        if not self._gate.passed_here(until_s):
            raise Fault("busy", f"the server asks to wait {self._gate.closed_s:.0f} s, longer than an answer may take")
        try:
            response = self._connection.call(messages, arguments)
            said = read_response(response, self._api, self._connection.redact)
        except Exception as error:  # noqa: BLE001 - each becomes a fault
            fault = fault_of(error, self._connection.redact)
            if fault.wait_s is not None:
                self._gate.hold(fault.wait_s)
            raise fault from None
        self._spending.add_tokens((said.input_tokens or 0) + (said.output_tokens or 0))
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


def _marked_request(
    schema: GroundedSchema, dialect: Dialect, api: Api, mark: str
) -> tuple[Mapping[str, Any], re.Pattern[str]]:
    """Arguments that hold a schema with the mark in it, and what the answer must begin with."""
    if isinstance(schema, GroundedText):
        labels = FieldSchema.load({"choices": [mark]}).ground(0)
        return wire(labels, dialect, api).arguments, re.compile(rf'(?:\{{\s*"label"\s*:\s*")?{mark}')
    document = marked(form_for(schema, dialect).document, mark)
    return arguments_for(document, dialect, api), re.compile(rf'\{{\s*"{MARK}"\s*:\s*"{mark}"')


def marked(document: Node, mark: str) -> Node:
    """A schema with one more field, the first and required, that can have one value only."""
    if "anyOf" in document:
        return {**document, "anyOf": [marked(option, mark) for option in document["anyOf"]]}
    return {
        **document,
        "properties": {MARK: {"type": "string", "enum": [mark]}, **document.get("properties", {})},
        "required": [MARK, *document.get("required", [])],
    }


def _picture(size_wh: tuple[int, int]) -> str:
    width, height = size_wh
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    return data_uri(noise, quality=80)


def _probabilities(body: Mapping[str, Any]) -> dict[str, float]:
    """Probabilities of the likeliest first tokens; none where the server does not tell them."""
    try:
        top = body["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return {str(one["token"]): math.exp(min(0.0, float(one["logprob"]))) for one in top}
    except (KeyError, IndexError, TypeError, ValueError):
        return {}


def _apart(one: Mapping[str, float], two: Mapping[str, float]) -> float | None:
    """By how much they differ at least, since those beyond the likeliest are not told; None where one is empty."""
    if not one or not two:
        return None
    return max(
        *(value - two.get(token, min(min(two.values()), value)) for token, value in one.items()),
        *(value - one.get(token, min(min(one.values()), value)) for token, value in two.items()),
    )


def _advice(fault: Fault) -> str:
    if fault.kind == "transport":
        return "See that the server runs and that vlm.base_url is right; it ends in /v1 as a rule."
    if "401" in fault.reason or "403" in fault.reason:
        return "See that the variable named in vlm.api_key_env holds a key for this server."
    if "404" in fault.reason:
        return "See that vlm.model is a name that the server knows, and that vlm.base_url and vlm.api are right."
    return "See the server's own log; vlm.probe: false leaves this check out."
