"""Zones: which detections stand inside a polygon."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hazardlens.detect.base import Detections
from hazardlens.pipeline import Zone

Point = tuple[float, float]

_TOLERANCE = 1e-9
"""Fractions of a frame closer than this are the same."""


def in_zone(polygon: Sequence[Point], point: Point) -> bool:
    """Whether a point lies inside a polygon or on its edge.

    Args:
        polygon: Corners (x, y) in order, at least three; it may be concave.
        point: The point (x, y), in the same unit.
    """
    inside = False
    for start, end in zip(polygon, (*polygon[1:], polygon[0]), strict=True):
        if _on_edge(start, end, point):
            return True
        inside ^= _crosses(start, end, point)
    return inside


def _on_edge(start: Point, end: Point, point: Point) -> bool:
    area = (end[0] - start[0]) * (point[1] - start[1]) - (end[1] - start[1]) * (point[0] - start[0])
    return abs(area) <= _TOLERANCE and all(
        min(a, b) - _TOLERANCE <= at <= max(a, b) + _TOLERANCE for a, b, at in zip(start, end, point, strict=True)
    )


def _crosses(start: Point, end: Point, point: Point) -> bool:
    """Whether a ray from the point to the right crosses the edge; the lower end of an edge belongs to it."""
    if (start[1] > point[1]) == (end[1] > point[1]):
        return False
    crossing = start[0] + (point[1] - start[1]) / (end[1] - start[1]) * (end[0] - start[0])
    return point[0] < crossing


def foot_points(detections: Detections, size_wh: tuple[int, int]) -> NDArray[np.float64]:
    """Middle of each box's bottom edge, in fractions of the frame clipped to 0..1, shape (n, 2)."""
    boxes = detections.boxes_xyxy_px.astype(np.float64)
    feet = np.stack([(boxes[:, 0] + boxes[:, 2]) / 2, boxes[:, 3]], axis=1)
    return np.clip(feet / np.asarray(size_wh, np.float64), 0.0, 1.0)


def inside_zone(zone: Zone, detections: Detections, size_wh: tuple[int, int]) -> list[int]:
    """Indices of the detections of the zone's classes whose foot point is inside it."""
    feet = foot_points(detections, size_wh)
    return [
        index
        for index in range(len(detections))
        if zone.classes is None or detections.class_name(index) in zone.classes
        if in_zone(zone.polygon, (float(feet[index, 0]), float(feet[index, 1])))
    ]
