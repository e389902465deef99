"""Replaces every `$ref` by what it refers to, and remembers where each place came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from hazardlens.schema.findings import Findings, step

_ONE = (
    "additionalProperties",
    "items",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_DROPPED = frozenset({"$ref", "$defs", "definitions", "$anchor", "$id", "$comment"})
_REMOTE_HELP = "Copy what it refers to into $defs and write #/$defs/NAME."


@dataclass(frozen=True, slots=True)
class _Visit:
    target: str
    must: bool


class Resolver:
    """Resolves one document.

    Args:
        document: A schema that satisfies the metaschema.
        findings: Where dangling, remote and endless references are noted.

    Attributes:
        places: JSON pointer in the document by the `id()` of each resolved subschema, which the result keeps alive.
    """

    def __init__(self, document: dict[str, Any], findings: Findings) -> None:
        self.places: dict[int, str] = {}
        self._document = document
        self._findings = findings
        self._done: dict[str, Any] = {}

    def resolve(self) -> dict[str, Any]:
        """The whole document without references; subschemas referred to twice are shared, not copied."""
        resolved = self._node(self._document, "", (_Visit("", True),))
        if "$schema" in self._document:
            resolved = {"$schema": self._document["$schema"], **resolved}
            self.places[id(resolved)] = ""
        return resolved  # type: ignore[no-any-return]

    def _node(self, node: Any, pointer: str, visits: tuple[_Visit, ...]) -> Any:
        if not isinstance(node, dict):
            return node
        if "$dynamicRef" in node:
            self._findings.add(pointer + "/$dynamicRef", "error", "$dynamicRef is not followed", "Use $ref.")
        result = {key: self._member(node, key, pointer, visits) for key in node if key not in _DROPPED}
        place = pointer
        if "$ref" in node:
            target, place = self._reference(node["$ref"], pointer, visits)
            result, place = self._joined(target, place, result, pointer)
        self.places[id(result)] = place
        return result

    def _joined(self, target: Any, place: str, own: dict[str, Any], pointer: str) -> tuple[dict[str, Any], str]:
        if isinstance(target, dict) and _ANNOTATIONS.issuperset(own):
            return {**target, **own}, place
        return {**own, "allOf": [target, *own.get("allOf", [])]}, pointer

    def _member(self, node: dict[str, Any], key: str, pointer: str, visits: tuple[_Visit, ...]) -> Any:
        value, place = node[key], step(pointer, key)
        if key in _ONE:
            return self._node(value, place, _onward(visits, key == "items" and node.get("minItems", 0) > 0))
        if key in _LISTS:
            must = key == "allOf" or (key == "prefixItems" and node.get("minItems", 0) > 0)
            return [self._node(item, step(place, index), _onward(visits, must)) for index, item in enumerate(value)]
        if key in _MAPS:
            needed = node.get("required", []) if key == "properties" else []
            return {
                name: self._node(item, step(place, name), _onward(visits, name in needed))
                for name, item in value.items()
            }
        return value

    def _reference(self, reference: str, pointer: str, visits: tuple[_Visit, ...]) -> tuple[Any, str]:
        place = pointer + "/$ref"
        target = self._target(reference, place)
        if target is None:
            return True, pointer
        for position, visit in enumerate(visits):
            if visit.target == target:
                self._endless(place, reference, all(later.must for later in visits[position + 1 :]))
                return True, target
        if target not in self._done:
            self._done[target] = self._node(self._walk(target), target, (*visits, _Visit(target, True)))
        return self._done[target], target

    def _endless(self, place: str, reference: str, must: bool) -> None:
        if must:
            message = f"never satisfiable: what {reference} describes requires itself, without end"
        else:
            message = f"never bounded: {reference} leads back to itself, so an answer could nest without end"
        self._findings.add(place, "error", message, "Write the levels out that you need.")

    def _target(self, reference: str, place: str) -> str | None:
        base = self._document.get("$id", "")
        local = reference.removeprefix(base) if base and reference.startswith(base) else reference
        if local and not local.startswith("#"):
            self._findings.add(place, "error", f"remote reference {reference!r}", _REMOTE_HELP)
            return None
        fragment = unquote(local[1:])
        pointer = self._anchor(fragment) if fragment and not fragment.startswith("/") else fragment
        if pointer is None or not isinstance(self._walk(pointer), dict | bool):
            self._findings.add(place, "error", f"{reference!r} refers to nothing", "Mend the name, or add it to $defs.")
            return None
        return pointer

    def _walk(self, pointer: str) -> Any:
        node: Any = self._document
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and int(key) < len(node):
                node = node[int(key)]
            else:
                return None
        return node

    def _anchor(self, name: str) -> str | None:
        for key in ("$defs", "definitions"):
            for entry, node in self._document.get(key, {}).items():
                if isinstance(node, dict) and node.get("$anchor") == name:
                    return step("", key, entry)
        return None


def _onward(visits: tuple[_Visit, ...], must: bool) -> tuple[_Visit, ...]:
    if must:
        return visits
    # Between two references one optional step is enough to make the way back optional.
    return (*visits, _Visit("\0", False))
