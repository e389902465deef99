"""Fields in plain words, for a prompt."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hazardlens.schema.combine import Schema
from hazardlens.schema.spelling import spell

_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
}
_DEEPEST = 3
_NESTED = ("allOf", "anyOf", "oneOf")


def describe(frame: dict[str, Schema], objects: dict[str, Schema]) -> str:
    """The fields of a frame and of each detection, one a line, with what they may hold."""
    parts = []
    if frame:
        parts.append("For the picture as a whole:\n" + _lines(frame))
    if objects:
        parts.append("For each numbered object, in detections:\n" + _lines(objects))
    return "\n\n".join(parts)


def choices(schema: Any) -> list[Any] | None:
    """The values of the first `enum` at this place, in rank order, or None where there is none."""
    if not isinstance(schema, dict):
        return None
    if "enum" in schema:
        return list(schema["enum"])
    nested = (choices(branch) for key in _NESTED for branch in schema.get(key, ()))
    return next((found for found in nested if found is not None), None)


def _lines(fields: dict[str, Schema], indent: str = "", above: tuple[int, ...] = ()) -> str:
    return "\n".join(_line(name, schema, indent, above) for name, schema in fields.items())


def _line(name: str, schema: Any, indent: str, above: tuple[int, ...]) -> str:
    schema = schema if isinstance(schema, dict) else {}
    description = " ".join(str(schema.get("description", "")).split())
    line = f"{indent}- {name} ({_kind(schema)})" + (f": {description}" if description else "")
    inner = _properties(schema)
    if not inner:
        return line
    # What holds itself is described once.
    names = tuple(map(id, inner.values()))
    if set(names) <= set(above):
        return f"{line}, made as above"
    return line + "\n" + _lines(inner, indent + "  ", above + names)


def _properties(schema: Schema) -> dict[str, Schema]:
    items = schema.get("items")
    own = schema.get("properties") or (items.get("properties") if isinstance(items, dict) else None) or {}
    found: dict[str, Schema] = dict(own)
    for branch in _branches(schema):
        for name, inner in _properties(branch).items():
            found.setdefault(name, inner)
    return found


def _branches(schema: Schema) -> Iterable[Schema]:
    return (branch for key in _NESTED for branch in schema.get(key, ()) if isinstance(branch, dict))


def _kind(schema: Schema, depth: int = 0) -> str:
    if "const" in schema:
        return f"always {_value(schema['const'])}"
    if "enum" in schema:
        return "one of: " + ", ".join(map(_value, schema["enum"]))
    name = schema.get("type")
    if name is None:
        kinds = dict.fromkeys(_kind(branch, depth) for branch in _branches(schema))
        return ", or ".join(kinds) or "a value"
    names = [name] if isinstance(name, str) else list(name)
    return " or ".join(_typed(one, schema, depth) for one in names)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else spell(value)


def _typed(name: str, schema: Schema, depth: int) -> str:
    if name == "string":
        limit = f", up to {schema['maxLength']} characters" if "maxLength" in schema else ""
        form = f", a {schema['format']}" if "format" in schema else ""
        return "text" + form + limit
    if name in ("integer", "number"):
        bounds = [words.format(spell(schema[key])) for key, words in _BOUNDS.items() if key in schema]
        return ", ".join(["whole number" if name == "integer" else "number", *bounds])
    if name == "array":
        inner = schema.get("items")
        of = ""
        if isinstance(inner, dict) and depth < _DEEPEST and not _properties(inner):
            of = f" of: {_kind(inner, depth + 1)}"
        limit = f", up to {schema['maxItems']}" if "maxItems" in schema else ""
        return f"list{limit}{of}"
    return {"boolean": "true or false", "null": "null", "object": "object"}[name]
