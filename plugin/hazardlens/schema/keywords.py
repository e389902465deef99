"""Which keywords the mask holds, and which only the check of the finished answer does."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hazardlens.schema.combine import Schema
from hazardlens.schema.findings import Findings, step
from hazardlens.schema.validation import FORMATS_CHECKED

_CHECKED: dict[str, frozenset[str]] = {
    "not": frozenset(),
    "if": frozenset(),
    "dependentRequired": frozenset({"object"}),
    "dependentSchemas": frozenset({"object"}),
}

_TYPE_KEYWORDS: dict[str, frozenset[str]] = {
    "object": frozenset(
        {
            *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
            *("required", "minProperties", "maxProperties", "dependentRequired", "dependentSchemas"),
        }
    ),
    "array": frozenset({"items", "prefixItems", "unevaluatedItems", "contains", "minItems", "maxItems", "uniqueItems"}),
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}

_ANNOTATIONS = frozenset(
    {
        *("$schema", "$id", "$ref", "$defs", "$comment", "$anchor", "$vocabulary", "$dynamicAnchor", "definitions"),
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"),
        *("contentEncoding", "contentMediaType", "contentSchema"),
        *("type", "enum", "const", "allOf", "anyOf", "oneOf", "then", "else", "minContains", "maxContains"),
    }
)
_ANNOTATING = frozenset({"allOf", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_STATING = frozenset({"type", "enum", "const"})
_ASKING = _STATING.union(_CHECKED, *_TYPE_KEYWORDS.values())
_ASSERTING = _ASKING | {"allOf", "anyOf", "oneOf", "$ref", "$dynamicRef"}
_DEPENDENT: dict[str, frozenset[str]] = {
    "if": frozenset({"then", "else"}),
    "then": frozenset({"if"}),
    "else": frozenset({"if"}),
    "minContains": frozenset({"contains"}),
    "maxContains": frozenset({"contains"}),
}
TYPED = frozenset().union(*_TYPE_KEYWORDS.values())
"""Keywords that are about values of one type only."""
_KNOWN = _ANNOTATIONS.union(_CHECKED, *_TYPE_KEYWORDS.values())


def is_bare(node: Schema) -> bool:
    """Whether `node` asks for nothing itself, but only through `allOf`, `anyOf` and `oneOf`."""
    return _ASKING.isdisjoint(node)


def unwrapped(node: Any) -> Any:
    """What a schema leads to that says nothing itself."""
    while isinstance(node, dict) and len(node.get("allOf", ())) == 1 and _ANNOTATING.issuperset(node):
        (node,) = node["allOf"]
    return node


def asserts(node: Schema, keyword: str) -> bool:
    """Whether a keyword of `node` asserts anything of a value, as JSON Schema has it.

    The others are annotations, or change nothing without a keyword that is not there.
    """
    if keyword in _DEPENDENT:
        return not _DEPENDENT[keyword].isdisjoint(node)
    if keyword == "format":
        return node["format"] in FORMATS_CHECKED
    return keyword in _ASSERTING


def note_checked(node: Schema, types: frozenset[str], pointer: str, findings: Findings, held: Collection[str]) -> None:
    """Note the keywords of `node` that the mask leaves out, and those `held` in another form, for values of `types`."""
    for keyword, concerned in _CHECKED.items():
        if keyword == "if" and "then" not in node and "else" not in node:
            continue
        if keyword in node and not (concerned and concerned.isdisjoint(types)):
            names = ("if", "then", "else") if keyword == "if" else (keyword,)
            about = [step(pointer, name) for name in names if name in node]
            name = "/".join(names)
            if keyword in held:
                message = f"the mask holds {name} as alternatives"
                findings.add(step(pointer, keyword), "rewritten", message, about=about)
            else:
                findings.add(step(pointer, keyword), "checked", f"{name} is not held by the mask", about=about)


def note_unknown(node: Schema, pointer: str, findings: Findings) -> None:
    """Note keywords of `node` that JSON Schema does not have, which are often misspelled ones."""
    for keyword in node:
        if keyword not in _KNOWN and not keyword.startswith("x-"):
            findings.add(step(pointer, keyword), "note", f"unknown keyword {keyword!r}: it has no effect")


def types_of(nodes: tuple[Schema, ...]) -> tuple[tuple[str, ...], bool]:
    """The types that satisfy `nodes`, and whether they were stated rather than guessed from keywords.

    Types not stated are guessed from the keywords; there are none where these ask for nothing.
    """
    stated = [_atoms(node["type"]) for node in nodes if "type" in node]
    if stated:
        kept = [atom for atom in stated[0] if all(atom in atoms for atoms in stated[1:])]
        whole_only = "fraction" not in kept
        names = ("number" if atom == "fraction" else atom for atom in kept if whole_only or atom != "integer")
        return tuple(names), True
    guessed = [
        name for name, keywords in _TYPE_KEYWORDS.items() if any(not keywords.isdisjoint(node) for node in nodes)
    ]
    return tuple(guessed), False


def has_stated_type(nodes: tuple[Schema, ...]) -> bool:
    """Whether `type`, `enum` or `const` says of which type the values are."""
    return any(not _STATING.isdisjoint(node) for node in nodes)


def _atoms(value: str | list[str]) -> dict[str, None]:
    names = [value] if isinstance(value, str) else value
    return {atom: None for name in names for atom in (("integer", "fraction") if name == "number" else (name,))}
