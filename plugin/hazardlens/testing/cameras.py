"""A camera, a webcam and a clock that need no hardware and no patience. They are fakes."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hazardlens.cameras.base import Camera, CameraLost, Feed, Picture
from hazardlens.cameras.clock import Clock
from hazardlens.testing.video import MAX_NUMBER, number_image


class FakeClock(Clock):
    """A clock that runs faster than the machine's.

    Args:
        speed: Seconds of this clock in a second of the machine's.
        date: The date at which it begins.
    """

    def __init__(self, speed: float = 1.0, date: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._speed = speed
        self._began_s = time.monotonic()
        self._date = date

    def now(self) -> float:
        """Seconds since it began."""
        return (time.monotonic() - self._began_s) * self._speed

    def date(self) -> datetime:
        """The date at which it began, and what has passed since."""
        return self._date + timedelta(seconds=self.now())

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for as much shorter as it runs faster."""
        return event.wait(max(0.0, seconds) / self._speed)


class FakeCamera(Camera):
    """Plays sessions one after the other; each is numbered pictures and how the session ends.

    Args:
        name: Name in records.
        sessions: For each connection the number of its pictures, or why it cannot be opened.
        fps: Pictures per second, by `clock`; None for as fast as they are taken.
        size_wh: Width and height in pixels, or a function of the session's number.
        stamped: Whether pictures have times of their own, from a thousand seconds on.
        ends: Whether the last session is an end, and not a loss that lasts.
        damaged: Whether the picture of a number is damaged.
        clock: The clock.
    """

    def __init__(
        self,
        name: str = "fake",
        *,
        sessions: Sequence[int | str] = (10,),
        fps: float | None = 10.0,
        size_wh: tuple[int, int] | Callable[[int], tuple[int, int]] = (64, 48),
        stamped: bool = True,
        ends: bool = True,
        damaged: Callable[[int], bool] = lambda number: False,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.opened = 0
        self.closed = 0
        self._sessions = list(sessions)
        self._fps = fps
        self._size_wh = size_wh
        self._stamped = stamped
        self._ends = ends
        self._damaged = damaged
        self._clock = clock or Clock()
        self._given = 0

    def open(self) -> Feed:
        """Begin the next session."""
        number = self.opened
        self.opened += 1
        if number >= len(self._sessions):
            raise CameraLost("the fake camera has played all of its sessions")
        session = self._sessions[number]
        if isinstance(session, str):
            raise CameraLost(session)
        size = self._size_wh(number) if callable(self._size_wh) else self._size_wh
        return _FakeFeed(self, session, size, last=self._ends and number == len(self._sessions) - 1)

    def _pictures(self, count: int, size_wh: tuple[int, int], stop: threading.Event) -> Iterator[Picture]:
        for place in range(count):
            if self._fps is not None:
                self._clock.wait(stop, 1 / self._fps)
            if stop.is_set():
                return
            stamp = 1000.0 + place / (self._fps or 10.0) if self._stamped else None
            number = self._given % (MAX_NUMBER + 1)
            self._given += 1
            decode = functools.partial(number_image, number, size_wh)
            yield Picture(stamp_s=stamp, decode=decode, damaged=self._damaged(number))


class _FakeFeed(Feed):
    def __init__(self, camera: FakeCamera, count: int, size_wh: tuple[int, int], *, last: bool) -> None:
        self._camera = camera
        self._count = count
        self._size_wh = size_wh
        self._last = last
        self.note = f"{size_wh[0]}x{size_wh[1]}"

    def pictures(self, stop: threading.Event) -> Iterator[Picture]:
        for picture in self._camera._pictures(self._count, self._size_wh, stop):
            self.damaged += picture.damaged
            yield picture
        if not self._last and not stop.is_set():
            raise CameraLost("the fake camera broke off")

    def close(self) -> None:
        self._camera.closed += 1


class FakeCapture:
    """Behaves as `cv2.VideoCapture` does, of a webcam that is not there.

    Args:
        pictures: What its reads give, one after the other: a picture, or None for a read that fails.
        sizes: Sizes that it does not refuse.
        opens: Whether it can be opened.
        unplugged_after: Reads after which it is no longer open, or None.
    """

    def __init__(
        self,
        pictures: Sequence[NDArray[np.uint8] | None] = (),
        *,
        sizes: Sequence[tuple[int, int]] = ((64, 48),),
        opens: bool = True,
        unplugged_after: int | None = None,
    ) -> None:
        self.released = False
        self._pictures = list(pictures)
        self._sizes = list(sizes)
        self._asked: dict[int, float] = {}
        self._opens = opens
        self._unplugged_after = unplugged_after
        self._reads = 0

    def isOpened(self) -> bool:  # noqa: N802 - OpenCV's name
        """Whether it can be read from."""
        return self._opens and (self._unplugged_after is None or self._reads <= self._unplugged_after)

    def set(self, key: int, value: float) -> bool:
        """Ask for something."""
        self._asked[key] = value
        return True

    def get(self, key: int) -> float:
        """Width (key 3) or height (key 4) that it has."""
        wanted = (round(self._asked.get(3, 0)), round(self._asked.get(4, 0)))
        size = wanted if wanted in self._sizes else self._sizes[0]
        return float(size[key - 3])

    def read(self) -> tuple[bool, Any]:
        """The next picture."""
        self._reads += 1
        picture = self._pictures.pop(0) if self._pictures and self.isOpened() else None
        return picture is not None, picture

    def release(self) -> None:
        """Let go of it."""
        self.released = True
