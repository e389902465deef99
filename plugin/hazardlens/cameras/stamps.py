"""Times of a camera's frames: its own where it tells them, else the clock's; they never go back."""

from __future__ import annotations

_MOST_AWAY_S = 5.0
"""A camera's time that is farther from that of its arrival has jumped; less is delay and drift."""
_STEP_S = 0.001


class Stamper:
    """Turns the stamps of one source into seconds since the run began.

    A camera's own stamps keep their distances. Each connection, and each jump of the camera's clock, ties them anew to
    the time of arrival.

    Args:
        started_s: The clock's time at which the run began.
        is_paced: Whether stamps are playing times, which are taken as they are.

    Attributes:
        jumps: Times that the camera's clock jumped.
    """

    def __init__(self, started_s: float, *, is_paced: bool) -> None:
        self.jumps = 0
        self._started_s = started_s
        self._is_paced = is_paced
        self._offset_s: float | None = None
        self._last_s = 0.0
        self._has_last = False

    def connected(self) -> None:
        """A connection begins, whose stamps have nothing to do with those before."""
        self._offset_s = None

    def elapsed(self, now_s: float) -> float:
        """Time of something that happens now and has no stamp; not before the last frame."""
        return round(max(now_s - self._started_s if not self._is_paced else self._last_s, self._last_s), 6)

    def stamp(self, stamp_s: float | None, now_s: float) -> float:
        """Time of a frame in seconds; above that of the frame before.

        Args:
            stamp_s: The camera's own time, or None.
            now_s: The clock's time of arrival.
        """
        time_s = self._time(stamp_s, now_s - self._started_s)
        if self._has_last:
            time_s = max(time_s, self._last_s + _STEP_S)
        self._last_s, self._has_last = time_s, True
        return round(time_s, 6)

    def _time(self, stamp_s: float | None, arrived_s: float) -> float:
        if stamp_s is None:
            return arrived_s
        if self._is_paced:
            return stamp_s
        jumped = self._offset_s is not None and abs(stamp_s + self._offset_s - arrived_s) > _MOST_AWAY_S
        self.jumps += jumped
        if self._offset_s is None or jumped:
            self._offset_s = arrived_s - stamp_s
        return stamp_s + self._offset_s
