"""Shapes of answers that are no JSON but plain text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hazardlens.schema.shapes import Measure, Shape

_MOST_BYTES_PER_CHARACTER = 4


@dataclass(frozen=True)
class Words(Shape):
    """One of some labels, written as it stands, without quotes.

    Attributes:
        labels: The labels.
    """

    labels: tuple[str, ...]

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        return {"enum": list(self.labels)}

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        return max(len(label.encode()) for label in self.labels)


@dataclass(frozen=True)
class Line(Shape):
    """Text of a form of its own, written as it stands, without quotes.

    Attributes:
        high: Most characters.
    """

    high: int

    def to_schema(self) -> dict[str, Any]:
        """See `Shape`."""
        return {"type": "string", "maxLength": self.high}

    def longest(self, measure: Measure) -> int:
        """See `Shape`."""
        return _MOST_BYTES_PER_CHARACTER * self.high
