"""The clock that everything live goes by; a test may hand in another one."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime


class Clock:
    """The machine's own clocks: one that only rises for lengths of time, the calendar's for dates."""

    def now(self) -> float:
        """Seconds since some moment in the past; never goes back, whatever is done to the calendar's clock."""
        return time.monotonic()

    def date(self) -> datetime:
        """The date and time of day, with its zone."""
        return datetime.now(UTC)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set, `seconds` at most; whether it is set."""
        return event.wait(max(0.0, seconds))


def spelled(date: datetime) -> str:
    """A date as records have it: ISO 8601, UTC, milliseconds."""
    return date.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
