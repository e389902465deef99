"""Proof instead of trust: does a server answer, does it see pictures, does it hold the schema that it is sent?

A server that ignores a schema answers with 200 all the same. Only one that constrains its decoding can echo a constant
that stands in the schema and nowhere in the prompt.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hazardlens.errors import ServerError
from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.bare import GroundedText
from hazardlens.vlm.remote.connection import Connection, messages_for
from hazardlens.vlm.remote.dialects import Api, Dialect
from hazardlens.vlm.remote.faults import Fault, fault_of
from hazardlens.vlm.remote.forms import Node, form_for
from hazardlens.vlm.remote.limits import Spending
from hazardlens.vlm.remote.pictures import data_uri
from hazardlens.vlm.remote.reading import Said, read_response
from hazardlens.vlm.remote.restoring import unwrapped
from hazardlens.vlm.remote.wire import arguments_for, budget_for, merged, wire

Sight = Literal["yes", "no", "unknown"]
"""Whether a server was seen to look at pictures."""

MARK = "mark"
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
    """

    def __init__(self, connection: Connection, request: Mapping[str, Any], spending: Spending) -> None:
        self._connection = connection
        self._request = request
        self._spending = spending

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
            Fault: If it does not take the request.
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
        """Whether the server looks at pictures: two different ones must make a difference somewhere."""
        small, large = (_picture(side) for side in (64, 448))
        try:
            plain, _ = self._ask(dialect, _PROMPT, budget=_LEAST)
            first, body = self._ask(dialect, _PROMPT, pictures=(small,), budget=_LEAST, probabilities=True)
            second, other = self._ask(dialect, _PROMPT, pictures=(large,), budget=_LEAST, probabilities=True)
        except Fault as fault:
            return ("no", fault.reason) if fault.kind in ("rejected", "server") else ("unknown", fault.reason)
        counts = plain.input_tokens, first.input_tokens, second.input_tokens
        if None not in counts and len(set(counts)) > 1:
            return "yes", f"tokens without a picture, with one, with a larger one: {', '.join(map(str, counts))}"
        seen = _probabilities(body), _probabilities(other)
        if None not in seen and seen[0] != seen[1]:
            return "yes", "two pictures give different probabilities"
        if None not in counts:
            return "no", f"a picture adds no tokens to the {counts[0]} of the prompt"
        return "unknown", "the server tells neither tokens nor probabilities"

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
        wanted = {"logprobs": True, "top_logprobs": 5} if probabilities and self._api == "chat.completions" else {}
        base = merged(arguments or {}, budget_for(dialect, self._api, budget), {"stream": False}, self._request)
        messages = messages_for(prompt, pictures, self._api)
        try:
            try:
                response = self._connection.call(messages, {**base, **wanted})
            except Exception:
                if not wanted:
                    raise
                response = self._connection.call(messages, base)
            said = read_response(response, self._api, self._connection.redact)
        except Exception as error:  # noqa: BLE001 - each becomes a fault
            raise fault_of(error, self._connection.redact) from None
        self._spending.add_tokens((said.input_tokens or 0) + (said.output_tokens or 0))
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


def _picture(side_px: int) -> str:
    noise = np.random.default_rng(side_px).integers(0, 256, (side_px, side_px, 3), np.uint8)
    return data_uri(noise, quality=80)


def _probabilities(body: Mapping[str, Any]) -> Any:
    try:
        return body["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
    except (KeyError, IndexError, TypeError):
        return None


def _advice(fault: Fault) -> str:
    if fault.kind == "transport":
        return "See that the server runs and that vlm.base_url is right; it ends in /v1 as a rule."
    if "401" in fault.reason or "403" in fault.reason:
        return "See that the variable named in vlm.api_key_env holds a key for this server."
    if "404" in fault.reason:
        return "See that vlm.model is a name that the server knows, and that vlm.base_url and vlm.api are right."
    return "See the server's own log; vlm.probe: false leaves this check out."
