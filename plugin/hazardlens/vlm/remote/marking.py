"""The mark: a constant in a schema that no prompt names, so that only a server which holds the schema can echo it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.bare import Bare, Choices, GroundedText, Pattern
from hazardlens.vlm.remote.dialects import Api, Dialect
from hazardlens.vlm.remote.forms import Node, form_for
from hazardlens.vlm.remote.wire import arguments_for, takes_text, wire

MARK = "mark"


def marked_request(schema: GroundedSchema, dialect: Dialect, api: Api, mark: str) -> tuple[Mapping[str, Any], str]:
    """Arguments that hold a schema in the form in which it is sent, with the mark in it.

    Args:
        schema: What is asked with.
        dialect: How the server is asked.
        api: The API that is called.
        mark: Letters and digits.

    Returns:
        The arguments, empty where the server takes none, and what an answer must begin with, blanks left out.
    """
    if isinstance(schema, GroundedText) and takes_text(schema, dialect):
        alone = FieldSchema.load(_only(schema.bare, mark)).ground(0)
        return wire(alone, dialect, api).arguments, mark
    document = marked(form_for(schema, dialect).document, mark)
    return arguments_for(document, dialect, api), f'{{"{MARK}":"{mark}"'


def marked(document: Node, mark: str) -> Node:
    """A schema with one more field, the first and required, that can have one value only."""
    if "anyOf" in document:
        return {**document, "anyOf": [marked(option, mark) for option in document["anyOf"]]}
    return {
        **document,
        "properties": {MARK: {"type": "string", "enum": [mark]}, **document.get("properties", {})},
        "required": [MARK, *document.get("required", [])],
    }


def _only(bare: Bare, mark: str) -> dict[str, Any]:
    """A constraint of the same kind that only the mark satisfies."""
    if isinstance(bare, Choices):
        return {"choices": [mark]}
    if isinstance(bare, Pattern):
        return {"regex": mark}
    return {bare.kind: f'{"root ::=" if bare.kind == "gbnf" else "start:"} "{mark}"'}
