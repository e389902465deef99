"""Replaces every `$ref` by what it refers to, and remembers where each place came from.

What refers back to itself becomes a circle: the very same object again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urljoin

from referencing import Registry
from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable
from referencing.jsonschema import DRAFT202012

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
_UNUSED_MAPS = ("$defs", "definitions")
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_REFERENCES = ("$ref", "$dynamicRef")
_DROPPED = frozenset({*_REFERENCES, *_UNUSED_MAPS, "$schema", "$anchor", "$dynamicAnchor", "$id", "$comment"})
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_REMOTE_HELP = "Copy what it refers to into $defs and write #/$defs/NAME."


class Resolver:
    """Resolves one document.

    Args:
        document: A schema that satisfies the metaschema.
        findings: Where dangling, remote and endless references are noted.

    Attributes:
        places: JSON pointer in the document by the `id()` of each resolved subschema, which the result keeps alive.
        references: JSON pointers of all references, and those of what they lead to.
    """

    def __init__(self, document: dict[str, Any], findings: Findings) -> None:
        self.places: dict[int, str] = {}
        self.references: dict[str, str] = {}
        document = self._document = _undated(document, "", findings)
        self._findings = findings
        self._base = str(document.get("$id", ""))
        self._registry = Registry().with_resource(self._base, DRAFT202012.create_resource(document)).crawl()
        self._origins: dict[int, tuple[str, str]] = {}
        self._dynamic: dict[str, int] = {}
        self._scan(document, "", self._base, is_schema=True)
        self._done: dict[int, dict[str, Any]] = {}
        self._open: set[int] = set()

    def resolve(self) -> dict[str, Any]:
        """The whole document without references; subschemas referred to twice are shared, not copied.

        It names no draft: all of it is read as 2020-12.
        """
        resolved = self._node(self._document)
        self._find_loops(resolved)
        return resolved  # type: ignore[no-any-return]

    def _scan(self, node: Any, pointer: str, base: str, *, is_schema: bool) -> None:
        """Remember pointer and base address of every part of the document."""
        if isinstance(node, list):
            for index, part in enumerate(node):
                self._scan(part, step(pointer, index), base, is_schema=is_schema)
        if not isinstance(node, dict):
            return
        if is_schema and isinstance(node.get("$id"), str):
            base = urljoin(base, node["$id"]) if pointer else base
        self._origins[id(node)] = pointer, base
        if is_schema and isinstance(node.get("$dynamicAnchor"), str):
            self._dynamic[node["$dynamicAnchor"]] = self._dynamic.get(node["$dynamicAnchor"], 0) + 1
        for key, value in node.items():
            place = step(pointer, key)
            if is_schema and key in (*_MAPS, *_UNUSED_MAPS) and isinstance(value, dict):
                self._origins[id(value)] = place, base
                for name, part in value.items():
                    self._scan(part, step(place, name), base, is_schema=True)
            else:
                self._scan(value, place, base, is_schema=is_schema and key in (*_ONE, *_LISTS))

    def _node(self, node: Any) -> Any:
        if not isinstance(node, dict):
            return node
        if id(node) in self._done:
            return self._done[id(node)]
        pointer = self._origins[id(node)][0]
        result: dict[str, Any] = {}
        self._done[id(node)] = result
        self._open.add(id(result))
        self.places[id(result)] = pointer
        own = mapped({key: value for key, value in node.items() if key not in _DROPPED}, self._node)
        targets = [self._reference(node, key, pointer) for key in _REFERENCES if key in node]
        self._join(result, own, targets)
        self._open.discard(id(result))
        if not own and len(targets) == 1 and isinstance(targets[0], dict):
            # What only refers is the same as what it refers to.
            self._done[id(node)] = targets[0]
        return self._done[id(node)]

    def _join(self, result: dict[str, Any], own: dict[str, Any], targets: list[Any]) -> None:
        if not targets:
            result.update(own)
            return
        target = targets[0]
        is_known = isinstance(target, dict) and id(target) not in self._open
        if len(targets) == 1 and is_known and _ANNOTATIONS.issuperset(own):
            result.update({**target, **own})
            self.places[id(result)] = self.places[id(target)]
        else:
            result.update({**own, "allOf": [*targets, *own.get("allOf", [])]})

    def _reference(self, node: dict[str, Any], key: str, pointer: str) -> Any:
        """What a reference leads to, resolved; true where it leads nowhere, which is noted."""
        place, reference = step(pointer, key), node[key]
        self.references[place] = ""
        try:
            target = self._registry.resolver(self._origins[id(node)][1]).lookup(reference).contents
        except (InvalidAnchor, NoSuchAnchor, PointerToNowhere):
            target = None
        except Unresolvable:
            self._findings.add(place, "error", f"remote reference {reference!r}", _REMOTE_HELP)
            return True
        if not isinstance(target, dict | bool) or (isinstance(target, dict) and id(target) not in self._origins):
            message = f"{reference!r} refers to nothing"
            self._findings.add(place, "error", message, "Mend the name, or add it to $defs.")
            return True
        self.references[place] = self._origins[id(target)][0] if isinstance(target, dict) else ""
        if key == "$dynamicRef" and isinstance(target, dict):
            self._check_dynamic(target, place)
        return self._node(target)

    def _check_dynamic(self, target: dict[str, Any], place: str) -> None:
        name = target.get("$dynamicAnchor")
        if isinstance(name, str) and self._dynamic[name] > 1:
            message = f"$dynamicRef may lead to {self._dynamic[name]} places, by the way it is reached"
            self._findings.add(place, "error", message, "Use $ref.")

    def _find_loops(self, root: Any) -> None:
        """Note what refers to itself at the same place of an answer."""
        known: dict[int, bool] = {}
        for node in _nodes(root):
            self._visit(node, known)

    def _visit(self, root: dict[str, Any], known: dict[int, bool]) -> None:
        if id(root) in known:
            return
        known[id(root)] = False
        work = [(root, iter(list(_beside(root))))]
        while work:
            node, following = work[-1]
            other = next(following, None)
            if other is None:
                known[id(node)] = True
                work.pop()
            elif id(other) not in known:
                known[id(other)] = False
                work.append((other, iter(list(_beside(other)))))
            elif not known[id(other)]:
                place = self.places.get(id(node), "")
                at = next((step(place, key) for key in _REFERENCES if step(place, key) in self.references), place)
                message = "never satisfiable: what it describes requires itself, without end"
                self._findings.add(at, "error", message, "Write the levels out that you need.")


def _undated(node: Any, pointer: str, findings: Findings) -> Any:
    """A schema without the drafts that it names; those make jsonschema and referencing go on as another from there."""
    if not isinstance(node, dict):
        return node
    if node.get("$schema", _DRAFT).rstrip("#") != _DRAFT:
        message = "read as draft 2020-12, whatever it names"
        findings.add(step(pointer, "$schema"), "note", message, f"Write {_DRAFT}.")
    result: dict[str, Any] = {}
    for key, value in node.items():
        place = step(pointer, key)
        if key in _ONE:
            result[key] = _undated(value, place, findings)
        elif key in _LISTS:
            result[key] = [_undated(part, step(place, index), findings) for index, part in enumerate(value)]
        elif key in (*_MAPS, *_UNUSED_MAPS):
            result[key] = {name: _undated(part, step(place, name), findings) for name, part in value.items()}
        elif key != "$schema":
            result[key] = value
    return result


def _beside(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Subschemas that apply at the same place of an answer."""
    for key in _IN_PLACE:
        value = node.get(key)
        parts = value if isinstance(value, list) else value.values() if key == "dependentSchemas" and value else [value]
        yield from (part for part in parts if isinstance(part, dict))


