"""Distances on the ground."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .scene import Point, Thing, Zone, footprint


def outline(thing: Thing, step_m: float = 0.15) -> NDArray[np.float64]:
    """Points along the edge of a thing's footprint, shape (n, 2), x and z in metres."""
    (across, along), (sin, cos) = footprint(thing)
    corners = np.array([(-across, -along), (across, -along), (across, along), (-across, along)])
    edges = []
    for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        count = max(2, int(np.ceil(np.linalg.norm(b - a) / step_m)) + 1)
        edges.append(a + (b - a) * np.linspace(0, 1, count, endpoint=False)[:, None])
    own = np.concatenate(edges)
    points: NDArray[np.float64] = own @ np.array([[cos, -sin], [sin, cos]]) + np.array(thing.at)
    return points


def gap_to_points_m(thing: Thing, points: NDArray[np.float64]) -> float:
    """Least distance from points, shape (n, 2), to a footprint; 0 inside it."""
    (across, along), (sin, cos) = footprint(thing)
    away = points - np.array(thing.at)
    own = np.abs(away @ np.array([[cos, sin], [-sin, cos]])) - np.array([across, along])
    return float(np.linalg.norm(np.maximum(own, 0.0), axis=1).min())


def gap_m(one: Thing, other: Thing) -> float:
    """Distance between two footprints, 0 where they overlap."""
    return min(gap_to_points_m(one, outline(other)), gap_to_points_m(other, outline(one)))


def gap_to_circle_m(thing: Thing, centre: Point, radius_m: float) -> float:
    """Distance from a footprint to a circle, 0 or less where they overlap."""
    return gap_to_points_m(thing, np.array([centre])) - radius_m


def gap_to_zone_m(thing: Thing, zone: Zone) -> float:
    """Distance from a footprint's edge to a zone, 0 where they overlap; no zone is so small as to lie within one."""
    points = outline(thing)
    low, high = np.array([zone.x[0], zone.z[0]]), np.array([zone.x[1], zone.z[1]])
    outside = np.maximum(np.maximum(low - points, points - high), 0.0)
    return float(np.linalg.norm(outside, axis=1).min())
