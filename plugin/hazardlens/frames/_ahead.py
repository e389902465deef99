"""A thread that works ahead of its consumer, by a bounded amount."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Generic, TypeVar

Item = TypeVar("Item")
_LEAST = 2


class Ahead(Generic[Item]):
    """Iterates over a source in a thread of its own; an error there is raised here, after what came before it.

    Args:
        source: Iterated in the thread; never touched again once `stop` has returned.
        items: Most items held.
        weight: Gives an item's size in bytes.
        max_bytes: Most bytes held; two items are always allowed.
    """

    def __init__(self, source: Iterator[Item], *, items: int, weight: Callable[[Item], int], max_bytes: int) -> None:
        self._source = source
        self._items = max(items, 1)
        self._weight = weight
        self._max_bytes = max_bytes
        self._held: deque[Item] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._stopped = False
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="hazardlens-read", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        with self._changed:
            self._changed.wait_for(lambda: self._held or self._ended or self._stopped)
            if self._held and not self._stopped:
                item = self._held.popleft()
                self._bytes -= self._weight(item)
                self._changed.notify_all()
                return item
            error, self._error = self._error, None
        if error is not None:
            raise error
        raise StopIteration

    def stop(self) -> None:
        """End the thread, wait for it, and let go of what it held; may be called twice."""
        with self._changed:
            self._stopped = True
            self._held.clear()
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        with self:
            for item in self._source:
                if not self._put(item):
                    return

    def _put(self, item: Item) -> bool:
        size = self._weight(item)
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._room(size))
            if self._stopped:
                return False
            self._held.append(item)
            self._bytes += size
            self._changed.notify_all()
            return True

    def _room(self, size: int) -> bool:
        held = len(self._held)
        return held < self._items and (held < _LEAST or self._bytes + size <= self._max_bytes)

    def __enter__(self) -> None:
        """Begin the thread's work."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """End the thread's work, keeping its error for the consumer."""
        with self._changed:
            self._error = error
            self._ended = True
            self._changed.notify_all()
        return True
