"""Shapes of arrays, and which properties an object may have."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any, Protocol

from hazardlens.schema.bounds import MOST_ITEMS
from hazardlens.schema.combine import Schema
from hazardlens.schema.findings import Findings, Level, keyword_places, step
from hazardlens.schema.patterns import matches
from hazardlens.schema.shapes import Array, Choice, Never, Shape
from hazardlens.schema.validation import names_held, validator_for

_MOST_UNIQUE = 8
_CONTAINING = ("contains", "minContains", "maxContains")
_IN_FRONT = "the mask puts what contains asks for in front"
_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties")


class Compiling(Protocol):
    """What is needed of a compiler to compile the parts of a container."""

    places: dict[int, str]
    findings: Findings

    def compile(self, nodes: tuple[Any, ...], pointer: str) -> Shape:
        """The shape of what satisfies all of `nodes`."""


def array(compiler: Compiling, nodes: tuple[Schema, ...], pointer: str) -> Shape:
    """The shape of the arrays that satisfy `nodes`."""
    shape = _containing(compiler, nodes, pointer)
    if not isinstance(shape, Array) or shape.high < 2 or not any(node.get("uniqueItems") for node in nodes):
        return shape
    if not shape.prefix and isinstance(shape.rest, Choice):
        if len(shape.rest.values) < shape.low:
            return Never(((pointer, "uniqueItems asks for more different items than there are"),), pointer=pointer)
        if len(shape.rest.values) <= _MOST_UNIQUE:
            _note(
                compiler,
                nodes,
                "uniqueItems",
                "closed",
                "the mask writes each value at most once, in order",
                pointer,
            )
            return _subsets(shape.rest.values, shape, pointer)
    _note(compiler, nodes, "uniqueItems", "checked", "uniqueItems is not held by the mask", pointer)
    return shape


def _note(
    compiler: Compiling, nodes: tuple[Schema, ...], keyword: str, level: Level, message: str, pointer: str
) -> None:
    for node in nodes:
        if keyword in node and node[keyword] is not (False if keyword == "uniqueItems" else None):
            place = step(compiler.places.get(id(node), pointer), keyword)
            compiler.findings.add(place, level, message, about=[place])


def _subsets(values: tuple[Any, ...], shape: Array, pointer: str) -> Shape:
    sizes = range(shape.low, min(shape.high, len(values)) + 1)
    return Choice(tuple(list(chosen) for size in sizes for chosen in combinations(values, size)), pointer=pointer)


def _containing(compiler: Compiling, nodes: tuple[Schema, ...], pointer: str) -> Shape:
    """The shape of the arrays, with what `contains` asks for in front."""
    wanted: list[tuple[Any, ...]] = []
    most: float = math.inf
    for node in nodes:
        if "contains" in node:
            wanted += [(node["contains"],)] * int(node.get("minContains", 1))
            most = min(most, node.get("maxContains", math.inf))
    if (wanted or most < math.inf) and any(map(_is_fixed, nodes)):
        # Which of them is of the kind is for the model to say: to put it in front would be to say it of the first.
        _note_contains(compiler, nodes, _CONTAINING, "checked", "contains is not held by the mask here", pointer)
        return _array(compiler, nodes, pointer, [])
    if wanted or most < math.inf:
        _note_contains(compiler, nodes, _CONTAINING, "closed", _IN_FRONT, pointer)
    if len(wanted) > most:
        return Never(((pointer, "minContains is more than maxContains"),), pointer=pointer)
    shape = _array(compiler, nodes, pointer, wanted)
    if isinstance(shape, Array) and shape.high > most:
        if shape.low > most:
            _note_contains(compiler, nodes, ("maxContains",), "checked", "maxContains is not held by the mask", pointer)
            return shape
        # No more items in all than may be of the kind.
        shape = Array(shape.prefix[: int(most)], shape.rest, shape.low, int(most), pointer=pointer)
    return shape


def _is_fixed(node: Schema) -> bool:
    """Whether all items are there and each has its place, as the detections of a frame have."""
    length = len(node.get("prefixItems", ()))
    return length > 0 and node.get("items") is False and node.get("minItems", 0) >= length


def _note_contains(
    compiler: Compiling, nodes: tuple[Schema, ...], keywords: tuple[str, ...], level: Level, message: str, pointer: str
) -> None:
    for node in nodes:
        about = keyword_places([node], keywords, compiler.places, pointer)
        if "contains" in node and about:
            place = step(compiler.places.get(id(node), pointer), "contains")
            compiler.findings.add(place, level, message, about=about)


def _array(compiler: Compiling, nodes: tuple[Schema, ...], pointer: str, wanted: list[tuple[Any, ...]]) -> Shape:
    low = max([len(wanted), *(int(node["minItems"]) for node in nodes if "minItems" in node)])
    high = min((int(node["maxItems"]) for node in nodes if "maxItems" in node), default=None)
    length = max(len(node.get("prefixItems", ())) for node in nodes)
    waiting = list(wanted)
    prefix: list[Shape] = []
    while len(prefix) < (math.inf if high is None else high) and (waiting or len(prefix) < length):
        index = len(prefix)
        place = step(pointer, "prefixItems", index)
        item = compiler.compile(_items(nodes, index) + (waiting[0] if waiting else ()), place)
        if waiting and not isinstance(item, Never):
            waiting.pop(0)
            low = max(low, index + 1)
        elif waiting and index < length:
            item = compiler.compile(_items(nodes, index), place)
        if isinstance(item, Never):
            return _ended(low, tuple(prefix), item, pointer, high=index, missing=len(waiting))
        prefix.append(item)
    if waiting:
        return Never(((pointer, "what contains asks for has no room among the items"),), pointer=pointer)
    if high is not None and high <= len(prefix):
        return _sized(low, high, Array(tuple(prefix), None, low, high, pointer=pointer), pointer)
    _note(compiler, nodes, "unevaluatedItems", "rewritten", "the mask holds unevaluatedItems for each item", pointer)
    rest = _rest(compiler, nodes, length, pointer)
    if rest is None or isinstance(rest, Never):
        return _ended(low, tuple(prefix), rest or Never(), pointer, high=len(prefix))
    if high is None:
        high = max(low, len(prefix), MOST_ITEMS)
        message = f"an array without maxItems: the mask ends it at {high} items"
        about = keyword_places(nodes, ("type",), compiler.places, pointer)
        compiler.findings.add(pointer, "closed", message, "Add maxItems.", about=about)
    return _sized(low, high, Array(tuple(prefix), rest, low, high, pointer=pointer), pointer)


def _items(nodes: tuple[Schema, ...], index: int) -> tuple[Any, ...]:
    parts = []
    for node in nodes:
        prefix = node.get("prefixItems", ())
        parts.append(prefix[index] if index < len(prefix) else node.get("items", True))
        if "unevaluatedItems" in node and not any(_holds_item(own, index) for own in evaluating(node, nodes)):
            parts.append(node["unevaluatedItems"])
    return tuple(parts)


def _holds_item(node: Schema, index: int) -> bool:
    return "items" in node or index < len(node.get("prefixItems", ()))


def _rest(compiler: Compiling, nodes: tuple[Schema, ...], length: int, pointer: str) -> Shape | None:
    parts = _items(nodes, length)
    return None if False in parts else compiler.compile(parts, step(pointer, "items"))


def _ended(low: int, prefix: tuple[Shape, ...], why: Never, pointer: str, *, high: int, missing: int = 0) -> Shape:
    if low <= high and not missing:
        return Array(prefix, None, low, high, pointer=pointer)
    reasons = why.reasons or ((pointer, f"minItems {low} is more than the {high} items that are possible"),)
    return Never(reasons, pointer=pointer)


def _sized(low: int, high: int, shape: Shape, pointer: str) -> Shape:
    if low <= high:
        return shape
    return Never(((pointer, f"minItems {low} is more than maxItems {high}"),), pointer=pointer)


def property_names(
    compiler: Compiling, nodes: tuple[Schema, ...], pointer: str
) -> list[tuple[str, tuple[Any, ...], bool]]:
    """Names, subschemas and whether each is required, of the properties that the mask lets through."""
    names = dict.fromkeys(name for node in nodes for name in node.get("properties", {}))
    required = dict.fromkeys(name for node in nodes for name in node.get("required", ()))
    names.update(required)
    _note_closed(compiler, nodes, pointer)
    for keyword in ("propertyNames", "unevaluatedProperties"):
        _note(compiler, nodes, keyword, "rewritten", f"the mask holds {keyword} for each name", pointer)
    judges = [validator_for(node["propertyNames"]) for node in nodes if "propertyNames" in node]
    allowed = {name: all(judge.is_valid(name) for judge in judges) for name in names}
    return [(name, tuple(_parts(nodes, name) if allowed[name] else [False]), name in required) for name in names]


def evaluating(owner: Schema, nodes: tuple[Schema, ...]) -> list[Schema]:
    """Those of `nodes` that `owner` holds at its own place, itself among them: what they hold counts as evaluated."""
    inside: dict[int, None] = {}
    work: list[Any] = [owner]
    while work:
        node = work.pop()
        if isinstance(node, dict) and id(node) not in inside:
            inside[id(node)] = None
            work += [part for key in ("allOf", "anyOf", "oneOf") for part in node.get(key, ())]
            work += [node.get(key) for key in ("if", "then", "else")] + list(node.get("dependentSchemas", {}).values())
    return [node for node in nodes if id(node) in inside]


def is_closed(nodes: tuple[Schema, ...]) -> bool:
    """Whether `nodes` allow no properties that they do not name."""
    return any(_is_closed(node) or node.get("unevaluatedProperties") is False for node in nodes)


def _is_closed(node: Schema) -> bool:
    return node.get("additionalProperties") is False and not node.get("patternProperties")


def _note_closed(compiler: Compiling, nodes: tuple[Schema, ...], pointer: str) -> None:
    if is_closed(nodes):
        return
    owner = next((node for node in nodes if "properties" in node), nodes[0])
    message = "open to properties it does not name: the mask lets through only those it names"
    place = compiler.places.get(id(owner), pointer)
    wide = [(node, key) for node in nodes for key in _OPEN if key in node and node[key] is not False]
    of_type = keyword_places(nodes, ("type",), compiler.places, pointer)
    about = [keyword_places([node], (key,), compiler.places, pointer)[0] for node, key in wide] or of_type
    compiler.findings.add(place, "closed", message, 'Add "additionalProperties": false to say so.', about=about)


def _parts(nodes: tuple[Schema, ...], name: str) -> list[Any]:
    parts: list[Any] = []
    for node in nodes:
        matching = [part for pattern, part in node.get("patternProperties", {}).items() if matches(pattern, name)]
        declared = node.get("properties", {})
        if name in declared:
            matching.insert(0, declared[name])
        parts.extend(matching or [node.get("additionalProperties", True)])
        if "unevaluatedProperties" in node and not any(_holds_name(own, name) for own in evaluating(node, nodes)):
            parts.append(node["unevaluatedProperties"])
    return parts


def _holds_name(node: Schema, name: str) -> bool:
    return "additionalProperties" in node or name in names_held(node, [name])
