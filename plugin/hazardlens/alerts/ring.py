"""The last seconds of a source's pictures, compressed."""

from __future__ import annotations

from collections import deque

import cv2
import numpy as np
from numpy.typing import NDArray

from hazardlens.pipeline import EvidenceSettings

_QUALITY = 85
_MOST_BYTES = 64 * 2**20
_EARLY = 0.9
"""A picture this share of the interval after the last one is on time, for cameras do not keep time."""


class Ring:
    """Holds JPEGs of a bounded length of time and size.

    Args:
        settings: How many and how large pictures are.
        horizon_s: Video time for which they are held.
    """

    def __init__(self, settings: EvidenceSettings, horizon_s: float) -> None:
        self._settings = settings
        self._horizon_s = horizon_s
        self._held: deque[tuple[float, bytes]] = deque()
        self._bytes = 0

    def add(self, image: NDArray[np.uint8], time_s: float) -> None:
        """Take in a picture, shape (H, W, 3), uint8, BGR, unless one was taken in just before."""
        if self._held and time_s < self._held[-1][0]:
            self._held.clear()
            self._bytes = 0
        if self._held and time_s - self._held[-1][0] < _EARLY / self._settings.fps:
            return
        data = jpeg(image, self._settings.longest_side_px)
        self._held.append((time_s, data))
        self._bytes += len(data)
        while len(self._held) > 1 and (time_s - self._held[0][0] > self._horizon_s or self._bytes > _MOST_BYTES):
            self._bytes -= len(self._held.popleft()[1])

    def between(self, from_s: float, to_s: float) -> list[tuple[float, bytes]]:
        """The pictures of a stretch of time, with their times."""
        return [one for one in self._held if from_s <= one[0] <= to_s]


def jpeg(image: NDArray[np.uint8], longest_side_px: int | None = None) -> bytes:
    """A picture as JPEG, scaled down where it is larger."""
    scale = 1.0 if longest_side_px is None else longest_side_px / max(image.shape[:2])
    if scale < 1.0:
        size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.uint8)
    _, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    return bytes(data.tobytes())
