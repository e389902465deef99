"""The camera contract: something that can be opened again and again, and gives pictures until it is lost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event

import numpy as np
from numpy.typing import NDArray


class CameraLost(Exception):  # noqa: N818 - a state, not a mistake
    """A camera cannot be opened, or gives no more pictures; the text says why and holds no secrets."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Picture:
    """A picture that a camera gave.

    Attributes:
        stamp_s: The camera's own time of it in seconds from any moment, or None where it tells none.
        decode: Gives the pixels, shape (H, W, 3), uint8, BGR, upright; called once, or never where the picture is
            dropped, and by one thread at a time.
        damaged: Whether it is known not to be as it was taken.
    """

    stamp_s: float | None
    decode: Callable[[], NDArray[np.uint8]]
    damaged: bool = False


class Feed(ABC):
    """One connection to a camera.

    Attributes:
        note: What is to be said of the connection, or None.
        damaged: Packets that could not be decoded, and damaged pictures, so far.
        ended_early: Why a source that has an end ended before it, or None.
    """

    note: str | None = None
    damaged: int = 0
    ended_early: str | None = None

    @abstractmethod
    def pictures(self, stop: Event) -> Iterator[Picture]:
        """Yield pictures as they come; ends where `stop` is set, and where a source that has an end has come to it.

        Raises:
            CameraLost: If no more pictures come.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of it; called by the thread that read from it."""


class Camera(ABC):
    """A source of live pictures.

    Attributes:
        name: Name in records; holds no secrets.
        is_paced: Whether its stamps are playing times, to be waited for, as those of a file are.
    """

    name: str
    is_paced: bool = False

    @abstractmethod
    def open(self) -> Feed:
        """Connect.

        Raises:
            CameraLost: If that fails.
        """
