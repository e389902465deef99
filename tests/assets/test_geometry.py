"""Distances, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from drawn_site.geometry import gap_m, gap_to_circle_m, gap_to_points_m, gap_to_zone_m, outline
from drawn_site.scene import DOWN_M, FOOTPRINT_M, KINDS, Kind, Point, Zone
from tests.assets.scenes import thing

RIGHT = math.pi / 2
HALF = math.sqrt(0.5)
WALKWAY = Zone(kind="walkway", x=(-1.0, 1.0), z=(5.0, 15.0))


@pytest.mark.parametrize(
    ("heading", "at", "gap"),
    [
        # A forklift is 1.2 m wide and 3.2 m long, so its edge is 0.6 m and 1.6 m from its middle.
        (0.0, (0.0, 3.0), 3.0 - 1.6),
        (0.0, (3.0, 0.0), 3.0 - 0.6),
        (RIGHT, (3.0, 0.0), 3.0 - 1.6),
        (RIGHT, (0.0, -3.0), 3.0 - 0.6),
        (math.pi / 6, (3 * 0.5, 3 * math.sqrt(0.75)), 3.0 - 1.6),
        (math.pi / 6, (3 * math.sqrt(0.75), -3 * 0.5), 3.0 - 0.6),
        (0.0, (0.6 + 3.0, 1.6 + 4.0), 5.0),
        (0.0, (0.5, 1.5), 0.0),
    ],
)
def test_from_a_footprint_to_a_point(heading: float, at: Point, gap: float) -> None:
    forklift = thing("forklift", (10.0, 20.0), heading=heading)
    points = np.array([(10.0 + at[0], 20.0 + at[1]), (90.0, 90.0)])
    assert gap_to_points_m(forklift, points) == pytest.approx(gap)


@pytest.mark.parametrize(
    ("kind", "at", "heading", "other", "other_at", "other_heading", "gap"),
    [
        ("worker", (0, 0), 0.0, "forklift", (3, 0), 0.0, 3 - 0.25 - 0.6),
        ("worker", (0, 0), 0.0, "forklift", (3, 0), RIGHT, 3 - 0.25 - 1.6),
        ("worker", (0, 0), 0.0, "truck", (0, 6), 0.0, 6 - 0.25 - 3.1),
        ("worker", (0, 0), 0.0, "truck", (0, 6), RIGHT, 6 - 0.25 - 1.15),
        # A corner points at a flat side.
        ("worker", (0, 0), math.pi / 4, "forklift", (0, 4), 0.0, 4 - 0.5 * HALF - 1.6),
        # Two corners, 3 m and 4 m apart along the axes.
        ("worker", (0, 0), 0.0, "forklift", (3.85, 5.85), 0.0, 5.0),
        ("pallet", (0, 0), 0.0, "pallet", (1.1, 0), 0.0, 0.0),
        ("cone", (0, 0), 0.0, "truck", (0.2, 0.3), 0.7, 0.0),
    ],
)
def test_between_two_footprints(
    kind: Kind, at: Point, heading: float, other: Kind, other_at: Point, other_heading: float, gap: float
) -> None:
    one, two = thing(kind, at, heading=heading), thing(other, other_at, heading=other_heading)
    assert gap_m(one, two) == pytest.approx(gap, abs=1e-9)
    assert gap_m(two, one) == gap_m(one, two)


def test_who_lies_on_the_ground_reaches_farther() -> None:
    cone = thing("cone", (0.0, 2.0))
    assert gap_m(thing("worker", (0.0, 0.0)), cone) == pytest.approx(2 - 0.25 - 0.225)
    assert gap_m(thing("worker", (0.0, 0.0), posture="down"), cone) == pytest.approx(2 - DOWN_M / 2 - 0.225)


def test_to_a_circle() -> None:
    cone = thing("cone", (2.0, 0.0))
    assert gap_to_circle_m(cone, (0.0, 0.0), 0.5) == pytest.approx(2 - 0.225 - 0.5)
    assert gap_to_circle_m(cone, (2.0, 0.1), 0.5) == -0.5


@pytest.mark.parametrize(
    ("at", "gap"),
    [((2.0, 10.0), 2 - 0.225 - 1), ((0.0, 17.0), 2 - 0.225), ((1.0, 10.0), 0), ((0.0, 10.0), 0), ((4.225, 19.225), 5)],
)
def test_to_a_zone(at: Point, gap: float) -> None:
    assert gap_to_zone_m(thing("cone", at), WALKWAY) == pytest.approx(gap)


@pytest.mark.parametrize("kind", KINDS)
def test_an_outline_runs_along_the_edge_without_large_steps(kind: Kind) -> None:
    one = thing(kind, (3.0, 9.0), heading=0.4)
    points = outline(one)
    width, length = FOOTPRINT_M[kind]
    steps = np.linalg.norm(points - np.roll(points, 1, axis=0), axis=1)
    assert steps.max() <= 0.15 + 1e-9
    assert steps.sum() == pytest.approx(2 * (width + length))
    assert all(gap_to_points_m(one, point[None]) == pytest.approx(0, abs=1e-9) for point in points)
    assert np.linalg.norm(points - one.at, axis=1).max() == pytest.approx(math.hypot(width, length) / 2)
