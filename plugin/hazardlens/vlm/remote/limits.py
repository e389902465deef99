"""What all questions to one server share: when it may be called again, and what may still be spent."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque

_MINUTE_S = 60.0


class Gate:
    """Holds back every call while a server asks to be left alone."""

    def __init__(self) -> None:
        self._open_at_s = 0.0

    def hold(self, wait_s: float) -> None:
        """Let nothing pass for some seconds from now."""
        self._open_at_s = max(self._open_at_s, time.monotonic() + wait_s)

    @property
    def closed_s(self) -> float:
        """Seconds until it opens; 0 where it is open."""
        return max(0.0, self._open_at_s - time.monotonic())

    async def passed(self, until_s: float) -> bool:
        """Wait until it is open; whether that is before a time of the monotonic clock."""
        while (closed_s := self.closed_s) and time.monotonic() + closed_s <= until_s:
            await asyncio.sleep(closed_s)
        return not closed_s

    def passed_here(self, until_s: float) -> bool:
        """The same, for a thread that may be held up itself."""
        while (closed_s := self.closed_s) and time.monotonic() + closed_s <= until_s:
            time.sleep(closed_s)
        return not closed_s


class Spending:
    """Counts calls and tokens, and says when a limit is spent; safe to share between threads.

    Args:
        calls_per_minute: Most calls within any 60 seconds, or None.
        tokens_per_run: Most tokens, of input and output together, or None. The call that goes beyond it is the last.
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
                return f"the limit of {self._tokens_per_run:,} tokens a run is spent"
            if self._calls_per_minute is not None:
                now_s = time.monotonic()
                if len(self._calls_s) == self._calls_per_minute and now_s - self._calls_s[0] < _MINUTE_S:
                    return f"the limit of {self._calls_per_minute} calls a minute is spent"
                self._calls_s.append(now_s)
            return None

    def add_tokens(self, count: int) -> None:
        """Count tokens."""
        with self._lock:
            self.tokens += count
