"""A grammar in plain productions, with what each of its symbols needs at least."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from llguidance import LLMatcher

from hazardlens.schema.grammar.tree import Alt, Chars, Node, Ref, Repeat, Seq

_START = "start"
_FEW_CHARACTERS = 256


@dataclass(frozen=True, slots=True, eq=False)
class Production:
    """One way to write a symbol: its parts in a row, or, where `low` is not None, one part several times.

    Attributes:
        symbol: Number of the symbol.
        parts: Characters, and numbers of symbols.
        low: Fewest times of a repetition, else None.
        high: Most times of a repetition, or None for no end.
    """

    symbol: int
    parts: tuple[Chars | int, ...]
    low: int | None = None
    high: int | None = None


class Grammar:
    """A context-free grammar over characters: a rule may end wherever it can, not only at its longest match.

    Args:
        rules: The rules by name.
        lines: The line of each in its text.

    Attributes:
        productions: By number of the symbol, the ways to write it; the first symbol is where an answer begins.
        closing: The same without what leads back to the symbol itself, which there always is another way around.

    Raises:
        ValueError: There is no rule `start`, or it can never end; the message names the rule that cannot.
    """

    def __init__(self, rules: dict[str, Node], lines: dict[str, int]) -> None:
        if _START not in rules:
            raise ValueError("no rule called start, or root in GBNF")
        self._rules = rules
        least = _least(rules)
        if math.isinf(least[_START]):
            endless = [name for name in rules if math.isinf(least[name])]
            named = ", ".join(f"{name} (line {lines[name]})" if name in lines else name for name in endless)
            raise ValueError(f"an answer can never end: {named} cannot be completed without itself")
        self._rules = {name: pruned for name, node in rules.items() if (pruned := _pruned(node, least)) is not None}
        self._numbers: dict[Node, int] = {}
        self.productions: list[tuple[Production, ...]] = []
        self._symbol(Ref(_START))
        self.need: list[int] = []
        self.closing: list[tuple[Production, ...]] = []
        self._judge()

    def bytes_of(self, part: Chars | int) -> int:
        """Bytes to plan for a part: of a repetition its fewest, of several ways the longest that needs no detour."""
        if isinstance(part, int):
            return self.need[part]
        size = sum(high - low + 1 for low, high in part.ranges)
        code = part.ranges[-1][1] if size <= _FEW_CHARACTERS else part.ranges[0][0]
        return len(chr(code).encode())

    def rest(self, production: Production, at: int) -> int:
        """Bytes to plan for what follows once `at` parts, or times, of a production are written."""
        if production.low is not None:
            return max(0, production.low - at) * self.bytes_of(production.parts[0])
        return sum(map(self.bytes_of, production.parts[at:]))

    def longest(self) -> int | None:
        """Bytes of the longest answer, or None where there is none."""
        found: dict[int, int] = {}
        try:
            order = TopologicalSorter(
                {number: set(_symbols(ways)) for number, ways in enumerate(self.productions)}
            ).static_order()
            for number in order:
                found[number] = max(self._longest_way(way, found) for way in self.productions[number])
        except (CycleError, OverflowError):
            return None
        return found[0]

    def to_llguidance(self) -> str:
        """The llguidance grammar of the same language; each lexeme is one character, so none can be cut otherwise."""
        names: dict[Chars, str] = {}
        lines = [f"{_rule_name(number)}: {self._ways(number, names)}" for number in range(len(self.productions))]
        lines += [f"{name}: /{_character_class(chars)}/" for chars, name in names.items()]
        return str(LLMatcher.grammar_from_lark("\n".join(lines)))

    def _ways(self, number: int, names: dict[Chars, str]) -> str:
        return " | ".join(self._way(way, names) for way in self.productions[number])

    def _way(self, way: Production, names: dict[Chars, str]) -> str:
        parts = [
            _rule_name(part) if isinstance(part, int) else names.setdefault(part, f"C{len(names)}")
            for part in way.parts
        ]
        if way.low is None:
            return " ".join(parts) or '""'
        return f"{parts[0]}{{{way.low},{'' if way.high is None else way.high}}}"

    def _longest_way(self, way: Production, found: dict[int, int]) -> int:
        sizes = [found[part] if isinstance(part, int) else len(chr(part.ranges[-1][1]).encode()) for part in way.parts]
        if way.low is None:
            return sum(sizes)
        if way.high is None and sizes[0]:
            raise OverflowError
        return sizes[0] * (way.high or 0)

    def _symbol(self, node: Node) -> int:
        """The number of a symbol that stands for `node`."""
        if node in self._numbers:
            return self._numbers[node]
        number = self._numbers[node] = len(self.productions)
        self.productions.append(())
        inner = self._rules[node.name] if isinstance(node, Ref) else node
        options = inner.options if isinstance(inner, Alt) else (inner,)
        self.productions[number] = tuple(self._production(number, option) for option in options)
        return number

    def _production(self, number: int, node: Node) -> Production:
        if isinstance(node, Repeat):
            return Production(number, (self._plain(node.part),), node.low, node.high)
        parts = node.parts if isinstance(node, Seq) else (node,)
        return Production(number, tuple(part for inner in parts for part in self._flat(inner)))

    def _flat(self, node: Node) -> Iterator[Chars | int]:
        if isinstance(node, Seq):
            for part in node.parts:
                yield from self._flat(part)
        else:
            yield self._plain(node)

    def _plain(self, node: Node) -> Chars | int:
        return node if isinstance(node, Chars) else self._symbol(node)

    def _judge(self) -> None:
        """Find which ways close a symbol: those whose own symbols are settled before it."""
        settled: dict[int, int] = {}
        least = [math.inf] * len(self.productions)
        while len(settled) < len(least):
            waiting = [number for number in range(len(least)) if number not in settled]
            for number in waiting:
                least[number] = min(_cost(way, least, settled) for way in self.productions[number])
            nearest = min(waiting, key=lambda number: (least[number], number))
            settled[nearest] = len(settled)
        component = _components(self.productions)
        rank = [(component[number], settled[number]) for number in range(len(least))]
        self.closing = [
            tuple(way for way in ways if way.low == 0 or all(rank[part] < rank[number] for part in _symbols([way])))
            for number, ways in enumerate(self.productions)
        ]
        self.need = [0] * len(least)
        for number in sorted(range(len(least)), key=rank.__getitem__):
            self.need[number] = max(self.rest(way, 0) for way in self.closing[number])


def _rule_name(number: int) -> str:
    return f"r{number}" if number else _START


def _character_class(chars: Chars) -> str:
    return "[" + "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in chars.ranges) + "]"


def _symbols(ways: tuple[Production, ...] | list[Production]) -> Iterator[int]:
    return (part for way in ways for part in way.parts if isinstance(part, int))


def _cost(way: Production, least: list[float], settled: dict[int, int]) -> float:
    """Least bytes of one way, as far as its symbols are settled."""
    if way.low == 0:
        return 0
    sizes = [
        (least[part] if part in settled else math.inf)
        if isinstance(part, int)
        else len(chr(part.ranges[0][0]).encode())
        for part in way.parts
    ]
    return sum(sizes) * (1 if way.low is None else way.low)


def _components(productions: list[tuple[Production, ...]]) -> list[int]:
    """Of each symbol, the number of its strongly connected component, those it needs first (Tarjan, 1972)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    found = [-1] * len(productions)
    stack: list[int] = []
    for root in range(len(productions)):
        if root in order:
            continue
        work = [(root, iter(tuple(_symbols(productions[root]))))]
        order[root] = low[root] = len(order)
        stack.append(root)
        while work:
            number, following = work[-1]
            other = next(following, None)
            if other is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[number])
                if low[number] == order[number]:
                    name = max(found) + 1
                    while found[number] == -1:
                        found[stack.pop()] = name
            elif other not in order:
                order[other] = low[other] = len(order)
                stack.append(other)
                work.append((other, iter(tuple(_symbols(productions[other])))))
            elif found[other] == -1:
                low[number] = min(low[number], order[other])
    return found


