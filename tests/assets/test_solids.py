"""Pieces, and how they are lit and drawn."""

import math

import numpy as np
import pytest

from drawn_site.camera import Projection
from drawn_site.canvas import Canvas, Colour
from drawn_site.scene import Camera
from drawn_site.solids import Light, Pose, ball_hull, box, draw, upright

SIZE = (160, 90)
LEVEL = Projection(Camera(height_m=1.0, pitch=0.0), SIZE)
NOON = Light(azimuth=0.0, elevation=math.pi / 2)
RED: Colour = (0, 0, 200)
BLUE: Colour = (200, 0, 0)


def colours(pose: Pose) -> set[Colour]:
    """What shows of a plate that is red on its front and blue on its back."""
    canvas = Canvas(SIZE)
    front = upright(pose, (-0.5, 0.5, 0.0), (0.5, 1.5, 0.0), (0, 0, 1), RED)
    back = upright(pose, (-0.5, 0.5, 0.0), (0.5, 1.5, 0.0), (0, 0, -1), BLUE)
    draw([[front, back]], canvas, LEVEL, NOON, owner=1)
    blue, _, red = canvas.image.reshape(-1, 3).max(0)
    return {colour for colour, there in ((RED, red), (BLUE, blue)) if there}


@pytest.mark.parametrize(("heading", "seen"), [(0.0, BLUE), (0.7, BLUE), (math.pi, RED), (2.5, RED)])
def test_a_side_is_seen_from_where_it_faces(heading: float, seen: Colour) -> None:
    assert colours(Pose((0.0, 6.0), heading)) == {seen}


@pytest.mark.parametrize("order", [1, -1])
def test_the_nearer_body_hides_the_farther_one(order: int) -> None:
    canvas = Canvas(SIZE)
    bodies = [box(Pose((0.0, z), 0.0), (-1, 0, -0.2), (1, 2, 0.2), colour) for z, colour in ((5.0, RED), (8.0, BLUE))]
    draw(bodies[::order], canvas, LEVEL, NOON, owner=1)
    assert canvas.image[45, 80, 2] > 0
    assert canvas.image[45, 80, 0] == 0


def test_a_pose_turns_right_and_moves() -> None:
    right, ahead = Pose((3.0, 9.0), math.pi / 2)([(1, 0, 0), (0, 2, 1)])
    np.testing.assert_allclose(right, (3, 0, 8), atol=1e-12)
    np.testing.assert_allclose(ahead, (4, 2, 9), atol=1e-12)


def test_a_ball_is_as_wide_as_said_and_marks_a_workers_upper_half() -> None:
    canvas = Canvas(SIZE)
    draw([[ball_hull(((0.0, 1.0, 10.0), 1.0), colour=RED, upper=True)]], canvas, LEVEL, NOON, owner=5)
    assert set(np.unique(canvas.owners)) == {0, 6}
    assert (canvas.owners == 6).any(0).sum() == pytest.approx(2 * LEVEL.focal_px / 10, abs=2)


def test_a_side_toward_the_light_is_brighter() -> None:
    light = Light(azimuth=0.0, elevation=0.0)
    up, ahead, back = light.on(np.array([0.0, 1, 0])), light.on(np.array([0.0, 0, 1])), light.on(np.array([0.0, 0, -1]))
    assert ahead > up == back
