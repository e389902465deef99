"""Writes `if`, `not`, `dependentRequired` and `dependentSchemas` as alternatives, which a mask can hold.

Only what says exactly the same is rewritten; of the rest, the finished answer is checked.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

from hazardlens.schema.combine import Schema

REWRITABLE = frozenset({"if", "not", "dependentRequired", "dependentSchemas"})
"""Keywords that may be rewritten."""

_SILENT = frozenset({"title", "description", "$comment", "default", "examples", "deprecated"})
_OBJECT = {"type": "object"}


def rewritten(node: Schema, declared: frozenset[str]) -> dict[str, list[list[Any]]]:
    """What the keywords of `node` that can be rewritten say, each as groups of schemas, one of each group to hold.

    A keyword that names properties which are not `declared` is left alone, for nothing bounds them.
    """
    found = {
        "if": _conditional(node),
        "not": _denied(node),
        "dependentRequired": [
            [_absent(name), {"required": [name, *needed]}] for name, needed in node.get("dependentRequired", {}).items()
        ],
        "dependentSchemas": [
            [_absent(name), {"required": [name], "allOf": [part]}]
            for name, part in node.get("dependentSchemas", {}).items()
        ],
    }
    return {keyword: groups for keyword, groups in found.items() if groups and declared.issuperset(_named(groups))}


def declared_names(nodes: Iterable[Any]) -> frozenset[str]:
    """Names of the properties that schemas which apply together declare."""
    parts = [node for node in nodes if isinstance(node, dict)]
    nested = [declared_names(node["allOf"]) for node in parts if "allOf" in node]
    return frozenset(name for node in parts for name in node.get("properties", ())).union(*nested)


def negated(schema: Any) -> list[Any] | None:
    """Schemas of which one holds wherever `schema` does not, or None where they cannot be told exactly.

    For objects only, where it asks for properties: those of another type are left to whoever states the type.
    """
    if isinstance(schema, bool):
        return [] if schema else [True]
    keys = set(schema) - _SILENT
    if _is_about_values(schema):
        return [{"not": schema}]
    if keys == {"not"}:
        return [schema["not"]]
    if keys and keys <= {"properties", "required"}:
        return _negated_object(schema)
    if keys not in ({"anyOf"}, {"allOf"}):
        return None
    parts = [negated(part) for part in schema[next(iter(keys))]]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return [way for part in known for way in part] if keys == {"allOf"} else _all_of_each(known)


def _all_of_each(parts: list[list[Any]]) -> list[Any]:
    return [{"allOf": list(ways)} for ways in product(*parts)]


def _is_about_values(schema: Any) -> bool:
    """Whether it is about values only; beside an `enum`, a `not` of it is held by leaving values out."""
    return isinstance(schema, dict) and set(schema) - _SILENT in ({"const"}, {"enum"})


def _denied(node: Schema) -> list[list[Any]]:
    if "not" not in node or _is_about_values(node["not"]):
        return []
    others = negated(node["not"])
    return [] if others is None else [others]


def _negated_object(schema: Schema) -> list[Any] | None:
    ways: list[Any] = [_absent(name) for name in schema.get("required", ())]
    for name, part in schema.get("properties", {}).items():
        others = negated(part)
        if others is None:
            return None
        ways += [{**_OBJECT, "required": [name], "properties": {name: other}} for other in others]
    return ways


def _conditional(node: Schema) -> list[list[Any]]:
    if "if" not in node or ("then" not in node and "else" not in node):
        return []
    otherwise = negated(node["if"])
    if otherwise is None:
        return []
    meets = {"allOf": [node["if"], node.get("then", True)]}
    return [[meets, *({"allOf": [other, node.get("else", True)]} for other in otherwise)]]


def _absent(name: str) -> Schema:
    return {**_OBJECT, "properties": {name: False}}


def _named(value: Any) -> Iterable[str]:
    """Names of all properties that schemas ask for at this place."""
    if isinstance(value, list):
        for part in value:
            yield from _named(part)
    elif isinstance(value, dict):
        yield from value.get("properties", ())
        yield from value.get("required", ())
        yield from _named([value.get(key) for key in ("allOf", "anyOf", "oneOf", "if", "then", "else", "not")])
