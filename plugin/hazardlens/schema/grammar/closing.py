"""How much an answer of a grammar still needs from where it stands, by parsing along (Earley, 1970).

Each place is a set of items: a production, how far it is written, and the place where it began. What an item needs is
what is left of it, and what then follows where it began; a place needs the least of its items. The bytes of the
shortest way to the end bound the tokens, so that some next byte always leads to a place that needs one less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from hazardlens.schema.closing import Choices, Need
from hazardlens.schema.grammar.rules import Grammar, Production
from hazardlens.schema.grammar.tree import Chars

_LEAST_CODES = {2: 0x80, 3: 0x800, 4: 0x10000}


class _Item(NamedTuple):
    production: Production
    at: int
    origin: int


@dataclass(slots=True)
class _Place:
    kernel: tuple[_Item, ...] = ()
    scans: list[_Item] = field(default_factory=list)
    waiting: dict[int, list[_Item]] = field(default_factory=dict)
    outer: dict[int, float] = field(default_factory=dict)
    is_end: bool = False
    before: int = 0
    pending: bytes = b""
    steps: dict[int, int] = field(default_factory=dict)
    need: Need | None = None


class GrammarClosing:
    """Follows one answer of a grammar and tells what it still needs; its places are numbers, 0 where nothing fits.

    Args:
        grammar: The grammar.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._places = [_Place(), _Place()]
        self.start = 1
        first = [_Item(way, 0, self.start) for way in grammar.productions[0]]
        self._places[self.start].outer[0] = 0
        self._fill(self.start, first)

    @property
    def size(self) -> int:
        """How many places are remembered."""
        return len(self._places)

    def follow(self, place: int, text: bytes) -> int:
        """The place after `text`, or 0 where it does not fit."""
        for byte in text:
            if not place:
                break
            steps = self._places[place].steps
            if byte not in steps:
                steps[byte] = self._step(place, byte)
            place = steps[byte]
        return place

    def need(self, place: int) -> Need:
        """What completes an answer from `place`."""
        found = self._places[place]
        if found.need is None:
            run = self._run(place)
            tokens = self._bytes(place)
            found.need = Need(tokens, tokens, run, tokens - len(run))
        return found.need

    def choices_ahead(self, place: int) -> Choices:
        """No choice of a grammar is a field of its own."""
        del place
        return {}

    def choices_entered(self, place: int, text: bytes) -> Choices:
        """No choice of a grammar is a field of its own."""
        del place, text
        return {}

    def endings(self, place: int, value: bytes) -> tuple[bytes | None, ...]:
        """No value of a grammar is one of a choice."""
        del place, value
        return ()

    def is_free(self, place: int) -> bool:
        """Whether no choice is being made at `place`; see `choices_ahead`."""
        return bool(place)

    def _bytes(self, place: int) -> int:
        found = self._places[place]
        if found.pending:
            left = _length(found.pending[0]) - len(found.pending)
            inner = self._places[found.before]
            low, high = _codes(found.pending)
            after = (self._value(_next(item)) for item in inner.scans if _chars(item).holds(low, high))
            return left + int(min(after, default=math.inf))
        if place == self.start:
            return self._grammar.need[0]
        return 0 if found.is_end else int(min(map(self._value, found.kernel)))

    def _value(self, item: _Item) -> float:
        outer = self._places[item.origin].outer.get(item.production.symbol, math.inf)
        return self._grammar.rest(item.production, item.at) + outer

    def _step(self, place: int, byte: int) -> int:
        found = self._places[place]
        pending = found.pending + bytes([byte])
        if len(pending) == 1 and (byte in range(0x80, 0xC2) or byte > 0xF4):
            return 0
        if len(pending) > 1 and byte not in range(0x80, 0xC0):
            return 0
        base = found.before if found.pending else place
        inner = self._places[base]
        low, high = _codes(pending)
        if low > high:
            return 0
        scanned = [_next(item) for item in inner.scans if _chars(item).holds(low, high)]
        if not scanned:
            return 0
        self._places.append(_Place(before=base, pending=pending))
        number = len(self._places) - 1
        if len(pending) == _length(pending[0]):
            self._places[number].pending = b""
            self._fill(number, scanned)
        return number

    def _fill(self, number: int, kernel: Iterable[_Item]) -> None:
        """Complete and predict from the items that a character led to."""
        place = self._places[number]
        place.kernel = tuple(dict.fromkeys(kernel))
        seen: set[_Item] = set(place.kernel)
        empty: set[int] = set()
        work = list(place.kernel)
        while work:
            item = work.pop()
            fresh = self._ended(item, number, empty) if _is_whole(item) else iter(())
            following = _following(item)
            if isinstance(following, Chars):
                place.scans.append(item)
            elif following is not None:
                place.waiting.setdefault(following, []).append(item)
                predicted = (_Item(way, 0, number) for way in self._grammar.productions[following])
                own = [_next(item)] if following in empty else []
                fresh = iter([*fresh, *predicted, *own])
            for other in fresh:
                if other not in seen:
                    seen.add(other)
                    work.append(other)
        self._settle(number)

    def _ended(self, item: _Item, number: int, empty: set[int]) -> Iterator[_Item]:
        symbol = item.production.symbol
        if item.origin == number:
            empty.add(symbol)
        if symbol == 0 and item.origin == self.start:
            self._places[number].is_end = True
        yield from [_next(other) for other in self._places[item.origin].waiting.get(symbol, ())]

    def _settle(self, number: int) -> None:
        """Find what follows each symbol that begins here, by relaxation, since it may begin with itself."""
        place = self._places[number]
        work = list(place.waiting)
        while work:
            symbol = work.pop()
            value = min(map(self._value, map(_next, place.waiting[symbol])))
            if value < place.outer.get(symbol, math.inf):
                place.outer[symbol] = value
                work += [
                    other
                    for other, items in place.waiting.items()
                    if any(item.origin == number and item.production.symbol == symbol for item in items)
                ]

    def _run(self, place: int) -> bytes:
        """Text that leaves no choice on the shortest way to the end."""
        run = b""
        while len(run) < 256:
            found = self._places[place]
            if found.pending or found.is_end:
                return run
            least = min(map(self._value, found.kernel))
            first: set[Chars] = set()
            for item in found.kernel:
                if self._value(item) == least:
                    self._first(item, first, set())
            (chars, *more) = first
            if more or chars.ranges[0][0] != chars.ranges[-1][1]:
                return run
            text = chr(chars.ranges[0][0]).encode()
            run, place = run + text, self.follow(place, text)
        return run

    def _first(self, item: _Item, found: set[Chars], seen: set[_Item]) -> bool:
        """Add the characters that may come next in what an item is planned to need; whether it may also be nothing."""
        if item in seen:
            return False
        seen.add(item)
        production = item.production
        if production.low is not None:
            parts = production.parts * max(0, production.low - item.at)
        else:
            parts = production.parts[item.at :]
        for part in parts:
            if isinstance(part, Chars):
                found.add(part)
                return False
            ways = [self._first(_Item(way, 0, -1), found, seen) for way in self._grammar.closing[part]]
            if not any(ways):
                return False
        if item.origin >= 0:
            self._first_after(item, found, seen)
        return True

    def _first_after(self, item: _Item, found: set[Chars], seen: set[_Item]) -> None:
        origin = self._places[item.origin]
        outer = origin.outer.get(item.production.symbol, math.inf)
        for other in origin.waiting.get(item.production.symbol, ()):
            following = _next(other)
            if self._value(following) == outer:
                self._first(following, found, seen)


def _following(item: _Item) -> Chars | int | None:
    production = item.production
    if production.low is None:
        return production.parts[item.at] if item.at < len(production.parts) else None
    return production.parts[0] if production.high is None or item.at < production.high else None


def _chars(item: _Item) -> Chars:
    following = _following(item)
    if not isinstance(following, Chars):
        raise TypeError(f"expected an item that waits for a character, got {item}")
    return following


def _next(item: _Item) -> _Item:
    at = item.at + 1
    if item.production.low is not None and item.production.high is None:
        at = min(at, item.production.low)
    return item._replace(at=at)


def _is_whole(item: _Item) -> bool:
    production = item.production
    return item.at >= (len(production.parts) if production.low is None else production.low)


def _length(first: int) -> int:
    return 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


def _codes(pending: bytes) -> tuple[int, int]:
    """First and last code point whose UTF-8 begins with `pending`."""
    length = _length(pending[0])
    code = pending[0] if length == 1 else pending[0] & (0x7F >> length)
    for byte in pending[1:]:
        code = code << 6 | byte & 0x3F
    shift = 6 * (length - len(pending))
    low, high = code << shift, ((code + 1) << shift) - 1
    return max(low, _LEAST_CODES.get(length, 0)), min(high, 0x10FFFF)
