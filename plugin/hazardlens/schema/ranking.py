"""Which ways to write a symbol come to an end without the symbol itself."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write a symbol.

    Attributes:
        size: Least length of what is no symbol.
        needs: The symbols in it, and how many times each at least.
    """

    size: int
    needs: tuple[tuple[int, int], ...] = ()


def closing(ways: Sequence[Sequence[Way]]) -> tuple[list[list[bool]], list[int]]:
    """Of each symbol, which ways need only symbols before it in an order in which each symbol has one such way.

    Where a symbol does not lead back to itself, those are all its ways.

    Args:
        ways: By number of the symbol, its ways. Each symbol can come to an end.

    Returns:
        Of each way whether it is one, and the symbols in that order.
    """
    component = _components([sorted({part for way in own for part, _ in way.needs}) for own in ways])
    settled = {number: place for place, number in enumerate(_shortest_first(ways))}
    order = sorted(range(len(ways)), key=lambda number: (component[number], settled[number]))
    rank = {number: place for place, number in enumerate(order)}
    kept = [[all(rank[part] < rank[number] for part, _ in way.needs) for way in own] for number, own in enumerate(ways)]
    return kept, order


def is_cyclic(ways: Sequence[Sequence[Way]]) -> bool:
    """Whether a symbol leads back to itself."""
    graph = {number: {part for way in own for part, _ in way.needs} for number, own in enumerate(ways)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


def _shortest_first(ways: Sequence[Sequence[Way]]) -> list[int]:
    """Symbols by the least length of what they stand for (Knuth, A generalization of Dijkstra's algorithm, 1977)."""
    users: dict[int, list[tuple[int, Way]]] = {}
    missing = {
        (number, id(way)): len({part for part, _ in way.needs}) for number, own in enumerate(ways) for way in own
    }
    waiting = [(way.size, number) for number, own in enumerate(ways) for way in own if not way.needs]
    for number, own in enumerate(ways):
        for way in own:
            for part in {part for part, _ in way.needs}:
                users.setdefault(part, []).append((number, way))
    least: dict[int, int] = {}
    heapq.heapify(waiting)
    while waiting:
        size, number = heapq.heappop(waiting)
        if number in least:
            continue
        least[number] = size
        for user, way in users.get(number, ()):
            missing[user, id(way)] -= 1
            if not missing[user, id(way)]:
                total = way.size + sum(times * least[part] for part, times in way.needs)
                heapq.heappush(waiting, (total, user))
    return list(least)


def _components(edges: Sequence[Sequence[int]]) -> list[int]:
    """Of each symbol, the number of its strongly connected component, those it needs first (Tarjan, 1972)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    found = [-1] * len(edges)
    count = 0
    stack: list[int] = []
    for root in range(len(edges)):
        if root in order:
            continue
        order[root] = low[root] = len(order)
        stack.append(root)
        work = [(root, iter(edges[root]))]
        while work:
            number, following = work[-1]
            other = next(following, None)
            if other is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[number])
                if low[number] == order[number]:
                    while found[number] == -1:
                        found[stack.pop()] = count
                    count += 1
            elif other not in order:
                order[other] = low[other] = len(order)
                stack.append(other)
                work.append((other, iter(edges[other])))
            elif found[other] == -1:
                low[number] = min(low[number], order[other])
    return found
