"""What waits between a camera's thread and the detector: the newest frame, or a bounded number of them."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from hazardlens.cameras.base import Picture
from hazardlens.record import CameraEvent


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Arrival:
    """A frame that came, or something that happened to its camera.

    Attributes:
        time_s: When, in seconds since the run began.
        at: The date of it, as records have it.
        read_s: The clock's time at which it came.
        index: 0-based number of the frame in its source; of an event, that of the next frame.
        picture: The frame's picture, or None for an event.
        event: The event, or None for a frame.
    """

    time_s: float
    at: str
    read_s: float
    index: int
    picture: Picture | None = None
    event: CameraEvent | None = None


class Arrivals:
    """Holds what came from one camera; events are never dropped, of frames the oldest are.

    Args:
        changed: Notified when something comes or goes; its lock is shared by all cameras.
        frames: Most frames held; 1 for the newest only.
        waits: Whether who brings a frame waits for room, as a file can and a camera cannot.

    Attributes:
        dropped: Frames that fell out, and those that were held at the end.
    """

    def __init__(self, changed: threading.Condition, *, frames: int, waits: bool) -> None:
        self._changed = changed
        self._most = frames
        self._waits = waits
        self._held: deque[Arrival] = deque()
        self._frames = 0
        self.dropped = 0

    def put(self, arrival: Arrival, stop: threading.Event) -> None:
        """Bring something; where it has to wait, it gives up once `stop` is set."""
        with self._changed:
            if arrival.picture is not None:
                while self._waits and self._frames >= self._most and not stop.is_set():
                    self._changed.wait(0.2)
                if self._frames >= self._most:
                    self._drop_oldest()
                self._frames += 1
            self._held.append(arrival)
            self._changed.notify_all()

    def take(self) -> Arrival | None:
        """The oldest of what is held, or None; the lock must be held."""
        if not self._held:
            return None
        arrival = self._held.popleft()
        self._frames -= arrival.picture is not None
        self._changed.notify_all()
        return arrival

    def rest(self) -> list[Arrival]:
        """Take all that is held: the events, while frames are counted as dropped."""
        with self._changed:
            held = list(self._held)
            self._held.clear()
            self.dropped += self._frames
            self._frames = 0
            return [arrival for arrival in held if arrival.picture is None]

    def __len__(self) -> int:
        return len(self._held)

    def _drop_oldest(self) -> None:
        place = next(place for place, one in enumerate(self._held) if one.picture is not None)
        del self._held[place]
        self._frames -= 1
        self.dropped += 1
