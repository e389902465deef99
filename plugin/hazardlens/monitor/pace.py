"""How often questions may begin."""

from __future__ import annotations

from collections import deque

_MINUTE_S = 60.0


class Pace:
    """Keeps a least gap between beginnings, and a most number of them in any minute.

    Args:
        gap_s: Least seconds between two.
        per_minute: Most in a minute, or None for no limit.
    """

    def __init__(self, gap_s: float, per_minute: int | None) -> None:
        self._gap_s = gap_s
        self._per_minute = per_minute
        self._begun_s: deque[float] = deque(maxlen=per_minute or 1)

    def delay(self, now_s: float) -> float:
        """Seconds until the next may begin; 0 or less for now."""
        if not self._begun_s:
            return 0.0
        delay_s = self._begun_s[-1] + self._gap_s - now_s
        if self._per_minute is not None and len(self._begun_s) == self._per_minute:
            delay_s = max(delay_s, self._begun_s[0] + _MINUTE_S - now_s)
        return delay_s

    def begin(self, now_s: float) -> None:
        """One begins."""
        self._begun_s.append(now_s)
