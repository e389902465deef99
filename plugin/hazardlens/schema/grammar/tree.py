"""What a grammar is made of: characters, sequences, alternatives, repetitions, and references to rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Code points, as first and last of each run, in order."""

_LAST = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of some.

    Attributes:
        ranges: Its code points, sorted, apart from each other, and without surrogates.
    """

    ranges: Ranges

    def holds(self, first: int, last: int) -> bool:
        """Whether one of the code points from `first` to `last` is among them."""
        return any(low <= last and first <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other.

    Attributes:
        parts: What follows what; none for empty text.
    """

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of several.

    Attributes:
        options: What to choose from.
    """

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same several times.

    Attributes:
        part: What is repeated.
        low: Fewest times.
        high: Most times, or None for no end.
    """

    part: Node
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Ref:
    """A rule of the grammar.

    Attributes:
        name: Its name.
    """

    name: str


Node: TypeAlias = Chars | Seq | Alt | Repeat | Ref


def chars(ranges: Iterable[tuple[int, int]]) -> Chars:
    """The characters of `ranges`, which may overlap."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(_without_surrogates(ranges)):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return Chars(tuple(merged))


def others(ranges: Ranges) -> Chars:
    """All characters but those of `ranges`."""
    found, at = [], 0
    for low, high in chars(ranges).ranges:
        found.append((at, low - 1))
        at = high + 1
    return chars((low, high) for low, high in [*found, (at, _LAST)] if low <= high)


def literal(text: str, *, ignore_case: bool = False) -> Seq:
    """Exactly `text`."""
    return Seq(tuple(chars((ord(form), ord(form)) for form in _forms(char, ignore_case)) for char in text))


def either_case(ranges: Ranges) -> Chars:
    """The characters of `ranges`, and the same in upper and lower case."""
    few = sum(high - low for low, high in ranges) < 5000
    forms = (form for low, high in ranges if few for code in range(low, high + 1) for form in _forms(chr(code), True))
    return chars([*ranges, *((ord(form), ord(form)) for form in forms)])


def _forms(char: str, ignore_case: bool) -> set[str]:
    forms = {char, char.lower(), char.upper()} if ignore_case else {char}
    return {form for form in forms if len(form) == 1}


def _without_surrogates(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    first, last = _SURROGATES
    for low, high in ranges:
        yield from ((a, b) for a, b in ((low, min(high, first - 1)), (max(low, last + 1), high)) if a <= b)
