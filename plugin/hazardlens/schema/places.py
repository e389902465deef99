"""Where in its shape an answer stands: states that a piece of text stands in, and what takes it from one to the next.

A state is a leaf of the shape, partly written, and a stack of what follows it. Alternatives that cannot be told apart
yet are held side by side, as in a nondeterministic automaton. Numbers and patterned text are followed by their length
only, for the mask holds what they look like.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

from hazardlens.record import choice_name
from hazardlens.schema.endings import leading_home
from hazardlens.schema.plain import Line, Words
from hazardlens.schema.shapes import Again, AnyOf, Array, Choice, Never, Number, Object, Shape, Text
from hazardlens.schema.spelling import ITEM_SEPARATOR, KEY_SEPARATOR, spell

NO_CHOICE = -1

_AFTER_BACKSLASH = -1
_HEX_DIGITS = 4
_IN_HEX = 10
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_NUMBER = frozenset(b"+-.0123456789Ee")
_LETTERS = b"abcdefghijklmnopqrstuvwxyz"


class Frame(NamedTuple):
    """What follows a leaf: part `at` of shape number `shape`, then what is below; `detours` of the kind in all."""

    kind: str
    shape: int
    at: int
    below: Frame | None
    detours: int


class Fixed(NamedTuple):
    """Fixed text, `at` bytes of it written; `grows` where it begins something optional; one value of a choice."""

    text: bytes
    at: int
    grows: bool
    choice: int
    after: Frame | None


class Free(NamedTuple):
    """Free text: characters still `missing`, and bytes `pending` of a character or an escape."""

    missing: int
    pending: int
    after: Frame | None


class Span(NamedTuple):
    """A number, text held to a pattern, or a plain line, of at most `left` further bytes."""

    left: int
    kind: Literal["number", "text", "line"]
    escaped: bool
    after: Frame | None


class End(NamedTuple):
    """The answer is complete."""


State: TypeAlias = Fixed | Free | Span | End


def _frame(kind: str, shape: int, at: int, below: Frame | None) -> Frame:
    return Frame(kind, shape, at, below, (below.detours if below else 0) + (kind == "detour"))


def detours(state: State) -> int:
    """How many alternatives a state is inside of that lead back to where they began."""
    return 0 if isinstance(state, End) or state.after is None else state.after.detours


class Places:
    """The states of one shape.

    Args:
        shape: The shape of the whole answer.
        pointer: JSON pointer of the answer in the fields.
    """

    def __init__(self, shape: Shape, pointer: str = "") -> None:
        self._pointer = pointer
        self.shapes: list[Shape] = []
        self._numbers: dict[int, int] = {}
        self._root = self._number(shape)
        self._leading_home = leading_home(shape)

    def _number(self, shape: Shape) -> int:
        if id(shape) not in self._numbers:
            self._numbers[id(shape)] = len(self.shapes)
            self.shapes.append(shape)
        return self._numbers[id(shape)]

    def start(self) -> Iterator[State]:
        """The states before the first byte."""
        return self._enter(self._root, None, grows=False)

    def step(self, state: State, byte: int) -> Iterator[State]:
        """The states after one more byte; none where it does not fit."""
        if isinstance(state, Fixed):
            if state.text[state.at] == byte:
                at = state.at + 1
                yield from [state._replace(at=at)] if at < len(state.text) else self._leave(state.after)
        elif isinstance(state, Free):
            yield from self._step_free(state, byte)
        elif isinstance(state, Span):
            yield from self._step_span(state, byte)

    def name(self, state: Fixed) -> str:
        """The value that is being written, as a key."""
        text = state.text.decode()
        return choice_name(text if isinstance(self.shapes[state.choice], Words) else json.loads(text))

    def pointer(self, state: Fixed) -> str:
        """JSON pointer of the place in the fields where a choice stands."""
        parts: list[str] = []
        frame = state.after
        while frame is not None:
            shape = self.shapes[frame.shape]
            if frame.kind == "properties" and isinstance(shape, Object):
                name = shape.properties[frame.at - 1][0]
                parts.append(name.replace("~", "~0").replace("/", "~1"))
            elif frame.kind == "items" and isinstance(shape, Array):
                parts.append(str(frame.at - 1))
            frame = frame.below
        return self._pointer + "".join(f"/{part}" for part in reversed(parts))

    def _enter(self, number: int, after: Frame | None, *, grows: bool) -> Iterator[State]:
        shape = self.shapes[number]
        if isinstance(shape, Choice):
            for value in shape.values:
                yield Fixed(spell(value).encode(), 0, grows, number, after)
        elif isinstance(shape, Text):
            yield Fixed(b'"', 0, grows, NO_CHOICE, _frame("text", number, 0, after))
        elif isinstance(shape, Number):
            yield Span(shape.longest(len), "number", False, after)
        elif isinstance(shape, Words):
            for label in shape.labels:
                yield Fixed(label.encode(), 0, grows, number, after)
        elif isinstance(shape, Line):
            yield Span(shape.longest(len), "line", False, after)
            yield from self._leave(after)
        elif isinstance(shape, Object):
            yield from self._properties(number, 0, after, opening="{", grows=grows)
        elif isinstance(shape, Array):
            yield Fixed(b"[", 0, grows, NO_CHOICE, _frame("items", number, 0, after))
        elif isinstance(shape, AnyOf):
            for index, option in enumerate(shape.options):
                is_detour = (id(shape), index) in self._leading_home
                below = _frame("detour", number, 0, after) if is_detour else after
                yield from self._enter(self._number(option), below, grows=grows)
        elif isinstance(shape, Again):
            yield from self._enter(self._number(shape.again), after, grows=grows)
        elif not isinstance(shape, Never):
            raise TypeError(f"no states for {type(shape).__name__}")

    def _leave(self, frame: Frame | None) -> Iterator[State]:
        if frame is None:
            yield End()
        elif frame.kind == "value":
            yield from self._enter(frame.shape, frame.below, grows=False)
        elif frame.kind == "text":
            yield self._text(frame)
        elif frame.kind == "detour":
            yield from self._leave(frame.below)
        elif frame.kind == "properties":
            yield from self._properties(frame.shape, frame.at, frame.below, opening="", grows=False)
        else:
            yield from self._items(frame.shape, frame.at, frame.below)

    def _text(self, frame: Frame) -> State:
        shape = self.shapes[frame.shape]
        if not isinstance(shape, Text):
            raise TypeError(f"expected text, got {type(shape).__name__}")
        if shape.patterns or shape.format:
            return Span(shape.longest(len) - 2, "text", False, frame.below)
        return Free(shape.low, 0, frame.below)

    def _properties(self, number: int, at: int, below: Frame | None, *, opening: str, grows: bool) -> Iterator[State]:
        """The keys that may come next in an object, up to the first that must, or its end."""
        shape = self.shapes[number]
        properties = shape.properties if isinstance(shape, Object) else ()
        for index in range(at, len(properties)):
            name, part, required = properties[index]
            key = (opening or ITEM_SEPARATOR) + spell(name) + KEY_SEPARATOR
            after = _frame("value", self._number(part), 0, _frame("properties", number, index + 1, below))
            yield Fixed(key.encode(), 0, grows or not required, NO_CHOICE, after)
            if required:
                return
        yield Fixed(f"{opening}}}".encode(), 0, grows, NO_CHOICE, below)

    def _items(self, number: int, at: int, below: Frame | None) -> Iterator[State]:
        """The item that may come next in an array, or its end."""
        shape = self.shapes[number]
        if not isinstance(shape, Array):
            raise TypeError(f"expected an array, got {type(shape).__name__}")
        part = shape.prefix[at] if at < len(shape.prefix) else shape.rest
        if at < shape.high and part is not None:
            after = _frame("items", number, at + 1, below)
            grows = at >= shape.low
            if at:
                value = _frame("value", self._number(part), 0, after)
                yield Fixed(ITEM_SEPARATOR.encode(), 0, grows, NO_CHOICE, value)
            else:
                yield from self._enter(self._number(part), after, grows=grows)
        if at >= shape.low:
            yield Fixed(b"]", 0, False, NO_CHOICE, below)

    def _step_free(self, state: Free, byte: int) -> Iterator[State]:
        missing = max(0, state.missing - 1)
        if state.pending == _AFTER_BACKSLASH:
            yield state._replace(pending=_IN_HEX + _HEX_DIGITS) if byte == ord("u") else Free(missing, 0, state.after)
        elif state.pending > _IN_HEX:
            left = state.pending - 1
            yield state._replace(pending=left) if left > _IN_HEX else Free(missing, 0, state.after)
        elif state.pending:
            left = state.pending - 1
            yield state._replace(pending=left) if left else Free(missing, 0, state.after)
        elif byte == _QUOTE:
            if not state.missing:
                yield from self._leave(state.after)
        elif byte == _BACKSLASH:
            yield state._replace(pending=_AFTER_BACKSLASH)
        elif byte >= 0xC0:
            yield state._replace(pending=1 + (byte >= 0xE0) + (byte >= 0xF0))
        elif 0x20 <= byte < 0x80:
            yield Free(missing, 0, state.after)

    def _step_span(self, state: Span, byte: int) -> Iterator[State]:
        if state.kind == "text" and byte == _QUOTE and not state.escaped:
            yield from self._leave(state.after)
            return
        if state.left == 0 or (state.kind == "number" and byte not in _NUMBER):
            return
        if state.left > 1 or state.kind == "text":
            yield state._replace(left=state.left - 1, escaped=byte == _BACKSLASH and not state.escaped)
        if state.kind != "text":
            yield from self._leave(state.after)


def closing_bytes(state: State) -> tuple[bytes, bytes]:
    """Bytes that take a state towards its end.

    Returns:
        Bytes of their own, and bytes any one of which stands for all that are not among them.
    """
    if isinstance(state, Fixed):
        return state.text[state.at : state.at + 1], b""
    if isinstance(state, Free):
        return _closing_free(state)
    if isinstance(state, Span):
        if state.kind != "text":
            return b"", b"0123456789" if state.kind == "number" else _LETTERS
        return (b"" if state.escaped else b'"', _LETTERS if state.left else b"")
    return b"", b""


def _closing_free(state: Free) -> tuple[bytes, bytes]:
    if state.pending == _AFTER_BACKSLASH:
        return b"", b"n"
    if state.pending > _IN_HEX:
        return b"", b"0"
    if state.pending:
        return b"", b"\x80"
    return (b"", _LETTERS) if state.missing else (b'"', b"")
