"""The one schema object in the form that a dialect takes: pure functions, each with what it leaves to validation."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hazardlens.errors import SchemaError
from hazardlens.schema import GroundedSchema
from hazardlens.vlm.remote.dialects import Dialect, Limits

Node = dict[str, Any]

DETECTIONS = "detections"
_OBJECT = "object"
_KINDS = ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), (type(None), "null"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """A schema as it is sent.

    Attributes:
        document: JSON Schema.
        checked: What it does not carry, each with its JSON pointer; validation holds it instead.
    """

    document: Node
    checked: tuple[str, ...]


def form_for(schema: GroundedSchema, dialect: Dialect) -> Form:
    """Write a schema as a dialect takes it.

    Raises:
        SchemaError: If it is larger than the dialect's servers take.
    """
    checked: list[str] = []
    document = copy.deepcopy(schema.mask_document)
    if dialect.keyed:
        document = _keyed(document)
    if dialect.strict:
        document = _strict(document, checked)
    document = _without(document, dialect.leaves_out, "", checked)
    document = _typed(document)
    if dialect.limits is not None:
        _check_size(document, dialect.limits, dialect.name, schema.count)
    return Form(document=document, checked=tuple(dict.fromkeys(checked)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How large a schema is; attributes as of `Limits`."""

    properties: int
    depth: int
    enum_values: int
    characters: int


def size_of(document: Node) -> Size:
    """Count what servers limit."""
    nodes = list(_nodes(document))
    names = [name for node in nodes for name in (*node.get("properties", {}), *node.get("$defs", {}))]
    values = [value for node in nodes for value in _values(node)]
    return Size(
        properties=sum(len(node.get("properties", {})) for node in nodes),
        depth=_depth(document, document, 20),
        enum_values=sum(len(node.get("enum", ())) for node in nodes),
        characters=sum(map(len, names)) + sum(len(str(value)) for value in values),
    )


def _check_size(document: Node, limits: Limits, name: str, count: int) -> None:
    size = size_of(document)
    for what in ("properties", "depth", "enum_values", "characters"):
        found, most = getattr(size, what), getattr(limits, what)
        if found > most:
            raise SchemaError(
                f"the schema with {count} detections is too large for the dialect {name}: "
                f"{what.replace('_', ' ')} {found:,}, at most {most:,}",
                help="Lower max_objects, make the schema smaller, or choose another vlm.dialect.",
            )


def _values(node: Node) -> list[Any]:
    return [*node.get("enum", ()), *([node["const"]] if "const" in node else [])]


def _nodes(node: Any) -> Iterator[Node]:
    """Every subschema, the root first."""
    if isinstance(node, dict):
        yield node
        for part in _parts(node):
            yield from _nodes(part)


def _parts(node: Node) -> Iterator[Any]:
    for key in ("properties", "$defs"):
        yield from node.get(key, {}).values()
    for key in ("anyOf", "allOf", "prefixItems"):
        yield from node.get(key, ())
    if isinstance(node.get("items"), dict):
        yield node["items"]


def _depth(node: Any, root: Node, left: int) -> int:
    """Objects within objects, through references; a recursion counts as deep as `left` allows."""
    if not isinstance(node, dict) or left == 0:
        return 0
    own = 1 if node.get("type") == "object" else 0
    target = root.get("$defs", {}).get(node["$ref"].rpartition("/")[2]) if "$ref" in node else None
    inner = [part for part in (*_parts({**node, "$defs": {}}), target) if part is not None]
    return own + max((_depth(part, root, left - 1) for part in inner), default=0)


def _branches(document: Node) -> list[Node]:
    """The objects that an answer may be."""
    return [part for option in document["anyOf"] for part in _branches(option)] if "anyOf" in document else [document]


def _over_branches(document: Node, change: Callable[[Node], Node]) -> Node:
    if "anyOf" in document:
        return {**document, "anyOf": [_over_branches(option, change) for option in document["anyOf"]]}
    return change(document)


def _keyed(document: Node) -> Node:
    """Detections as an object keyed by id, over definitions that all ids share; without detections, no such field."""
    shared: list[Node] = []
    document = _over_branches(document, lambda branch: _keyed_branch(branch, shared))
    names = [_OBJECT if index == 0 else f"{_OBJECT}{index}" for index in range(len(shared))]
    definitions = {**document.get("$defs", {}), **dict(zip(names, shared, strict=True))}
    return {**document, "$defs": definitions} if definitions else document


