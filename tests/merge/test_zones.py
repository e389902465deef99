import numpy as np
import pytest

from hazardlens.detect.base import Detections
from hazardlens.merge.zones import foot_points, in_zone, inside_zone
from hazardlens.pipeline import Zone

SQUARE = [(0.2, 0.2), (0.8, 0.2), (0.8, 0.8), (0.2, 0.8)]
# A square with a notch cut from the top down to y = 0.6.
NOTCHED = [(0.0, 0.0), (0.4, 0.0), (0.4, 0.6), (0.6, 0.6), (0.6, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
TRIANGLE = [(0.1, 0.9), (0.5, 0.1), (0.9, 0.9)]


@pytest.mark.parametrize(
    ("polygon", "point", "inside"),
    [
        (SQUARE, (0.5, 0.5), True),
        (SQUARE, (0.1, 0.5), False),
        (SQUARE, (0.9, 0.5), False),
        (SQUARE, (0.5, 0.1), False),
        (SQUARE, (0.2, 0.5), True),
        (SQUARE, (0.8, 0.5), True),
        (SQUARE, (0.5, 0.8), True),
        (SQUARE, (0.8, 0.8), True),
        (SQUARE, (0.81, 0.8), False),
        (SQUARE, (0.1, 0.2), False),
        (SQUARE, (0.1, 0.8), False),
        (NOTCHED, (0.5, 0.3), False),
        (NOTCHED, (0.5, 0.7), True),
        (NOTCHED, (0.5, 0.6), True),
        (NOTCHED, (0.2, 0.3), True),
        (NOTCHED, (0.8, 0.6), True),
        (NOTCHED, (1.0, 1.0), True),
        (TRIANGLE, (0.5, 0.1), True),
        (TRIANGLE, (0.3, 0.5), True),
        (TRIANGLE, (0.29, 0.5), False),
        (TRIANGLE, (0.95, 0.1), False),
    ],
)
def test_in_zone(polygon, point, inside):
    assert in_zone(polygon, point) is inside
    assert in_zone(polygon[::-1], point) is inside
    assert in_zone([*polygon, polygon[0]], point) is inside, "a polygon closed by its first corner is the same"


def _detections(boxes, class_id):
    n = len(boxes)
    return Detections(
        boxes_xyxy_px=np.asarray(boxes, np.float32).reshape(n, 4),
        confidence=np.ones(n, np.float32),
        class_id=np.asarray(class_id, np.int64),
        track_id=(None,) * n,
        class_names={0: "person", 7: "truck"},
    )


def test_foot_points_are_fractions_clipped_to_the_frame():
    feet = foot_points(_detections([[40, 10, 60, 50], [-30, 0, 10, 120]], [0, 0]), (200, 100))
    np.testing.assert_allclose(feet, [[0.25, 0.5], [0.0, 1.0]])
    assert foot_points(_detections([], []), (200, 100)).shape == (0, 2)


@pytest.mark.parametrize(("classes", "expected"), [(None, [0, 1]), (["truck"], [1]), (["person"], [0])])
def test_inside_zone_by_foot_point_and_class(classes, expected):
    boxes = [[45, 0, 55, 50], [20, 40, 40, 80], [45, 45, 55, 95]]
    zone = Zone(polygon=SQUARE, classes=classes)
    assert inside_zone(zone, _detections(boxes, [0, 7, 0]), (100, 100)) == expected
