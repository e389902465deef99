"""Shapes joined, and shapes told apart."""

from __future__ import annotations

from collections.abc import Iterable

from hazardlens.schema.shapes import Again, AnyOf, Array, Choice, Never, Number, Object, Shape, Text
from hazardlens.schema.spelling import spell


def union(shapes: Iterable[Shape], pointer: str) -> Shape:
    """The shape that fits wherever one of `shapes` does; `Never` with all their reasons where none can."""
    flat: list[Shape] = []
    reasons: dict[tuple[str, str], None] = {}
    for shape in shapes:
        if isinstance(shape, Never):
            reasons.update(dict.fromkeys(shape.reasons))
        else:
            flat.extend(shape.options if isinstance(shape, AnyOf) else (shape,))
    if flat and all(isinstance(shape, Choice) for shape in flat):
        flat = [_merged([shape for shape in flat if isinstance(shape, Choice)], pointer)]
    unique = list({id(shape): shape for shape in flat}.values())
    if not unique:
        return Never(tuple(reasons), pointer=pointer)
    return unique[0] if len(unique) == 1 else AnyOf(tuple(unique), pointer=pointer)


def disjoint(one: Shape, other: Shape) -> bool:
    """Whether it is certain that nothing satisfies the schemas of both shapes, which may be wider than the shapes."""
    if isinstance(one, Never) or isinstance(other, Never):
        return True
    if isinstance(one, AnyOf):
        return all(disjoint(option, other) for option in one.options)
    if isinstance(other, AnyOf):
        return disjoint(other, one)
    if isinstance(one, Again) or isinstance(other, Again):
        # What it will be is not known yet.
        return False
    return _kinds(one).isdisjoint(_kinds(other)) or _are_told_apart(one, other)


def _are_told_apart(one: Shape, other: Shape) -> bool:
    # Only lists of values are exact; text, numbers and the rest may have been narrowed for the mask.
    if isinstance(one, Choice) and isinstance(other, Choice):
        return one.texts().isdisjoint(other.texts())
    if isinstance(one, Object) and isinstance(other, Object):
        theirs = {name: shape for name, shape, required in other.properties if required}
        return any(
            required and name in theirs and _are_told_apart(shape, theirs[name])
            for name, shape, required in one.properties
        )
    return False


def _merged(choices: list[Choice], pointer: str) -> Choice:
    values = {spell(value): value for choice in choices for value in choice.values}
    return Choice(tuple(values.values()), pointer=pointer)


def _kinds(shape: Shape) -> frozenset[str]:
    if isinstance(shape, Choice):
        return frozenset(_kind(value) for value in shape.values)
    names: dict[type[Shape], str] = {Text: "str", Number: "number", Array: "list", Object: "dict"}
    return frozenset({names[type(shape)]})


def _kind(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "number" if is_number else type(value).__name__