def _keyed_branch(branch: Node, shared: list[Node]) -> Node:
    listed = branch.get("properties", {}).get(DETECTIONS)
    if listed is None:
        return branch
    entries = listed.get("prefixItems", [])
    if not entries:
        kept = {name: part for name, part in branch["properties"].items() if name != DETECTIONS}
        required = [name for name in branch.get("required", []) if name != DETECTIONS]
        return {**branch, "properties": kept, "required": required}
    keyed = {str(index): {"$ref": f"#/$defs/{_shared(entry, shared)}"} for index, entry in enumerate(entries)}
    detections = {"type": "object", "properties": keyed, "required": list(keyed), "additionalProperties": False}
    return {**branch, "properties": {**branch["properties"], DETECTIONS: detections}}


def _shared(entry: Node, shared: list[Node]) -> str:
    """Name of the definition of an entry without its id, which is made if it is new."""
    bare = _over_branches(entry, _without_id)
    if bare not in shared:
        shared.append(bare)
    index = shared.index(bare)
    return _OBJECT if index == 0 else f"{_OBJECT}{index}"


def _without_id(branch: Node) -> Node:
    properties = {name: part for name, part in branch["properties"].items() if name != "id"}
    return {**branch, "properties": properties, "required": [name for name in branch["required"] if name != "id"]}


def _strict(document: Node, checked: list[str]) -> Node:
    """The root one object, all keys required, what is optional nullable."""
    branches = _branches(document)
    if len(branches) > 1:
        checked.append("/: the rule across fields")
        definitions = {"$defs": document["$defs"]} if "$defs" in document else {}
        document = {**_united(branches), **definitions}
    return _filled(document)


def _united(branches: list[Node]) -> Node:
    """One object that allows whatever one of several allows."""
    names = dict.fromkeys(name for branch in branches for name in branch["properties"])
    properties = {
        name: _either([branch["properties"][name] for branch in branches if name in branch["properties"]])
        for name in names
    }
    required = [name for name in names if all(name in branch.get("required", []) for branch in branches)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _either(options: list[Node]) -> Node:
    distinct: list[Node] = []
    for option in options:
        if option not in distinct:
            distinct.append(option)
    if len(distinct) == 1:
        return distinct[0]
    if all(set(option) <= {"const", "enum"} for option in distinct):
        values: list[Any] = []
        for option in distinct:
            values += [value for value in _values(option) if value not in values]
        return {"enum": values}
    return {"anyOf": distinct}


def _filled(node: Node) -> Node:
    """Make every key required, deeply; one that was optional may be null instead."""
    changed = _mapped(node, _filled)
    if node.get("type") == "object":
        required = node.get("required", [])
        changed["properties"] = {
            name: part if name in required else {"anyOf": [part, {"type": "null"}]}
            for name, part in changed.get("properties", {}).items()
        }
        changed["required"] = list(changed["properties"])
        changed["additionalProperties"] = False
    return changed


def _mapped(node: Node, change: Callable[[Any], Any]) -> Node:
    """A node whose subschemas were changed."""
    changed = dict(node)
    for key in ("properties", "$defs"):
        if key in node:
            changed[key] = {name: change(part) for name, part in node[key].items()}
    for key in ("anyOf", "allOf", "prefixItems"):
        if key in node:
            changed[key] = [change(part) for part in node[key]]
    if isinstance(node.get("items"), dict):
        changed["items"] = change(node["items"])
    return changed


def _without(node: Any, left_out: frozenset[str], pointer: str, checked: list[str]) -> Any:
    """Take keywords out, each named in `checked`."""
    if not isinstance(node, dict):
        return node
    kind = node.get("type")
    kept = {}
    for key, value in node.items():
        if key in left_out or f"{kind}.{key}" in left_out:
            checked.append(f"{pointer or '/'}: {key}")
        else:
            kept[key] = value
    if "prefixItems" in node and "prefixItems" in left_out:
        options = [*node["prefixItems"], *([node["items"]] if isinstance(node.get("items"), dict) else [])]
        kept["items"] = _either(options)
    for key in ("properties", "$defs"):
        if key in kept:
            kept[key] = {
                name: _without(part, left_out, f"{pointer}/{key}/{name}", checked) for name, part in kept[key].items()
            }
    for key in ("anyOf", "allOf", "prefixItems"):
        if key in kept:
            kept[key] = [
                _without(part, left_out, f"{pointer}/{key}/{index}", checked) for index, part in enumerate(kept[key])
            ]
    if isinstance(kept.get("items"), dict):
        kept["items"] = _without(kept["items"], left_out, f"{pointer}/items", checked)
    return kept


def _typed(node: Any) -> Any:
    """Name the type of choices whose values share one, as some servers demand."""
    if not isinstance(node, dict):
        return node
    changed = _mapped(node, _typed)
    values = _values(node)
    kinds = {_kind(value) for value in values}
    if values and "type" not in node and len(kinds) == 1 and None not in kinds:
        return {"type": kinds.pop(), **changed}
    return changed


def _kind(value: object) -> str | None:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), None)
