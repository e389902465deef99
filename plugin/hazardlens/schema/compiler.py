"""Turns a resolved schema into the shape that the mask holds, and says what got lost on the way."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from hazardlens.schema import scalars
from hazardlens.schema.combine import MOST_ALTERNATIVES, SPREAD, Alternative, Groups, Schema, alternatives
from hazardlens.schema.containers import array, is_closed, property_names
from hazardlens.schema.endings import ended
from hazardlens.schema.findings import Findings, keyword_places, step
from hazardlens.schema.keywords import TYPED, has_stated_type, is_bare, note_checked, note_unknown, types_of, unwrapped
from hazardlens.schema.resolve import subschemas
from hazardlens.schema.rewriting import REWRITABLE, rewritten
from hazardlens.schema.shapes import Again, Choice, Never, Object, Shape
from hazardlens.schema.spelling import SAFE_INTEGER, canonical, spell
from hazardlens.schema.unions import disjoint, union
from hazardlens.schema.validation import validator_for

_FEW_VALUES: dict[str, list[Any]] = {"boolean": [False, True], "null": [None]}


class Compiler:
    """Compiles subschemas of one document, or of several that share some, each combination once.

    Args:
        places: JSON pointer of each subschema by its `id()`; the documents keep them alive.
        findings: Where findings are noted.
        references: JSON pointers of the references in the documents.
        done: Shapes of subschemas that are known already.

    Attributes:
        done: The same with those that were compiled since, by `id()` of the subschemas that apply together.
    """

    def __init__(
        self,
        places: dict[int, str],
        findings: Findings,
        references: Collection[str] = (),
        done: Mapping[tuple[int, ...], Shape] | None = None,
    ) -> None:
        self.places = places
        self.references = references
        self.findings = findings
        self.done: dict[tuple[int, ...], Shape] = {**(done or {})}
        self._open: dict[tuple[int, ...], Again | None] = {}
        self._links = 0
        self._dead: dict[str, None] = {}
        self._alive: dict[str, None] = {}
        self._rewritten: dict[int, tuple[Schema, Groups]] = {}
        self._given_up: set[tuple[int, str]] = set()

    def whole(self, document: Schema) -> Shape:
        """The shape of what satisfies a whole document, without what could never come to an end."""
        shape = self.compile((document,), "")
        return ended(shape, lambda pointer, what: self.findings.add(self._reference(pointer), "note", what))

    def compile(self, nodes: tuple[Any, ...], pointer: str) -> Shape:
        """The shape of what satisfies all of `nodes`.

        Args:
            nodes: Subschemas of the document that apply to the same place, objects or booleans.
            pointer: Where findings belong if no subschema has a place of its own.
        """
        asking = [node for node in map(unwrapped, nodes) if node is not True]
        nodes = tuple({id(node): node for node in asking}.values()) or (True,)
        key = tuple(map(id, nodes))
        if all(isinstance(node, bool) for node in nodes):
            return (
                self._any((), pointer)
                if all(nodes)
                else Never(((pointer, "nothing is allowed here"),), pointer=pointer)
            )
        if key in self._open:
            return self._link(key, pointer)
        if key not in self.done:
            self._open[key] = None
            self.done[key] = self._combined(nodes, self._place(nodes, pointer))
            link = self._open.pop(key)
            if link is not None:
                link.set(self.done[key])
        return self.done[key]

    def _link(self, key: tuple[int, ...], pointer: str) -> Again:
        link = self._open[key]
        if link is None:
            link = self._open[key] = Again(f"again{self._links}", pointer=self._reference(pointer))
            self._links += 1
        return link

    def _reference(self, pointer: str) -> str:
        """The place of the reference that stands at `pointer`, or `pointer` itself."""
        place = step(pointer, "$ref")
        return place if place in self.references else pointer

    def _place(self, nodes: tuple[Any, ...], pointer: str) -> str:
        known = [node for node in nodes if id(node) in self.places]
        best = next((node for node in known if not is_bare(node)), None)
        return self.places[id(best or known[0])] if known else pointer

    def _any(self, nodes: tuple[Schema, ...], pointer: str) -> Shape:
        message = "any value is allowed: the mask writes null, a boolean, a number or a string"
        self.findings.add(pointer, "closed", message, "State a type and its bounds.")
        own = [self._typed(name, nodes or ({},), pointer) for name in ("number", "string")]
        return union([Choice((None, False, True), pointer=pointer), *own], pointer)

    def _combined(self, nodes: tuple[Any, ...], pointer: str) -> Shape:
        ways = alternatives(nodes, self._dropped, self._rewrite)
        if not ways:
            return Never(((pointer, "nothing is allowed here"),), pointer=pointer)
        shapes = [self._flat(way.nodes, self._place(way.nodes, pointer)) for way in ways]
        self._judge_branches(ways, shapes, {id(node): node for way in ways for node in way.nodes})
        return union(shapes, pointer)

    def _rewrite(self, node: Schema) -> Groups:
        if REWRITABLE.isdisjoint(node):
            return {}
        # The node is kept, so that no other takes its id, and what it is rewritten to, so that each is compiled once.
        if id(node) not in self._rewritten:
            groups = rewritten(node)
            self._rewritten[id(node)] = node, groups
            if id(node) in self.places:
                self._name_places(groups, self.places[id(node)])
        return self._rewritten[id(node)][1]

    def _name_places(self, groups: Groups, pointer: str) -> None:
        """Give what a keyword was rewritten to the place of that keyword."""
        for keyword, parts in groups.items():
            work = [part for group in parts for part in group]
            while work:
                part = work.pop()
                if isinstance(part, dict) and id(part) not in self.places:
                    self.places[id(part)] = step(pointer, keyword)
                    work += subschemas(part)

    def _held(self, node: Schema) -> set[str]:
        """Keywords of `node` that are held in another form."""
        return {keyword for keyword in self._rewrite(node) if (id(node), keyword) not in self._given_up}

    def _dropped(self, node: Schema, keyword: str) -> None:
        self._given_up.add((id(node), keyword))
        message = f"{keyword} is not held by the mask: more than {MOST_ALTERNATIVES} combinations"
        names = ("if", "then", "else") if keyword == "if" else (keyword,)
        about = keyword_places([node], names, self.places, "")
        self.findings.add(about[0], "checked", message, about=about)

    def _judge_branches(self, ways: list[Alternative], shapes: list[Shape], nodes: dict[int, Schema]) -> None:
        branches: dict[tuple[int, str], dict[int, list[Shape]]] = {}
        for way, shape in zip(ways, shapes, strict=True):
            for owner, keyword, index in way.taken:
                branches.setdefault((owner, keyword), {}).setdefault(index, []).append(shape)
        for (owner, keyword), found in branches.items():
            place = step(self.places.get(owner, ""), keyword)
            merged = {index: union(options, place) for index, options in found.items()}
            guessed = any(not has_stated_type(way.nodes) for way in ways)
            if keyword == "oneOf" and "oneOf" in self._held(nodes[owner]):
                message = "the mask holds oneOf with all other branches denied"
                self.findings.add(place, "rewritten", message, about=[place])
            elif keyword == "oneOf" and (guessed or not _all_disjoint(list(merged.values()))):
                message = "oneOf may overlap: the mask holds it as anyOf"
                self.findings.add(place, "checked", message, about=[place], whole=False)
            for index in range(len(nodes[owner][keyword])):
                is_dead = isinstance(merged.get(index, Never()), Never)
                (self._dead if is_dead else self._alive)[step(place, index)] = None

    def note_dead_branches(self) -> None:
        """Note the branches that hold in nothing that was compiled so far."""
        for place in self._dead:
            if place not in self._alive:
                self.findings.add(place, "note", "this branch can never hold")

    def _flat(self, nodes: tuple[Schema, ...], pointer: str) -> Shape:
        for node in nodes:
            note_unknown(node, self.places.get(id(node), pointer), self.findings)
        if any("enum" in node or "const" in node for node in nodes):
            return self._choice(nodes, _values(nodes), pointer)
        types, stated = types_of(nodes)
        if types and _FEW_VALUES.keys() >= set(types):
            return self._choice(nodes, [value for name in types for value in _FEW_VALUES[name]], pointer)
        for node in nodes:
            held = self._held(node)
            note_checked(node, frozenset(types), self.places.get(id(node), pointer), self.findings, held)
        if not types:
            if stated:
                return Never(((pointer, "the types asked for together exclude each other"),), pointer=pointer)
            return self._any(nodes, pointer)
        if not stated:
            message = f"no type: the mask takes {' and '.join(types)}"
            about = keyword_places(nodes, TYPED, self.places, pointer)
            self.findings.add(pointer, "closed", message, f'Add "type": "{types[0]}".', about=about)
        return union([self._typed(name, nodes, pointer) for name in types], pointer)

    def _choice(self, nodes: tuple[Schema, ...], values: list[Any], pointer: str) -> Shape:
        validators = [validator_for({key: node[key] for key in node if key not in SPREAD}) for node in nodes]
        fitting = [canonical(value) for value in values if all(test.is_valid(value) for test in validators)]
        if not all(map(_is_safe, fitting)):
            message = f"a number beyond ±{SAFE_INTEGER} in enum or const loses digits"
            self.findings.add(pointer, "error", message, "Write it as a string.")
            return Never(pointer=pointer)
        if not fitting:
            return Never(((pointer, "none of the values fits"),), pointer=pointer)
        return Choice(tuple({spell(value): value for value in fitting}.values()), pointer=pointer)

    def _typed(self, name: str, nodes: tuple[Schema, ...], pointer: str) -> Shape:
        if name == "object":
            return self._object(nodes, pointer)
        if name == "array":
            return array(self, nodes, pointer)
        if name == "string":
            return scalars.text(nodes, pointer, self.places, self.findings)
        if name in ("number", "integer"):
            return scalars.number(nodes, pointer, self.places, self.findings, whole=name == "integer")
        return Choice((False, True) if name == "boolean" else (None,), pointer=pointer)

    def _object(self, nodes: tuple[Schema, ...], pointer: str) -> Shape:
        names = property_names(self, nodes, pointer)
        properties: list[tuple[str, Shape, bool]] = []
        missing: list[Never] = []
        for name, parts, required in names:
            if False in parts:
                message = f"property {name!r} is required, but nothing is allowed there"
                missing += [Never(((pointer + "/required", message),))] if required else []
                continue
            shape = self.compile(parts, step(pointer, "properties", name))
            if not isinstance(shape, Never):
                properties.append((name, shape, required))
            elif required:
                missing.append(shape)
            else:
                self._note_absent(shape)
        if missing:
            return Never(tuple(reason for never in missing for reason in never.reasons), pointer=pointer)
        return self._counted(tuple(properties), nodes, pointer)

    def _note_absent(self, shape: Never) -> None:
        for place, reason in shape.reasons:
            self.findings.add(place, "note", f"this optional property is never there: {reason}")

    def _counted(
        self, properties: tuple[tuple[str, Shape, bool], ...], nodes: tuple[Schema, ...], pointer: str
    ) -> Shape:
        low = max((node["minProperties"] for node in nodes if "minProperties" in node), default=0)
        high = min((node["maxProperties"] for node in nodes if "maxProperties" in node), default=math.inf)
        needed = sum(1 for _, _, required in properties if required)
        if low > len(properties) and not is_closed(nodes):
            message = "minProperties asks for more properties than have a name"
            self.findings.add(pointer, "error", message, "Name as many properties.")
            return Never(pointer=pointer)
        if low > min(high, len(properties)) or high < needed:
            message = f"{needed} to {len(properties)} properties are possible, {low} to {high} allowed"
            return Never(((pointer, message),), pointer=pointer)
        if high == needed:
            properties = tuple(entry for entry in properties if entry[2])
        elif low == len(properties):
            properties = tuple((name, shape, True) for name, shape, _ in properties)
        elif low > needed or high < len(properties):
            about = keyword_places(nodes, ("minProperties", "maxProperties"), self.places, pointer)
            self.findings.add(pointer, "checked", "minProperties/maxProperties are not held by the mask", about=about)
        return Object(properties, pointer=pointer)


def _values(nodes: tuple[Schema, ...]) -> list[Any]:
    holder = next(node for node in nodes if "enum" in node or "const" in node)
    return [holder["const"]] if "const" in holder else list(holder["enum"])


def _all_disjoint(shapes: list[Shape]) -> bool:
    return all(disjoint(one, other) for index, one in enumerate(shapes) for other in shapes[index + 1 :])


def _is_safe(value: object) -> bool:
    if isinstance(value, int | float):
        return abs(value) <= SAFE_INTEGER
    if isinstance(value, dict):
        return all(map(_is_safe, value.values()))
    return all(map(_is_safe, value)) if isinstance(value, list) else True
