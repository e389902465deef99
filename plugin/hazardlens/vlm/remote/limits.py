"""What all questions to one server share: when it may be called again, and what may still be spent."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import deque

_MINUTE_S = 60.0
_SPREAD, _MOST_SPREAD_S = 0.2, 1.0
"""Those who waited pass within this part of the wait, at most so many seconds."""


class Gate:
    """Holds back every call while a server asks to be left alone."""

    def __init__(self) -> None:
        self._open_at_s = 0.0
        self._held_s = 0.0

    def hold(self, wait_s: float) -> None:
        """Let nothing pass for some seconds from now."""
        open_at_s = time.monotonic() + wait_s
        if open_at_s > self._open_at_s:
            self._open_at_s, self._held_s = open_at_s, wait_s

    @property
    def closed_s(self) -> float:
        """Seconds until it opens; 0 where it is open."""
        return max(0.0, self._open_at_s - time.monotonic())

    def opens_in_s(self, *, last: bool = False) -> float:
        """The same and a random bit more, so that those who wait do not all pass at one instant; 0 where it is open.

        Args:
            last: Whether to pass behind all others, as who made it close; else one who is always turned away could
                keep everybody else waiting.
        """
        closed_s = self.closed_s
        spread_s = min(_MOST_SPREAD_S, _SPREAD * self._held_s)
        behind_s = random.uniform(0.0, spread_s) + (spread_s if last else 0.0)  # noqa: S311 - no secret
        return closed_s + behind_s if closed_s else 0.0

    async def passed(self, until_s: float) -> bool:
        """Wait until it is open; whether that is before a time of the monotonic clock."""
        while (wait_s := self._waits_s(until_s)) is not None:
            await asyncio.sleep(wait_s)
        return not self.closed_s

    def passed_here(self, until_s: float) -> bool:
        """The same, for a thread that may be held up itself."""
        while (wait_s := self._waits_s(until_s)) is not None:
            time.sleep(wait_s)
        return not self.closed_s

    def _waits_s(self, until_s: float) -> float | None:
        """Seconds to wait for it to open before a time, or None where it is open, or will not be by then."""
        wait_s, left_s = self.opens_in_s(), until_s - time.monotonic()
        closed_s = self.closed_s
        return None if not closed_s or closed_s > left_s else min(wait_s, left_s)


class Spending:
    """Counts calls and tokens, and says when a limit is spent; safe to share between threads.

    Args:
        calls_per_minute: Most calls within any 60 seconds, or None.
        tokens_per_run: Most tokens, of input and output together, or None. What is in flight when they are spent is
            finished, so that as many answers may go beyond it as are asked for at once.
    """

    def __init__(self, *, calls_per_minute: int | None, tokens_per_run: int | None) -> None:
        self._calls_per_minute = calls_per_minute
        self._tokens_per_run = tokens_per_run
        self._calls_s: deque[float] = deque(maxlen=calls_per_minute)
        self._lock = threading.Lock()
        self.tokens = 0

    def take_call(self) -> str | None:
        """Count a call, or say why it may not be made."""
        with self._lock:
            if self._tokens_per_run is not None and self.tokens >= self._tokens_per_run:
                return f"the limit of {self._tokens_per_run:,} tokens is spent"
            if self._calls_per_minute is not None:
                now_s = time.monotonic()
                if len(self._calls_s) == self._calls_per_minute and now_s - self._calls_s[0] < _MINUTE_S:
                    return f"the limit of {self._calls_per_minute} calls a minute is spent"
                self._calls_s.append(now_s)
            return None

    def add_tokens(self, input_tokens: int | None, output_tokens: int | None, *, budget: int) -> None:
        """Count the tokens of an answer as the server counted them; what it does not tell may be its whole budget.

        Args:
            input_tokens: Of prompt and pictures, or None where unknown; then they are not counted.
            output_tokens: Of the answer, or None where unknown.
            budget: Tokens that the answer could take.
        """
        with self._lock:
            self.tokens += (input_tokens or 0) + (budget if output_tokens is None else output_tokens)
