"""Shapes of arrays, and which properties an object may have."""

from __future__ import annotations

import re
from typing import Any, Protocol

from hazardlens.schema.combine import Schema
from hazardlens.schema.findings import Findings, step
from hazardlens.schema.shapes import Array, Choice, Never, Shape


class Compiling(Protocol):
    """What is needed of a compiler to compile the parts of a container."""

    places: dict[int, str]
    findings: Findings

    def compile(self, nodes: tuple[Any, ...], pointer: str) -> Shape:
        """The shape of what satisfies all of `nodes`."""


def array(compiler: Compiling, nodes: tuple[Schema, ...], pointer: str) -> Shape:
    """The shape of the arrays that satisfy `nodes`."""
    shape = _array(compiler, nodes, pointer)
    if not isinstance(shape, Array) or shape.high < 2 or not any(node.get("uniqueItems") for node in nodes):
        return shape
    if not shape.prefix and isinstance(shape.rest, Choice) and len(shape.rest.values) < shape.low:
        return Never(((pointer, "uniqueItems asks for more different items than there are"),), pointer=pointer)
    for node in nodes:
        if node.get("uniqueItems"):
            place = compiler.places.get(id(node), pointer)
            compiler.findings.add(place + "/uniqueItems", "checked", "uniqueItems is not held by the mask")
    return shape


def _array(compiler: Compiling, nodes: tuple[Schema, ...], pointer: str) -> Shape:
    low = max((int(node["minItems"]) for node in nodes if "minItems" in node), default=0)
    high = min((int(node["maxItems"]) for node in nodes if "maxItems" in node), default=None)
    length = max(len(node.get("prefixItems", ())) for node in nodes)
    prefix: list[Shape] = []
    for index in range(length if high is None else min(length, high)):
        item = compiler.compile(_items(nodes, index), step(pointer, "prefixItems", index))
        if isinstance(item, Never):
            return _ended(low, tuple(prefix), item, pointer, high=index)
        prefix.append(item)
    if high is not None and high <= len(prefix):
        return _sized(low, high, Array(tuple(prefix), None, low, high, pointer=pointer), pointer)
    rest = _rest(compiler, nodes, length, pointer, bounded=high is not None)
    if rest is None or isinstance(rest, Never):
        return _ended(low, tuple(prefix), rest or Never(), pointer, high=len(prefix))
    if high is None:
        compiler.findings.add(pointer, "error", "unbounded: an array without maxItems", "Add maxItems.")
        return Never(pointer=pointer)
    return _sized(low, high, Array(tuple(prefix), rest, low, high, pointer=pointer), pointer)


def _items(nodes: tuple[Schema, ...], index: int) -> tuple[Any, ...]:
    parts = []
    for node in nodes:
        prefix = node.get("prefixItems", ())
        parts.append(prefix[index] if index < len(prefix) else node.get("items", True))
    return tuple(parts)


def _rest(compiler: Compiling, nodes: tuple[Schema, ...], length: int, pointer: str, *, bounded: bool) -> Shape | None:
    parts = _items(nodes, length)
    if False in parts:
        return None
    if not bounded and all(part is True for part in parts):
        # One error is enough: that the array has no end.
        return Choice((None,))
    return compiler.compile(parts, step(pointer, "items"))


def _ended(low: int, prefix: tuple[Shape, ...], why: Never, pointer: str, *, high: int) -> Shape:
    if low <= high:
        return Array(prefix, None, low, high, pointer=pointer)
    reasons = why.reasons or ((pointer, f"minItems {low} is more than the {high} items that are possible"),)
    return Never(reasons, pointer=pointer)


def _sized(low: int, high: int, shape: Shape, pointer: str) -> Shape:
    if low <= high:
        return shape
    return Never(((pointer, f"minItems {low} is more than maxItems {high}"),), pointer=pointer)


def property_names(
    compiler: Compiling, nodes: tuple[Schema, ...], pointer: str
) -> list[tuple[str, tuple[Any, ...], bool]] | None:
    """Names, subschemas and whether each is required, of the properties that the mask lets through.

    None where the object has no end, which is noted as an error.
    """
    names = dict.fromkeys(name for node in nodes for name in node.get("properties", {}))
    required = dict.fromkeys(name for node in nodes for name in node.get("required", ()))
    names.update(required)
    if not names and not any(_is_closed(node) for node in nodes):
        compiler.findings.add(
            pointer, "error", "unbounded: an object without properties", "Name its properties, or close it."
        )
        return None
    _note_closed(compiler, nodes, pointer)
    return [(name, tuple(_parts(nodes, name)), name in required) for name in names]


def _is_closed(node: Schema) -> bool:
    return node.get("additionalProperties") is False and not node.get("patternProperties")


def _note_closed(compiler: Compiling, nodes: tuple[Schema, ...], pointer: str) -> None:
    if any(_is_closed(node) or node.get("unevaluatedProperties") is False for node in nodes):
        return
    owner = next((node for node in nodes if "properties" in node), nodes[0])
    message = "open to properties it does not name: the mask lets through only those it names"
    place = compiler.places.get(id(owner), pointer)
    compiler.findings.add(place, "closed", message, 'Add "additionalProperties": false to say so.')


def _parts(nodes: tuple[Schema, ...], name: str) -> list[Any]:
    parts: list[Any] = []
    for node in nodes:
        matching = [part for pattern, part in node.get("patternProperties", {}).items() if re.search(pattern, name)]
        declared = node.get("properties", {})
        if name in declared:
            matching.insert(0, declared[name])
        parts.extend(matching or [node.get("additionalProperties", True)])
    return parts
