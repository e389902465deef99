"""What the merge hands on: finished frames, and the time that each stage took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hazardlens.frames.base import Frame
from hazardlens.record import FrameRecord
from hazardlens.vlm.base import Answer, Question


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Outcome:
    """One finished frame.

    Attributes:
        record: The frame's record.
        frame: The frame; its pixels are blank where no output asked for them.
        question: What the VLM was asked about it, or None.
        answer: What came of it, or None.
        is_late: Whether the frame had a record before, and this one tells what became of its question.
    """

    record: FrameRecord
    frame: Frame
    question: Question | None = None
    answer: Answer | None = None
    is_late: bool = False


class Stages:
    """Wall time per stage, in seconds."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time that the block takes."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - started
