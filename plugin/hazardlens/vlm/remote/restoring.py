"""The reader of an answer: from what a server wrote back to the text that the schema itself asks for."""

from __future__ import annotations

import re
from typing import Any

from hazardlens.schema import GroundedSchema
from hazardlens.schema.spelling import read_strict, spell
from hazardlens.schema.validation import validator_for
from hazardlens.vlm.remote.forms import DETECTIONS

_THINKING = re.compile(r"^\s*<(think|thinking|reasoning|reason)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_THOUGHT = re.compile(r"^.*</(?:think|thinking|reasoning|reason)>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[a-zA-Z0-9_-]*+[ \t]*+\r?\n(.*?)```", re.DOTALL)


def restored(text: str, schema: GroundedSchema) -> str:
    """The answer in the schema's own form, where it can be told; all else is left as it is, for validation to judge.

    Thinking and fences around it are taken off, detections keyed by id become the array again, and a null that stands
    for something optional is left out. Nothing is ever added or mended.

    Args:
        text: The text that a server gave.
        schema: What was asked with.
    """
    text = unwrapped(text)
    try:
        value = read_strict(text)
    except ValueError:
        return text
    if not isinstance(value, dict):
        return text
    changed = _without_nulls(_listed(value, schema), schema.mask_document)
    return text if changed == value else spell(changed)


def unwrapped(text: str) -> str:
    """The answer without thinking before it and a fence around it."""
    text = _THINKING.sub("", text, count=1)
    if "{" not in text.partition("</")[0]:
        text = _THOUGHT.sub("", text, count=1)
    fences = _FENCE.findall(text)
    if len(fences) == 1 and not text.lstrip().startswith("{"):
        text = fences[0]
    return text.strip()


def _listed(value: dict[str, Any], schema: GroundedSchema) -> dict[str, Any]:
    """Detections keyed by id as an array in the order of ids; where none were asked about, an empty one."""
    if DETECTIONS not in schema.document.get("properties", {}):
        return value
    found = value.get(DETECTIONS)
    if found is None and schema.count == 0 and DETECTIONS not in value:
        return {**value, DETECTIONS: []}
    if not isinstance(found, dict) or not all(_is_entry(key, entry) for key, entry in found.items()):
        return value
    entries = [{"id": int(key), **entry} for key, entry in sorted(found.items(), key=lambda item: int(item[0]))]
    return {**value, DETECTIONS: entries}


def _is_entry(key: str, entry: object) -> bool:
    return key.isascii() and key.isdigit() and len(key) < 10 and isinstance(entry, dict) and "id" not in entry


def _without_nulls(value: Any, node: Any) -> Any:
    """Leave out a null where the schema has something optional that is never null."""
    if not isinstance(node, dict) or validator_for(node).is_valid(value):
        return value
    if "anyOf" in node:
        tried = [_without_nulls(value, option) for option in node["anyOf"]]
        return next((one for one in tried if validator_for(node).is_valid(one)), tried[0])
    if isinstance(value, dict):
        parts, required = node.get("properties", {}), node.get("required", [])
        return {
            name: _without_nulls(item, parts.get(name))
            for name, item in value.items()
            if item is not None or name in required or name not in parts or validator_for(parts[name]).is_valid(None)
        }
    if isinstance(value, list):
        prefix, rest = node.get("prefixItems", []), node.get("items")
        return [
            _without_nulls(item, prefix[index] if index < len(prefix) else rest) for index, item in enumerate(value)
        ]
    return value
