"""What a check has to say about a schema: one finding per place."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hazardlens.errors import SchemaError

Level = Literal["error", "closed", "rewritten", "checked", "note"]
"""How much a finding matters.

`error`: the schema cannot be held. `closed`: the mask is narrower than the schema. `rewritten`: the mask holds it in
another form. `checked`: the mask lets through more than the schema does, and the finished answer is checked. `note`:
advice.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found.

    Attributes:
        pointer: JSON pointer of the place in the schema; empty for the root.
        level: See `Level`.
        message: What was found.
        help: One line on what to do about it, or empty.
        about: JSON pointers of the keywords that it is about; empty where it is about a place or what is missing there.
        whole: Whether it is also about what stands inside those keywords.
    """

    pointer: str
    level: Level
    message: str
    help: str = ""
    about: tuple[str, ...] = ()
    whole: bool = True

    def __str__(self) -> str:
        """The finding on one line."""
        return f"{self.pointer or '/'}: {self.message}" + (f" ({self.help})" if self.help else "")


class Findings:
    """Collects findings, each once, in the order in which they were made."""

    def __init__(self) -> None:
        self._all: dict[Finding, None] = {}

    def add(
        self,
        pointer: str,
        level: Level,
        message: str,
        help: str = "",  # noqa: A002
        *,
        about: Iterable[str] = (),
        whole: bool = True,
    ) -> None:
        """Note one finding; see `Finding`."""
        self._all[Finding(pointer, level, message, help, tuple(about), whole)] = None

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


def keyword_places(
    nodes: Iterable[Mapping[str, Any]], keywords: Collection[str], places: Mapping[int, str], pointer: str
) -> tuple[str, ...]:
    """JSON pointers of those of `keywords` that stand in `nodes`.

    Args:
        nodes: Schemas that apply to one place.
        keywords: Names of keywords.
        places: JSON pointers of schemas by `id()`.
        pointer: That of a node which has none of its own.
    """
    return tuple(
        step(places.get(id(node), pointer), keyword) for node in nodes for keyword in keywords if keyword in node
    )
