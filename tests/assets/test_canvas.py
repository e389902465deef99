"""Who owns which pixel."""

import numpy as np
import pytest

from drawn_site.canvas import Canvas
from drawn_site.solids import Light

WHITE = (255, 255, 255)


def square(left: float, top: float, side: float) -> np.ndarray:
    """Corners of a square that covers `side` x `side` pixels: OpenCV fills a polygon's edge as well."""
    side -= 1
    return np.array([(left, top), (left + side, top), (left + side, top + side), (left, top + side)], np.float64)


def draw(canvas: Canvas, owner: int, *squares: np.ndarray) -> int:
    canvas.owner = owner
    for points in squares:
        canvas.polygon(points, WHITE)
    return canvas.take_alone().get(owner, 0)


def test_what_is_hidden_counts_as_it_would_alone() -> None:
    canvas = Canvas((100, 60))
    assert draw(canvas, 1, square(10, 10, 20)) == 400
    assert draw(canvas, 2, square(10, 10, 20), square(20, 20, 20)) == 700
    assert np.bincount(canvas.owners.ravel()).tolist() == [100 * 60 - 700, 0, 700]


@pytest.mark.parametrize(("left", "shows"), [(-10, 200), (-20, 0), (90, 200)])
def test_what_is_past_the_edge_counts_as_it_would_alone(left: int, shows: int) -> None:
    canvas = Canvas((100, 60))
    assert draw(canvas, 1, square(left, 10, 20)) == 400
    assert int((canvas.owners == 1).sum()) == shows


def test_nobodys_pixels_are_painted_but_not_counted() -> None:
    canvas = Canvas((100, 60))
    assert draw(canvas, 0, square(10, 10, 20)) == 0
    assert int((canvas.image == 255).all(2).sum()) == 400
    assert not canvas.owners.any()


def test_decoration_changes_colour_only() -> None:
    canvas = Canvas((100, 60))
    draw(canvas, 1, square(10, 10, 20))
    canvas.decorate(square(15, 15, 30), (0, 0, 200))
    assert int((canvas.owners == 1).sum()) == 400
    assert int((canvas.image == (0, 0, 200)).all(2).sum()) == 900


def test_a_veil_owns_what_it_hides_more_than_half() -> None:
    canvas, alpha = Canvas((100, 60)), np.zeros((60, 100), np.float32)
    draw(canvas, 1, square(10, 10, 20))
    alpha[:20], alpha[20:] = 0.6, 0.4
    canvas.owner = 3
    canvas.veil(alpha)
    assert canvas.take_alone() == {3: 2000}
    assert int((canvas.owners == 1).sum()) == 200


def test_a_shadow_falls_away_from_the_light() -> None:
    light = Light(azimuth=0.0, elevation=np.arctan(2.0))
    np.testing.assert_allclose(light.shadow(np.array([(1.0, 2.0, 9.0), (1.0, 0.0, 9.0)])), [(1, 0, 8), (1, 0, 9)])
