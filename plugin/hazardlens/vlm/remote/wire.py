"""From a schema and a dialect to the arguments of a request: pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from hazardlens.schema import ITEM_SEPARATOR, KEY_SEPARATOR, GroundedSchema
from hazardlens.schema.bare import Bare, Choices, GroundedText, Pattern, Written
from hazardlens.vlm.remote.dialects import Api, Dialect
from hazardlens.vlm.remote.forms import form_for

NAME = "hazardlens_fields"
"""Name of the schema, and of the function, on the wire."""

_SPELLING = {"whitespace_flexible": False, "item_separator": ITEM_SEPARATOR, "key_separator": KEY_SEPARATOR}
"""The mask's, so that a model says on a server what it says in process."""
_NOTATIONS = {"lark": "Lark", "gbnf": "GBNF"}
_SHAPES = 128
"""Shapes of schemas that are remembered; a frame has one for each number of its detections."""
_BUDGETS = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Wired:
    """A schema on the wire.

    Attributes:
        arguments: Arguments of the request that hold the constraint; empty where the server takes none.
        told: Words that tell the form, for the prompt where nothing else holds it.
        checked: What the constraint does not carry, each with its JSON pointer; validation holds it instead.
    """

    arguments: Mapping[str, Any]
    told: str
    checked: tuple[str, ...]


def wire(schema: GroundedSchema, dialect: Dialect, api: Api) -> Wired:
    """Write a schema into the arguments of a request.

    Raises:
        SchemaError: If it is larger than the dialect's servers take.
    """
    if isinstance(schema, GroundedText):
        arguments = _text_arguments(schema, dialect)
        if arguments is not None:
            return Wired(arguments=arguments, told=_told_text(schema), checked=())
    form = form_for(schema, dialect)
    arguments = arguments_for(form.document, dialect, api)
    checked = ("/: everything",) if dialect.wire(api) in ("none", "json_object") else form.checked
    if isinstance(schema, GroundedText) and not isinstance(schema.bare, Choices):
        what = "the regular expression" if isinstance(schema.bare, Pattern) else "the grammar"
        checked = (*checked, f"/properties/{schema.bare.field}: {what}")
    document = json.dumps(form.document, ensure_ascii=False, separators=(",", ":"))
    told = f"Answer with one JSON object and nothing else. It must satisfy this JSON Schema:\n{document}"
    if isinstance(schema, GroundedText) and (rule := _rule(schema.bare)):
        told = f"{told}\nIts field {schema.bare.field} {rule}"
    return Wired(arguments=arguments, told=told, checked=checked)


def wired(schema: GroundedSchema, dialect: Dialect, api: Api) -> Wired:
    """The same, written once for all questions of one shape.

    Raises:
        SchemaError: If it is larger than the dialect's servers take.
    """
    return _written(_Sending(key=schema.key, schema=schema, dialect=dialect, api=api))


@dataclass(frozen=True, kw_only=True)
class _Sending:
    """A schema and how it is sent, equal where the schemas are of equal shape."""

    key: tuple[str, int]
    schema: GroundedSchema = field(compare=False)
    dialect: Dialect
    api: Api


@lru_cache(maxsize=_SHAPES)
def _written(sending: _Sending) -> Wired:
    return wire(sending.schema, sending.dialect, sending.api)


def takes_text(schema: GroundedText, dialect: Dialect) -> bool:
    """Whether a dialect takes the constraint of a text as it is; else a JSON object stands for the text."""
    return _text_arguments(schema, dialect) is not None


def proves(schema: GroundedSchema, dialect: Dialect, api: Api) -> bool:
    """Whether a constant that comes back shows that the schema is held.

    The parameters of a function stand in the model's prompt as well. And where a JSON object stands for a text, its
    expression or grammar is not sent at all, whatever becomes of the object.
    """
    if isinstance(schema, GroundedText) and not isinstance(schema.bare, Choices) and not takes_text(schema, dialect):
        return False
    return dialect.wire(api) != "function"


