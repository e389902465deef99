"""What a live run is busy with, and for how long, so that somebody can say when it stands still."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from hazardlens.cameras.clock import Clock

_log = logging.getLogger(__name__)


class Stages:
    """Notes the present stage of the run's own thread; read by the watchdog's.

    Args:
        clock: The clock.
        stall_s: A stage that takes longer than this stands still.

    Attributes:
        stalls: Times that each stage stood still.
    """

    def __init__(self, clock: Clock, stall_s: float) -> None:
        self._clock = clock
        self._stall_s = stall_s
        self._now: tuple[str, float] | None = None
        self._told: object = None
        self.stalls: Counter[str] = Counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The block is a stage."""
        before, self._now = self._now, (name, self._clock.now())
        try:
            yield
        finally:
            self._now = before

    def enter(self, name: str | None) -> None:
        """A stage begins that ends with the next; None for none."""
        self._now = None if name is None else (name, self._clock.now())

    def standing(self) -> tuple[str, float] | None:
        """The stage that stands still and the seconds that it has taken, or None."""
        now = self._now
        if now is None:
            return None
        seconds = self._clock.now() - now[1]
        return (now[0], seconds) if seconds > self._stall_s else None

    def look(self) -> None:
        """Say once of a stage that it stands still."""
        standing, now = self.standing(), self._now
        if standing is None or now is self._told:
            return
        self._told = now
        self.stalls[standing[0]] += 1
        _log.warning("stands still: %s, for %.0f s", *standing)