def _nodes(root: Any) -> Iterator[dict[str, Any]]:
    """All subschemas that can be reached, each once."""
    seen: set[int] = set()
    work = [root]
    while work:
        node = work.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            work += subschemas(node)


def subschemas(node: dict[str, Any]) -> list[dict[str, Any]]:
    """The subschemas of a resolved schema, without those that are booleans."""
    parts = [node[key] for key in _ONE if key in node]
    parts += [part for key in _LISTS for part in node.get(key, ())]
    parts += [part for key in _MAPS for part in node.get(key, {}).values()]
    return [part for part in parts if isinstance(part, dict)]


def located_subschemas(node: dict[str, Any], keyword: str, pointer: str) -> list[tuple[Any, str]]:
    """What one keyword of a schema as written holds, each with its JSON pointer; `pointer` is that of the schema."""
    value, place = node[keyword], step(pointer, keyword)
    if keyword in (*_ONE, "contentSchema"):
        return [(value, place)]
    if keyword in _LISTS:
        return [(part, step(place, index)) for index, part in enumerate(value)]
    if keyword in (*_MAPS, *_UNUSED_MAPS):
        return [(part, step(place, name)) for name, part in value.items()]
    return []


def mapped(node: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """A schema with each of its subschemas changed, booleans too."""
    result = {}
    for key, value in node.items():
        if key in _ONE:
            result[key] = change(value)
        elif key in _LISTS:
            result[key] = [change(part) for part in value]
        elif key in _MAPS:
            result[key] = {name: change(part) for name, part in value.items()}
        else:
            result[key] = value
    return result