def _least(rules: dict[str, Node]) -> dict[str, float]:
    """Of each rule, 0 where it can be completed, else infinity."""
    least = dict.fromkeys(rules, math.inf)
    grown = True
    while grown:
        grown = False
        for name, node in rules.items():
            if math.isinf(least[name]) and _ends(node, least):
                least[name], grown = 0, True
    return least


def _ends(node: Node, least: dict[str, float]) -> bool:
    if isinstance(node, Ref):
        return not math.isinf(least[node.name])
    if isinstance(node, Repeat):
        return node.low == 0 or _ends(node.part, least)
    if isinstance(node, Seq):
        return all(_ends(part, least) for part in node.parts)
    if isinstance(node, Alt):
        return any(_ends(option, least) for option in node.options)
    return bool(node.ranges)


def _pruned(node: Node, least: dict[str, float]) -> Node | None:
    """`node` without what could never be completed; None where nothing is left."""
    if not _ends(node, least):
        return None
    if isinstance(node, Alt):
        options = tuple(option for option in (_pruned(one, least) for one in node.options) if option is not None)
        return options[0] if len(options) == 1 else Alt(options)
    if isinstance(node, Repeat):
        part = _pruned(node.part, least)
        return Seq(()) if part is None or node.high == 0 else Repeat(part, node.low, node.high)
    if isinstance(node, Seq):
        return Seq(tuple(part for part in (_pruned(one, least) for one in node.parts) if part is not None))
    return node
