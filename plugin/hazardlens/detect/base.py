"""The detector contract and its one container for what was found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hazardlens.frames.base import Frame


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Detections:
    """What a detector found in one frame, as parallel arrays of length n.

    A detection's id is its index, 0..n-1.

    Attributes:
        boxes_xyxy_px: Corners (x1, y1, x2, y2) in pixels of the frame, shape (n, 4), float32.
        confidence: Detector confidence, shape (n,), 0..1, float32.
        class_id: Index into `class_names`, shape (n,), int64.
        track_id: The tracker's id for each detection, or None where it has none.
        class_names: All classes that the detector knows, by index.

    Raises:
        ValueError: If the arrays do not fit together.
    """

    boxes_xyxy_px: NDArray[np.float32]
    confidence: NDArray[np.float32]
    class_id: NDArray[np.int64]
    track_id: tuple[int | None, ...]
    class_names: dict[int, str]

    def __post_init__(self) -> None:
        n = len(self.confidence)
        if self.boxes_xyxy_px.shape != (n, 4):
            raise ValueError(f"boxes_xyxy_px: expected shape ({n}, 4), got {self.boxes_xyxy_px.shape}")
        if self.class_id.shape != (n,) or len(self.track_id) != n:
            raise ValueError(
                f"class_id and track_id: expected {n} entries, got {len(self.class_id)} and {len(self.track_id)}"
            )

    def __len__(self) -> int:
        return len(self.confidence)

    def class_name(self, index: int) -> str:
        """Name of the class of the detection at `index`."""
        class_id = int(self.class_id[index])
        return self.class_names.get(class_id, str(class_id))

    def reordered(self, order: Sequence[int]) -> Detections:
        """The same detections in another order; `order[k]` is the old index of the new k-th."""
        index = np.asarray(order, dtype=np.int64)
        return Detections(
            boxes_xyxy_px=self.boxes_xyxy_px[index],
            confidence=self.confidence[index],
            class_id=self.class_id[index],
            track_id=tuple(self.track_id[i] for i in order),
            class_names=self.class_names,
        )

    @classmethod
    def empty(cls, class_names: dict[int, str]) -> Detections:
        """No detections."""
        return cls(
            boxes_xyxy_px=np.zeros((0, 4), np.float32),
            confidence=np.zeros(0, np.float32),
            class_id=np.zeros(0, np.int64),
            track_id=(),
            class_names=class_names,
        )


class Detector(ABC):
    """Finds objects on frames of one or more streams.

    Attributes:
        name: Name of the model, as written into the summary.
        class_names: All classes that it knows, by index.
        demo: Whether it is a demo model, which knows drawn scenes only; what is made with it says so.
    """

    name: str
    class_names: dict[int, str]
    demo: bool = False

    @abstractmethod
    def detect(self, frames: Sequence[Frame], *, stream: Hashable | None = None) -> list[Detections]:
        """Find objects on consecutive frames; one `Detections` per frame.

        Args:
            frames: Consecutive frames of one stream.
            stream: Stands for the stream, whose objects are followed: track ids are stable within it and never shared
                with another. None for pictures that have nothing to do with each other.

        Raises:
            DetectionError: If the detector fails.
        """

    def forget(self, stream: Hashable) -> None:
        """Drop what is remembered of a stream that has ended."""
