"""What a check has to say about a schema: one finding per place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hazardlens.errors import SchemaError

Level = Literal["error", "closed", "rewritten", "checked", "note"]
"""How much a finding matters.

`error`: the schema cannot be held. `closed`: the mask is narrower than the schema. `rewritten`: the mask holds it in
another form. `checked`: the mask lets through
more than the schema does, and the finished answer is checked. `note`: advice.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found.

    Attributes:
        pointer: JSON pointer of the place in the schema; empty for the root.
        level: See `Level`.
        message: What was found.
        help: One line on what to do about it, or empty.
    """

    pointer: str
    level: Level
    message: str
    help: str = ""

    def __str__(self) -> str:
        """The finding on one line."""
        return f"{self.pointer or '/'}: {self.message}" + (f" ({self.help})" if self.help else "")


class Findings:
    """Collects findings, each once, in the order in which they were made."""

    def __init__(self) -> None:
        self._all: dict[Finding, None] = {}

    def add(self, pointer: str, level: Level, message: str, help: str = "") -> None:  # noqa: A002
        """Note one finding; see `Finding`."""
        self._all[Finding(pointer, level, message, help)] = None

    def benign(self) -> tuple[Finding, ...]:
        """All findings but errors."""
        return tuple(finding for finding in self._all if finding.level != "error")

    def raise_errors(self, name: str) -> None:
        """Raise what stands in the way of using the schema called `name`.

        Raises:
            SchemaError: There are findings of level `error`; the message lists all of them.
        """
        errors = [finding for finding in self._all if finding.level == "error"]
        if not errors:
            return
        lines = "".join(f"\n  {finding}" for finding in errors)
        raise SchemaError(
            f"the schema '{name}' cannot be held:{lines}",
            help="Each line names a place in the schema by its JSON pointer, and what to do there.",
        )


def step(pointer: str, *keys: str | int) -> str:
    """The JSON pointer that leads from `pointer` through `keys`."""
    return pointer + "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)
