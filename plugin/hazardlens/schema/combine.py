"""Brings together the schemas that apply to one place, and spreads their alternatives out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Schema = dict[str, Any]
"""A schema that is an object; references are already resolved."""

SPREAD = frozenset({"allOf", "anyOf", "oneOf"})
"""Keywords whose subschemas stand beside the schema in an alternative."""

MOST_ALTERNATIVES = 256
"""Where `anyOf`s multiply to more than this, one of them is left to the check of the finished answer."""


Groups = dict[str, list[list[Any]]]
"""By keyword, groups of schemas, one of each group to hold."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Schemas that apply together, once a branch of each `anyOf` and `oneOf` is taken.

    Attributes:
        nodes: The schemas; of each, what `allOf`, `anyOf` and `oneOf` hold stands beside it.
        taken: Which branches were taken: `id()` of the schema, keyword, index.
    """

    nodes: tuple[Schema, ...]
    taken: tuple[tuple[int, str, int], ...] = ()

    def __add__(self, other: Alternative) -> Alternative:
        """Both together."""
        return Alternative(self.nodes + other.nodes, self.taken + other.taken)


def alternatives(
    nodes: tuple[Any, ...],
    dropped: Callable[[Schema, str], None],
    rewritten: Callable[[Schema], Groups],
    room: int = MOST_ALTERNATIVES,
) -> list[Alternative]:
    """All ways to satisfy `nodes` together; none where one of them is `false`.

    Args:
        nodes: Schemas, objects or booleans.
        dropped: Called with a schema and its keyword where that keyword is left out, because there are too many ways.
        rewritten: Gives what else a schema says, by keyword, as groups of schemas, one of each group to hold.
        room: Most ways to return.
    """
    ways = [Alternative(())]
    for node in nodes:
        if node is False:
            return []
        if node is not True:
            ways = _product(ways, _ways(node, dropped, rewritten, room // max(1, len(ways))))
    return ways


def _ways(
    node: Schema, dropped: Callable[[Schema, str], None], rewritten: Callable[[Schema], Groups], room: int
) -> list[Alternative]:
    ways = [Alternative((node,))]
    if "allOf" in node:
        ways = _product(ways, alternatives(tuple(node["allOf"]), dropped, rewritten, room))
    for keyword in ("anyOf", "oneOf"):
        if keyword not in node:
            continue
        branches = [
            Alternative((), ((id(node), keyword, index),)) + way
            for index, branch in enumerate(node[keyword])
            for way in alternatives((branch,), dropped, rewritten, room)
        ]
        if len(ways) * len(branches) > room:
            dropped(node, keyword)
        else:
            ways = _product(ways, branches)
    for keyword, groups in rewritten(node).items():
        found = [[way for part in group for way in alternatives((part,), dropped, rewritten, room)] for group in groups]
        if len(ways) * math.prod(map(len, found)) > room:
            dropped(node, keyword)
        else:
            for options in found:
                ways = _product(ways, options)
    return ways


def _product(ways: list[Alternative], others: list[Alternative]) -> list[Alternative]:
    return [way + other for way in ways for other in others]
