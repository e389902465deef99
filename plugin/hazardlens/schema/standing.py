"""Where each keyword of a schema stands: what the mask does about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from hazardlens.schema.findings import Finding, step
from hazardlens.schema.keywords import asserts
from hazardlens.schema.resolve import located_subschemas
from hazardlens.schema.rewriting import REWRITABLE

Standing: TypeAlias = Literal["held", "rewritten", "closed", "checked", "silent"]
"""`held` by the mask, `rewritten`, `closed` and `checked` as `Level` has it; `silent`: it asserts nothing."""

_WORSE: tuple[Standing, ...] = ("silent", "held", "rewritten", "closed", "checked")
_PASSED_ON = frozenset(
    {
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "propertyNames", "contains"),
        *("additionalProperties", "patternProperties", "unevaluatedProperties", "unevaluatedItems", "$ref"),
        "$dynamicRef",
    }
)
"""Keywords of which what stands inside them stands no better than they do."""


def standings(
    document: dict[str, Any], findings: Iterable[Finding], references: Mapping[str, str]
) -> dict[str, Standing]:
    """Where each keyword of a document stands, by its JSON pointer; the worst, where it is used in several ways.

    Args:
        document: A schema that satisfies the metaschema.
        findings: What its check found.
        references: JSON pointers of its references, and of what they lead to.
    """
    found: dict[str, Standing] = dict.fromkeys(_keywords(document, ""), "silent")
    told, only_itself = _told(findings, found)
    work: list[tuple[Any, str, Standing]] = [(document, "", "held")]
    known: dict[str, Standing] = {}
    while work:
        node, pointer, above = work.pop()
        if not isinstance(node, dict) or _worst(known.get(pointer, "silent"), above) == known.get(pointer):
            continue
        known[pointer] = above
        for keyword in node:
            place = step(pointer, keyword)
            if not asserts(node, keyword):
                continue
            own = _worst(above, told.get(place, "held"))
            found[place] = _worst(found.get(place, "silent"), own)
            inner = own if keyword in _PASSED_ON and place not in only_itself else above
            work += [(part, at, inner) for part, at in located_subschemas(node, keyword, pointer)]
            if place in references:
                work.append((_at(document, references[place]), references[place], inner))
    return found


def _keywords(node: Any, pointer: str) -> Iterator[str]:
    if isinstance(node, dict):
        for keyword in node:
            yield step(pointer, keyword)
            for part, at in located_subschemas(node, keyword, pointer):
                yield from _keywords(part, at)


def _told(findings: Iterable[Finding], keywords: Mapping[str, Standing]) -> tuple[dict[str, Standing], set[str]]:
    """What was found of each keyword, and those of which only they themselves are concerned."""
    told: dict[str, Standing] = {}
    whole: set[str] = set()
    itself: set[str] = set()
    rewritten: list[tuple[str, ...]] = []
    for finding in findings:
        level = finding.level
        if level == "error" or level == "note":  # mypy narrows it only so
            continue
        for pointer in finding.about:
            place = _nearest(pointer, keywords)
            told[place] = _worst(told.get(place, "held"), level)
            (whole if finding.whole else itself).add(place)
        if level == "rewritten" and finding.pointer.rpartition("/")[2] in REWRITABLE:
            rewritten.append(finding.about)
    checked = [pointer for pointer, level in told.items() if level == "checked"]
    for about in rewritten:
        # What a keyword was rewritten to has its place; where that is not held, neither is the keyword.
        if any(pointer == about[0] or pointer.startswith(about[0] + "/") for pointer in checked):
            told.update(dict.fromkeys(about, "checked"))
    return told, itself - whole


def _nearest(pointer: str, keywords: Mapping[str, Standing]) -> str:
    """`pointer`, or the keyword around it where what stands there was made by rewriting."""
    while pointer and pointer not in keywords:
        pointer = pointer.rpartition("/")[0]
    return pointer


def _worst(*standing: Standing) -> Standing:
    return max(standing, key=_WORSE.index)


def _at(document: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        name = key.replace("~1", "/").replace("~0", "~")
        document = document[int(name)] if isinstance(document, list) else document[name]
    return document
