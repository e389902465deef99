"""Which shapes can come to an end, and what is left of one without those that cannot."""

from __future__ import annotations

from collections.abc import Callable

from hazardlens.schema.ranking import Way, closing, is_cyclic
from hazardlens.schema.shapes import Again, AnyOf, Array, Never, Object, Shape, every_part

_ENDLESS = "it requires itself, without end"

Note = Callable[[str, str], None]
"""Takes a pointer and what was left out there."""


def ended(shape: Shape, note: Note) -> Shape:
    """`shape` without what can never be completed; `Never` with the places at fault where that is all of it."""
    parts = every_part(shape)
    if not any(isinstance(part, Again) for part in parts):
        return shape
    ends = _ends(parts)
    endless = [part for part in parts if isinstance(part, Again) and id(part) not in ends]
    if not endless:
        return shape
    if id(shape) not in ends:
        return Never(tuple((part.pointer, _ENDLESS) for part in endless), pointer=shape.pointer)
    for part in endless:
        note(part.pointer, f"{_ENDLESS}, so it is left out")
    return _Pruner(ends).kept(shape)


def leading_home(shape: Shape) -> set[tuple[int, int]]:
    """Options that lead back to what they are an option of: `id()` of the `AnyOf`, and index of the option.

    Each has another option that does not, by which an answer can be ended.
    """
    parts = every_part(shape)
    if not any(isinstance(part, Again) for part in parts):
        return set()
    numbers = {id(part): number for number, part in enumerate(parts)}
    ways = [_ways(part, numbers) for part in parts]
    if not is_cyclic(ways):
        return set()
    kept, _ = closing(ways)
    return {
        (id(part), index)
        for part, own in zip(parts, kept, strict=True)
        if isinstance(part, AnyOf)
        for index, is_kept in enumerate(own)
        if not is_kept
    }


def _needed(shape: Shape) -> list[tuple[Shape, int]]:
    """The parts that must be there, and how many times."""
    if isinstance(shape, Object):
        return [(part, 1) for _, part, required in shape.properties if required]
    if isinstance(shape, Again):
        return [(shape.again, 1)]
    if isinstance(shape, Array):
        needed = [(part, 1) for part in shape.prefix[: shape.low]]
        more = shape.low - len(shape.prefix)
        return [*needed, (shape.rest, more)] if shape.rest and more > 0 else needed
    return []


def _ways(shape: Shape, numbers: dict[int, int]) -> list[Way]:
    if isinstance(shape, AnyOf):
        return [Way(1, ((numbers[id(option)], 1),)) for option in shape.options]
    return [Way(1, tuple((numbers[id(part)], times) for part, times in _needed(shape)))]


def _ends(parts: list[Shape]) -> set[int]:
    ends: set[int] = set()
    grown = True
    while grown:
        grown = False
        for part in reversed(parts):
            if id(part) in ends or isinstance(part, Never):
                continue
            if isinstance(part, AnyOf):
                is_over = any(id(option) in ends for option in part.options)
            else:
                is_over = all(id(needed) in ends for needed, _ in _needed(part))
            if is_over:
                ends.add(id(part))
                grown = True
    return ends


class _Pruner:
    def __init__(self, ends: set[int]) -> None:
        self._ends = ends
        self._done: dict[int, Shape] = {}

    def kept(self, shape: Shape) -> Shape:
        """What is left of a shape that ends."""
        if id(shape) not in self._done:
            if isinstance(shape, Again):
                link = self._done[id(shape)] = Again(shape.name, pointer=shape.pointer)
                link.set(self.kept(shape.again))
            else:
                self._done[id(shape)] = self._inner(shape)
        return self._done[id(shape)]

    def _inner(self, shape: Shape) -> Shape:
        if isinstance(shape, Object):
            left = tuple((name, self.kept(part), must) for name, part, must in shape.properties if self._is_over(part))
            return Object(left, pointer=shape.pointer)
        if isinstance(shape, AnyOf):
            options = tuple(self.kept(option) for option in shape.options if self._is_over(option))
            return options[0] if len(options) == 1 else AnyOf(options, pointer=shape.pointer)
        if not isinstance(shape, Array):
            return shape
        whole = next((i for i, part in enumerate(shape.prefix) if not self._is_over(part)), None)
        prefix = tuple(self.kept(part) for part in shape.prefix[:whole])
        if whole is None and shape.rest and self._is_over(shape.rest):
            return Array(prefix, self.kept(shape.rest), shape.low, shape.high, pointer=shape.pointer)
        return Array(prefix, None, shape.low, min(shape.high, len(prefix)), pointer=shape.pointer)

    def _is_over(self, shape: Shape) -> bool:
        return id(shape) in self._ends
