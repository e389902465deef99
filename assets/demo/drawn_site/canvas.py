"""A canvas that knows what each of its pixels shows."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]
"""Blue, green, red, 0 to 255."""

_SHIFT = 4
"""Bits of a pixel's fraction that OpenCV's polygons keep."""


class Canvas:
    """Picture, and the owner of each pixel.

    Args:
        size_wh: Width and height in pixels.
    """

    def __init__(self, size_wh: tuple[int, int]) -> None:
        width, height = size_wh
        self.image = np.zeros((height, width, 3), np.uint8)
        self.owners = np.zeros((height, width), np.uint8)
        self._margin = width // 4
        self._alone = np.zeros((height + 2 * self._margin, width + 2 * self._margin), np.uint8)
        self._bounds: list[NDArray[np.float64]] = []
        self.owner = 0

    def polygon(self, points: NDArray[np.float64], colour: Colour) -> None:
        """Fill a convex polygon, shape (n, 2), and make it the current owner's."""
        if not self._near(points):
            return
        scaled = _fixed(points)
        cv2.fillConvexPoly(self.image, scaled, colour, cv2.LINE_8, _SHIFT)
        if self.owner:
            cv2.fillConvexPoly(self.owners, scaled, self.owner, cv2.LINE_8, _SHIFT)
            cv2.fillConvexPoly(self._alone, _fixed(points + self._margin), self.owner, cv2.LINE_8, _SHIFT)
            self._bounds.append(points)

    def decorate(self, points: NDArray[np.float64], colour: Colour) -> None:
        """Fill a convex polygon that lies on top of what its owner already covers."""
        if self._near(points):
            cv2.fillConvexPoly(self.image, _fixed(points), colour, cv2.LINE_8, _SHIFT)

    def cover(self, outlines: list[NDArray[np.int32]]) -> None:
        """Give the current owner what lies within outlines, each (n, 2) in pixels, that are drawn already."""
        cv2.fillPoly(self.owners, outlines, self.owner)
        cv2.fillPoly(self._alone, [outline + self._margin for outline in outlines], self.owner)
        self._bounds += [outline.astype(np.float64) for outline in outlines]

    def veil(self, alpha: NDArray[np.float32]) -> None:
        """Give the current owner what a veil, shape (H, W), 0 to 1, hides more than half."""
        hidden = alpha > 0.5
        self.owners[hidden] = self.owner
        height, width = alpha.shape
        inside = slice(self._margin, self._margin + height), slice(self._margin, self._margin + width)
        self._alone[inside][hidden] = self.owner
        self._bounds.append(np.array([[0, 0], [width, height]], np.float64))

    def take_alone(self) -> dict[int, int]:
        """Pixels that each owner drawn since the last call would show if nothing else were there.

        A margin of a quarter of the width around the picture counts as well.
        """
        if not self._bounds:
            return {}
        points = np.concatenate(self._bounds) + self._margin
        self._bounds.clear()
        height, width = self._alone.shape
        x0, y0 = np.clip(np.floor(points.min(0)).astype(int) - 1, 0, [width, height])
        x1, y1 = np.clip(np.ceil(points.max(0)).astype(int) + 2, 0, [width, height])
        region = self._alone[y0:y1, x0:x1]
        counts = np.bincount(region.ravel())
        region[:] = 0
        return {int(owner): int(counts[owner]) for owner in np.nonzero(counts)[0] if owner}

    def _near(self, points: NDArray[np.float64]) -> bool:
        height, width = self.owners.shape
        low, high = points.min(0), points.max(0)
        margin = self._margin
        return bool(high[0] > -margin and high[1] > -margin and low[0] < width + margin and low[1] < height + margin)


def _fixed(points: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.round(np.clip(points, -20_000, 20_000) * (1 << _SHIFT)).astype(np.int32)
