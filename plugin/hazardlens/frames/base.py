"""The reader contract: frames out, and an account of what was seen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Frame:
    """One decoded picture.

    Attributes:
        image: Pixels, shape (H, W, 3), uint8, BGR, upright.
        index: 0-based number of the picture in its source.
        time_s: Presentation time in seconds, from the container or the camera clock.
        source: Name of the source, as written into records.
        damaged: Whether its decoder marked it as corrupt, or it comes behind damage and ahead of the next key frame.
    """

    image: NDArray[np.uint8]
    index: int
    time_s: float
    source: str
    damaged: bool = False

    @property
    def size_wh(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.image.shape[1], self.image.shape[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameAccount:
    """What a reader saw.

    Attributes:
        expected: Frames that the header promises, or None where it promises nothing exact.
        read: Frames decoded and handed out.
        unreadable: Packets that the decoder refused.
        damaged: Frames handed out although they are damaged.
        ended_early: Whether the source stopped before the end that its header promises.
        reason: Why it counts as ended early, or None.
    """

    expected: int | None
    read: int
    unreadable: int
    damaged: int
    ended_early: bool
    reason: str | None


class FrameReader(ABC):
    """A source of frames, iterated once, closed by `close` or by leaving a `with` block."""

    name: str

    @abstractmethod
    def __iter__(self) -> Iterator[Frame]:
        """Yield frames in presentation order until the source ends."""

    @abstractmethod
    def account(self) -> FrameAccount:
        """Tell what was seen so far."""

    @abstractmethod
    def close(self) -> None:
        """Release file handles and threads; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
