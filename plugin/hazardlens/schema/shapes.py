"""What an answer may look like, after all keywords that apply to one place were brought together.

Shapes are what the mask holds: closed, bounded, and free of references. Each knows its plain JSON Schema and the length
of its longest text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from hazardlens.schema.patterns import plain
from hazardlens.schema.spelling import ITEM_SEPARATOR, KEY_SEPARATOR, spell

Measure = Callable[[str], int]
"""Cost of a fixed piece of text, in bytes or in tokens."""

# Control characters are spelled \u00XX, six bytes; all others take at most four.
_BYTES_PER_CHARACTER = 6


ENDLESS = 10**9
"""Stands for the length of what may grow without end."""


@dataclass(frozen=True)
class Shape(ABC):
    """What an answer may look like at one place.

    Attributes:
        pointer: JSON pointer of the place in the schema that it comes from.
    """

    pointer: str = field(default="", kw_only=True, compare=False)

    @abstractmethod
    def to_schema(self) -> dict[str, Any]:
        """Plain JSON Schema that llguidance holds."""

    @abstractmethod
    def longest(self, measure: Measure) -> int:
        """Upper bound of the text's cost; free text and choices cost one per byte, fixed text what `measure` says."""

    def parts(self) -> tuple[Shape, ...]:
        """The shapes that this one is made of."""
        return ()


@dataclass(frozen=True)
class Never(Shape):
    """Nothing fits.

    Attributes:
        reasons: Places and causes; empty where an error was already reported.
    """

    reasons: tuple[tuple[str, str], ...] = ()

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        return {"not": {}}

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        return 0


@dataclass(frozen=True)
class Choice(Shape):
    """One of some values, each spelled in one way.

    Attributes:
        values: The values, in the schema's order.
    """

    values: tuple[Any, ...]

    def texts(self) -> frozenset[str]:
        """The values as they are spelled."""
        return frozenset(map(spell, self.values))

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        return {"const": self.values[0]} if len(self.values) == 1 else {"enum": list(self.values)}

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        # Only what leaves no choice is written the tokenizer's way; a model may spell a choice byte by byte.
        cost = measure if len(self.values) == 1 else _bytes
        return max(cost(spell(value)) for value in self.values)


@dataclass(frozen=True)
class Text(Shape):
    """Free text.

    Attributes:
        low: Fewest characters.
        high: Most characters.
        patterns: Regular expressions that all match.
        format: Name of a format that llguidance knows, or None.
    """

    low: int
    high: int
    patterns: tuple[str, ...] = ()
    format: str | None = None

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        schema: dict[str, Any] = {"type": "string", "minLength": self.low, "maxLength": self.high}
        if self.format:
            schema["format"] = self.format
        if len(self.patterns) == 1:
            schema["pattern"] = self.patterns[0]
        elif self.patterns:
            schema["allOf"] = [{"type": "string", "pattern": pattern} for pattern in self.patterns]
        return schema

    def as_held(self) -> dict[str, Any]:
        """The same with patterns written so that llguidance reads them as ECMA-262 does."""
        return replace(self, patterns=tuple(map(plain, self.patterns))).to_schema()

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        return 2 + _BYTES_PER_CHARACTER * self.high


@dataclass(frozen=True)
class Number(Shape):
    """A multiple of `step` between two bounds that are multiples themselves.

    Attributes:
        low: Least value.
        high: Greatest value.
        step: What every value is a multiple of; a finite decimal.
    """

    low: Fraction
    high: Fraction
    step: Fraction

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        if self.step.denominator == 1:
            schema: dict[str, Any] = {"type": "integer", "minimum": int(self.low), "maximum": int(self.high)}
            return schema if self.step == 1 else {**schema, "multipleOf": int(self.step)}
        return {
            "type": "number",
            "minimum": float(self.low),
            "maximum": float(self.high),
            "multipleOf": float(self.step),
        }

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        whole = len(str(int(max(abs(self.low), abs(self.high)))))
        digits = decimals(self.step)
        return whole + (1 if self.low < 0 else 0) + (digits + 1 if digits else 0)


