"""One rule on one source or track over time: when an alert begins and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hazardlens.alerts.judging import Verdict
from hazardlens.pipeline import AlertRule

_TOLERANCE_S = 0.001
"""Containers round times to a millisecond."""


@dataclass(kw_only=True, slots=True)
class Subject:
    """The state of one rule on one source or track. All times are video time.

    Attributes:
        rule: The rule.
        gap_s: Where nothing was said for longer than this, what was said before does not count as going on.
        since_s: When it began to hold, or None where it does not.
        count: Samples in a row that held.
        clear_since_s: When an alert's conditions ceased to hold, or None.
        alert: Number of the alert that is under way, or None.
        began_s: When that began.
        ended_s: When the last one ended, or None.
        last_s: When something was last said, or None.
    """

    rule: AlertRule
    gap_s: float
    since_s: float | None = None
    count: int = 0
    clear_since_s: float | None = None
    alert: int | None = None
    began_s: float = 0.0
    ended_s: float | None = None
    last_s: float | None = None

    def take(self, verdict: Verdict, time_s: float) -> Literal["began", "ended"] | None:
        """Take in what is said at a time; whether an alert begins or ends with it."""
        if self.last_s is not None and time_s - self.last_s > self.gap_s:
            self.since_s, self.count, self.clear_since_s = None, 0, None
        self.last_s = time_s
        if self.alert is not None:
            return self._while_under_way(verdict, time_s)
        if verdict is Verdict.CLEAR:
            self.since_s, self.count = None, 0
            return None
        if verdict is Verdict.HOLDS:
            self.since_s = time_s if self.since_s is None else self.since_s
            self.count += 1
            return "began" if self._may_begin(time_s) else None
        return None

    def is_idle(self, time_s: float) -> bool:
        """Whether nothing is lost by forgetting it."""
        cooling = self.ended_s is not None and time_s - self.ended_s < self.rule.cooldown_s
        running = self.since_s is not None and self.last_s is not None and time_s - self.last_s <= self.gap_s
        return self.alert is None and not cooling and not running

    def _may_begin(self, time_s: float) -> bool:
        cooled = self.ended_s is None or time_s - self.ended_s >= self.rule.cooldown_s - _TOLERANCE_S
        long_enough = self.since_s is not None and time_s - self.since_s >= self.rule.for_s - _TOLERANCE_S
        return cooled and long_enough and self.count >= (self.rule.for_answers or 1)

    def _while_under_way(self, verdict: Verdict, time_s: float) -> Literal["ended"] | None:
        if verdict is not Verdict.CLEAR:
            self.clear_since_s = None
            return None
        self.clear_since_s = time_s if self.clear_since_s is None else self.clear_since_s
        if time_s - self.clear_since_s < self.rule.clear_s - _TOLERANCE_S:
            return None
        self.since_s, self.count, self.clear_since_s = None, 0, None
        return "ended"
