"""The output contract: what is handed to every output, frame by frame, in order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from hazardlens.merge.outcome import Outcome


class Output(ABC):
    """Takes finished frames, one after the other.

    Attributes:
        needs_pixels: Whether it needs the pixels of every frame.
    """

    needs_pixels: ClassVar[bool] = False

    @abstractmethod
    def write(self, outcome: Outcome) -> None:
        """Take the next frame.

        Raises:
            OutputError: If it cannot be written; what was written before is whole.
        """

    @abstractmethod
    def close(self, *, complete: bool) -> None:
        """Finish; `complete` tells whether the source was processed to its end. May be called twice."""