@dataclass(frozen=True)
class Array(Shape):
    """A list.

    Attributes:
        prefix: Shapes of the first items.
        rest: Shape of the items after them, or None if there are none.
        low: Fewest items.
        high: Most items.
    """

    prefix: tuple[Shape, ...]
    rest: Shape | None
    low: int
    high: int

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        schema: dict[str, Any] = {"type": "array", "minItems": self.low, "maxItems": self.high}
        if self.prefix:
            schema["prefixItems"] = [item.to_schema() for item in self.prefix]
        if self.high:
            schema["items"] = self.rest.to_schema() if self.rest else False
        return schema

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        items = sum(item.longest(measure) for item in self.prefix)
        if self.rest and self.high > len(self.prefix):
            items += (self.high - len(self.prefix)) * self.rest.longest(measure)
        return measure("[") + measure("]") + items + max(self.high - 1, 0) * measure(ITEM_SEPARATOR)

    def parts(self) -> tuple[Shape, ...]:
        """See `Shape`."""
        return (*self.prefix, self.rest) if self.rest else self.prefix


@dataclass(frozen=True)
class Object(Shape):
    """An object with these properties and no others, in this order.

    Attributes:
        properties: Name, shape, and whether it must be there.
    """

    properties: tuple[tuple[str, Shape, bool], ...]

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        return {
            "type": "object",
            "properties": {name: shape.to_schema() for name, shape, _ in self.properties},
            "required": [name for name, _, required in self.properties if required],
            "additionalProperties": False,
        }

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        cost = measure("{") + measure("}")
        for position, (name, shape, _) in enumerate(self.properties):
            key = spell(name) + KEY_SEPARATOR
            cost += measure(ITEM_SEPARATOR + key if position else key) + shape.longest(measure)
        return cost

    def parts(self) -> tuple[Shape, ...]:
        """See `Shape`."""
        return tuple(shape for _, shape, _ in self.properties)


@dataclass(frozen=True)
class AnyOf(Shape):
    """One of some shapes.

    Attributes:
        options: At least two shapes.
    """

    options: tuple[Shape, ...]

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        return {"anyOf": [option.to_schema() for option in self.options]}

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        return max(option.longest(measure) for option in self.options)

    def parts(self) -> tuple[Shape, ...]:
        """See `Shape`."""
        return self.options


@dataclass(frozen=True, eq=False)
class Again(Shape):
    """A shape that is met again inside itself.

    Attributes:
        name: Its name among those of one answer.
        target: The shape itself; None only while it is being compiled.
    """

    name: str
    target: Shape | None = None

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`; `mask_schema` holds what it refers to."""
        return {"$ref": f"#/$defs/{self.name}"}

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        return ENDLESS

    def set(self, target: Shape) -> None:
        """Say what the shape is, once that is known."""
        object.__setattr__(self, "target", target)

    @property
    def again(self) -> Shape:
        """The shape itself, once it is known."""
        if self.target is None:
            raise ValueError(f"{self.name} is not compiled yet")
        return self.target


def mask_schema(shape: Shape) -> dict[str, Any]:
    """Plain JSON Schema of a shape, with all that it refers to."""
    again = [part for part in every_part(shape) if isinstance(part, Again)]
    defs = {part.name: part.again.to_schema() for part in again}
    return {**shape.to_schema(), "$defs": defs} if defs else shape.to_schema()


def every_part(shape: Shape) -> list[Shape]:
    """The shape and all that it is made of, each once."""
    found: dict[int, Shape] = {}
    work = [shape]
    while work:
        part = work.pop()
        if id(part) not in found:
            found[id(part)] = part
            work += [part.again] if isinstance(part, Again) else part.parts()
    return list(found.values())


def _bytes(literal: str) -> int:
    return len(literal.encode())


def decimals(step: Fraction) -> int:
    """How many digits after the point a multiple of `step` may need; `step` is a finite decimal."""
    digits = 0
    while (step * 10**digits).denominator != 1:
        digits += 1
    return digits
