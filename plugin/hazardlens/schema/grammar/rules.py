"""A grammar in plain productions, with what each of its symbols needs at least."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from llguidance import LLMatcher

from hazardlens.schema.grammar.tree import Alt, Chars, Node, Ref, Repeat, Seq
from hazardlens.schema.ranking import Way, closing

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
        """Find which ways close a symbol, and what it needs by them."""
        kept, order = closing([[_way(way) for way in ways] for ways in self.productions])
        self.closing = [
            tuple(way for way, is_kept in zip(ways, own, strict=True) if is_kept)
            for ways, own in zip(self.productions, kept, strict=True)
        ]
        self.need = [0] * len(order)
        for number in order:
            self.need[number] = max(self.rest(way, 0) for way in self.closing[number])


def _rule_name(number: int) -> str:
    return f"r{number}" if number else _START


def _character_class(chars: Chars) -> str:
    return "[" + "".join(rf"\x{{{low:X}}}-\x{{{high:X}}}" for low, high in chars.ranges) + "]"


def _symbols(ways: tuple[Production, ...] | list[Production]) -> Iterator[int]:
    return (part for way in ways for part in way.parts if isinstance(part, int))


def _way(way: Production) -> Way:
    times = 1 if way.low is None else way.low
    size = sum(times * len(chr(part.ranges[0][0]).encode()) for part in way.parts if isinstance(part, Chars))
    return Way(size, tuple((part, times) for part in way.parts if isinstance(part, int) and times))


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
