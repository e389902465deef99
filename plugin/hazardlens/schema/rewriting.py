"""Writes `if`, `not`, `dependentRequired` and `dependentSchemas` as alternatives, which a mask can hold.

Only what says exactly the same is rewritten; of the rest, the finished answer is checked.
"""

from __future__ import annotations

from itertools import combinations, product
from math import prod
from typing import Any

from hazardlens.schema.combine import Schema
from hazardlens.schema.spelling import canonical, spell

REWRITABLE = frozenset({"oneOf", "if", "not", "dependentRequired", "dependentSchemas"})
"""Keywords that may be rewritten."""

_SILENT = frozenset({"title", "description", "$comment", "default", "examples", "deprecated"})
_OBJECT = {"type": "object"}
_TYPES = ("null", "boolean", "number", "string", "array", "object")
_OPPOSITES: dict[str, tuple[str, str, int]] = {
    "minimum": ("number", "exclusiveMaximum", 0),
    "exclusiveMinimum": ("number", "maximum", 0),
    "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMaximum": ("number", "minimum", 0),
    "minLength": ("string", "maxLength", -1),
    "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1),
    "maxItems": ("array", "minItems", 1),
}
_DEEPEST = 5
_MOST_WAYS = 32


def rewritten(node: Schema) -> dict[str, list[list[Any]]]:
    """What the keywords of `node` that can be rewritten say, each as groups of schemas, one of each group to hold.

    `oneOf` is told here only as far as its branches could hold together.
    """
    found = {
        "oneOf": _single(node),
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
    return {keyword: groups for keyword, groups in found.items() if groups}


def negated(schema: Any, depth: int = 0) -> list[Any] | None:
    """Schemas of which one holds wherever `schema` does not, or None where they cannot be told exactly."""
    if isinstance(schema, bool):
        return [] if schema else [True]
    ways: list[Any] = []
    for keyword in schema:
        if keyword in _SILENT:
            continue
        others = None if depth > _DEEPEST else _negated_keyword(schema, keyword, depth)
        if others is None:
            return None
        ways += others
    return ways


def _negated_keyword(schema: Schema, keyword: str, depth: int) -> list[Any] | None:
    value = schema[keyword]
    if keyword in ("const", "enum"):
        return [{"not": {keyword: value}}]
    if keyword == "not":
        return [value]
    if keyword == "type":
        return _other_types([value] if isinstance(value, str) else value)
    if keyword in _OPPOSITES:
        name, opposite, change = _OPPOSITES[keyword]
        return [{"type": name, opposite: value + change}] if value + change >= 0 or name == "number" else []
    if keyword == "required":
        return [_absent(name) for name in value]
    if keyword == "properties":
        return _negated_properties(value, depth)
    if keyword not in ("allOf", "anyOf"):
        return None
    parts = [negated(part, depth + 1) for part in value]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return [way for part in known for way in part] if keyword == "allOf" else _all_of_each(known)


def _other_types(names: list[str]) -> list[Any] | None:
    if "integer" in names and "number" not in names:
        return None
    return [{"type": [name for name in _TYPES if name not in names]}] if not set(_TYPES) <= set(names) else []


def _negated_properties(properties: dict[str, Any], depth: int) -> list[Any] | None:
    ways: list[Any] = []
    for name, part in properties.items():
        others = negated(part, depth + 1)
        if others is None:
            return None
        ways += [{**_OBJECT, "required": [name], "properties": {name: other}} for other in others]
    return ways


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


def _single(node: Schema) -> list[list[Any]]:
    """That no two branches of `oneOf` hold together: for each, the others negated."""
    branches = node.get("oneOf", [])
    if len(branches) < 2 or all(apart(one, other) for one, other in combinations(branches, 2)):
        return []
    others = [negated(branch) for branch in branches]
    known = [ways for ways in others if ways is not None]
    if len(known) < len(branches):
        return []
    ways = []
    for index, branch in enumerate(branches):
        rest = known[:index] + known[index + 1 :]
        if prod(map(len, rest)) > _MOST_WAYS:
            return []
        ways += [{"allOf": [branch, *way]} for way in product(*rest)]
    return [ways]


def apart(one: Any, other: Any) -> bool:
    """Whether it is plain to see that nothing satisfies both."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one is False or other is False
    mine, theirs = _types(one), _types(other)
    if mine and theirs and mine.isdisjoint(theirs):
        return True
    if "const" in one and "const" in other:
        return spell(canonical(one["const"])) != spell(canonical(other["const"]))
    shared = set(one.get("required", ())) & set(other.get("required", ()))
    return any(
        apart(one.get("properties", {}).get(name, True), other.get("properties", {}).get(name, True)) for name in shared
    )


def _types(schema: Schema) -> set[str]:
    value = schema.get("type", ())
    names = {value} if isinstance(value, str) else set(value)
    return names | {"integer"} if "number" in names else names


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