def merged(*arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments laid over each other, the last on top; those in `extra_body` and `extra_headers` each by itself.

    A null takes an argument out.
    """
    result: dict[str, Any] = {}
    for one in arguments:
        for key, value in one.items():
            inner = result.get(key)
            if key in ("extra_body", "extra_headers") and isinstance(inner, Mapping) and isinstance(value, Mapping):
                result[key] = {**inner, **value}
            else:
                result[key] = value
    return {key: value for key, value in result.items() if value is not None}


def budget_for(dialect: Dialect, api: Api, tokens: int) -> dict[str, Any]:
    """The argument that bounds an answer's tokens."""
    return {dialect.chat_budget if api == "chat.completions" else "max_output_tokens": tokens}


def budget_in(arguments: Mapping[str, Any]) -> int | None:
    """The tokens that an answer may take by the arguments of a request, whoever named them; None where it has no bound.

    Args:
        arguments: All of them, merged.
    """
    inner = arguments.get("extra_body")
    named = [*arguments.items(), *(inner.items() if isinstance(inner, Mapping) else ())]
    found = [
        value for name, value in named if name in _BUDGETS and isinstance(value, int) and not isinstance(value, bool)
    ]
    return min(found, default=None)


def arguments_for(document: Mapping[str, Any], dialect: Dialect, api: Api) -> dict[str, Any]:
    """The arguments that hold a schema that is written as the dialect takes it."""
    chat = api == "chat.completions"
    strict = {"strict": True} if dialect.strict else {}
    if dialect.spelled:
        document = {**document, "x-guidance": _SPELLING}
    match dialect.wire(api):
        case "json_schema":
            named = {"name": NAME, "schema": document, **strict}
            if chat:
                return {"response_format": {"type": "json_schema", "json_schema": named}}
            return {"text": {"format": {"type": "json_schema", **named}}}
        case "body_json_schema":
            named = {"name": NAME, "schema": document, **strict}
            return {"extra_body": {"response_format": {"type": "json_schema", "json_schema": named}}}
        case "function":
            function = {"name": NAME, "description": "Report the fields.", "parameters": document, **strict}
            if chat:
                choice = {"type": "function", "function": {"name": NAME}}
                return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}
            return {
                "tools": [{"type": "function", **function, "strict": dialect.strict}],
                "tool_choice": {"type": "function", "name": NAME},
            }
        case "json_object":
            kind = {"type": "json_object"}
            return {"response_format": kind} if chat else {"text": {"format": kind}}
        case "none":
            return {}


def _text_arguments(schema: GroundedText, dialect: Dialect) -> dict[str, Any] | None:
    """Arguments for an answer that is no JSON, or None where the dialect takes JSON only."""
    bare = schema.bare
    match dialect.texts, bare:
        case "structured_outputs", Choices():
            return {"extra_body": {"structured_outputs": {"choice": list(bare.labels)}}}
        case "structured_outputs", Pattern():
            return {"extra_body": {"structured_outputs": {"regex": bare.regex}}}
        case "structured_outputs", Written():
            return {"extra_body": {"structured_outputs": {"grammar": bare.text}}}
        case "gbnf", Written(kind="gbnf"):
            return {"extra_body": {"grammar": bare.text}}
        case "gbnf", Choices():
            options = " | ".join(json.dumps(label, ensure_ascii=False) for label in bare.labels)
            return {"extra_body": {"grammar": f"root ::= {options}"}}
        case _:
            return None


def _told_text(schema: GroundedText) -> str:
    bare = schema.bare
    if isinstance(bare, Choices):
        return f"Answer with one of these words and nothing else: {', '.join(bare.labels)}"
    return f"Answer with {bare.form}. It {_rule(bare)}"


def _rule(bare: Bare) -> str:
    """What a text has to satisfy, in words; empty for labels, which a schema names itself."""
    match bare:
        case Pattern():
            return f"must match this regular expression as a whole: {bare.regex}"
        case Written():
            return f"must satisfy this grammar ({_NOTATIONS[bare.kind]}):\n{bare.text}"
        case _:
            return ""
