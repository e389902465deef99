"""What passed by, counted, so that what did not happen can be seen as well as what did."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Counts:
    """Counts of an attached plugin, over all that its model has looked at.

    Attributes:
        frames: Results that passed by.
        asked: Questions asked.
        answers: Questions that came back, by status.
        source_lost: Records that say `source_lost`: black frames of a camera, files that ended or were left early.
        failures: Errors inside the plugin or in the callable that gets the records.
        unread: Finished records that were dropped because nobody took them.
    """

    frames: int = 0
    asked: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    source_lost: int = 0
    failures: int = 0
    unread: int = 0

    def line(self) -> str:
        """The counts in words."""
        parts = [f"{self.frames} frames", f"{self.asked} questions"]
        parts += [f"{number} {status}" for status, number in sorted(self.answers.items())]
        named = (("source_lost", self.source_lost), ("failures", self.failures), ("records not taken", self.unread))
        return ", ".join([*parts, *(f"{number} {name}" for name, number in named if number)])
