"""Metres to pixels."""

import math

import numpy as np
import pytest

from drawn_site.camera import NEAR_M, Projection
from drawn_site.scene import Camera

SIZE = (640, 360)


def project(camera: Camera, *points: tuple[float, float, float]) -> tuple[list[list[float]], list[float]]:
    pixels, depth = Projection(camera, SIZE)(np.array(points, np.float64))
    return pixels.tolist(), depth.tolist()


def test_a_level_camera_by_hand() -> None:
    level = Camera(height_m=4.0, pitch=0.0, focal=1.0)
    pixels, depth = project(level, (0, 4, 10), (1, 4, 10), (0, 5, 10), (0, 0, 8))
    assert pixels == [[320, 180], [384, 180], [320, 116], [320, 500]]
    assert depth == [10, 10, 10, 8]


@pytest.mark.parametrize("yaw", [-0.3, 0.0, 0.2])
@pytest.mark.parametrize("height", [3.0, 6.0])
def test_the_point_that_it_looks_at_is_in_the_middle(height: float, yaw: float) -> None:
    camera = Camera(height_m=height, pitch=math.atan(height / 10), yaw=yaw)
    (pixel,), (depth,) = project(camera, (10 * math.sin(yaw), 0.0, 10 * math.cos(yaw)))
    assert pixel == pytest.approx([320, 180])
    assert depth == pytest.approx(math.hypot(height, 10))


def test_right_is_right_up_is_up_and_far_is_higher_and_smaller() -> None:
    camera = Camera(height_m=4.5, pitch=0.4, yaw=0.1)
    foot, right, head, far, far_head = project(camera, (0, 0, 9), (1, 0, 9), (0, 1, 9), (0, 0, 14), (0, 1, 14))[0]
    assert right[0] > foot[0]
    assert head[1] < foot[1]
    assert far[1] < foot[1]
    assert far[1] - far_head[1] < foot[1] - head[1]


def test_a_larger_picture_of_the_same_shape_shows_the_same() -> None:
    camera, points = Camera(height_m=4.5, pitch=0.4, yaw=0.1), np.array([(1.0, 0.5, 9.0), (-3.0, 2.0, 15.0)])
    small, large = Projection(camera, SIZE), Projection(camera, (1280, 720))
    np.testing.assert_allclose(2 * small(points)[0], large(points)[0])


def test_what_is_behind_it_does_not_turn_up_in_front() -> None:
    level = Camera(height_m=4.0, pitch=0.0, focal=1.0)
    (pixel,), (depth,) = project(level, (2, 0, -5))
    assert depth == NEAR_M
    assert pixel[0] > SIZE[0]
    assert pixel[1] > SIZE[1]


def test_toward_points_from_a_point_to_the_camera() -> None:
    toward = Projection(Camera(height_m=4.0, pitch=0.3), SIZE).toward(np.array([(1.0, 0.0, 9.0)]))
    assert toward.tolist() == [[-1, 4, -9]]
