"""The sheet of cut-outs: exactly which pixels are shown where."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hazardlens.vlm.crops import crop_sheet

Box = tuple[float, float, float, float]


def sheet(image: NDArray[np.uint8], *boxes: Box, crop_px: int) -> NDArray[np.uint8]:
    return crop_sheet(image, np.array(boxes, np.float32).reshape(-1, 4), crop_px=crop_px, around=1.3)


def cells(picture: NDArray[np.uint8], crop_px: int) -> list[NDArray[np.uint8]]:
    """The cells of a square sheet, row by row."""
    columns, rest = divmod(picture.shape[1], crop_px)
    assert rest == 0
    assert picture.shape == (columns * crop_px, columns * crop_px, 3)
    grid = picture.reshape(columns, crop_px, columns, crop_px, 3).swapaxes(1, 2)
    return list(grid.reshape(columns * columns, crop_px, crop_px, 3))


def noise(width: int, height: int) -> NDArray[np.uint8]:
    return np.random.default_rng(7).integers(1, 256, (height, width, 3), np.uint8)


@pytest.mark.parametrize("crop_px", [16, 39, 64])
@pytest.mark.parametrize(("count", "columns"), [(1, 4), (4, 4), (16, 4), (17, 5)])
def test_each_cell_shows_its_own_box_in_rgb_and_the_others_are_black(count: int, columns: int, crop_px: int) -> None:
    """Blocks of 40 pixels in colours of their own; a box of 30 in each, so that a cut-out of 39 stays inside."""
    colours = [(10 * index + 5, 250 - 10 * index, 3 * index) for index in range(count)]
    image = np.zeros((200, 200, 3), np.uint8)
    boxes = []
    for index, colour in enumerate(colours):
        x, y = 40 * (index % 5), 40 * (index // 5)
        image[y : y + 40, x : x + 40] = colour
        boxes.append((x + 5, y + 8, x + 35, y + 32))
    shown = cells(sheet(image, *boxes, crop_px=crop_px), crop_px)
    assert len(shown) == columns**2
    for cell, (blue, green, red) in zip(shown, colours, strict=False):
        assert (cell == (red, green, blue)).all()
    assert not np.any(shown[count:])


@pytest.mark.parametrize(
    ("box", "region"),
    [
        ((30, 35, 50, 45), (27, 27, 53, 53)),  # wide: 1.3 times its width
        ((35, 30, 45, 50), (27, 27, 53, 53)),  # tall: 1.3 times its height
        ((41, 30, 43, 34), (38, 28, 46, 36)),  # tiny: 8 pixels at least
        ((42, 32, 42, 32), (38, 28, 46, 36)),
        ((10.2, 10.2, 30.2, 30.2), (7, 7, 33, 33)),
    ],
)
def test_a_cut_out_is_a_square_about_the_boxs_centre(box: Box, region: tuple[int, int, int, int]) -> None:
    image = noise(80, 60)
    x1, y1, x2, y2 = region
    shown = cells(sheet(image, box, crop_px=x2 - x1), x2 - x1)
    assert np.array_equal(shown[0], image[y1:y2, x1:x2, ::-1])


def test_outside_the_picture_is_black() -> None:
    image = noise(60, 40)
    corners = [(-10, -10, 10, 10), (50, -10, 70, 10), (-10, 30, 10, 50), (50, 30, 70, 50)]
    beyond = [(100, 10, 120, 30), (-500, -500, -400, -400), (60 + 13, 10, 60 + 33, 30)]
    shown = cells(sheet(image, *corners, *beyond, crop_px=26), 26)
    expected = np.zeros((7, 26, 26, 3), np.uint8)
    expected[0, 13:, 13:] = image[:13, :13, ::-1]
    expected[1, 13:, :13] = image[:13, 47:, ::-1]
    expected[2, :13, 13:] = image[27:, :13, ::-1]
    expected[3, :13, :13] = image[27:, 47:, ::-1]
    assert np.array_equal(shown[:7], expected)


def test_a_box_beyond_all_sides_shows_the_whole_picture_in_the_middle() -> None:
    image = np.full((50, 100, 3), 200, np.uint8)
    first, second = cells(sheet(image, (-50, -75, 150, 125), (-5e6, -5e6, 5e6, 5e6), crop_px=26), 26)[:2]
    expected = np.zeros((26, 26, 3), np.uint8)
    expected[10:16, 8:18] = 200  # 260 pixels in 26, so ten each: the picture begins at 105 and at 80
    assert np.array_equal(first, expected)
    assert not second.any(), "less than a pixel of the cell"


def test_shrinking_averages_all_pixels() -> None:
    image = noise(104, 104)
    (shown, *_) = cells(sheet(image, (12, 12, 92, 92), crop_px=26), 26)
    means = image[:, :, ::-1].reshape(26, 4, 26, 4, 3).mean(axis=(1, 3))
    assert np.abs(shown - means).max() <= 1


def test_enlarging_goes_evenly_from_pixel_to_pixel() -> None:
    image = np.zeros((60, 60, 3), np.uint8)
    image[:, 30:] = 100
    (shown, *_) = cells(sheet(image, (20, 20, 40, 40), crop_px=52), 52)
    assert (shown == np.array([0] * 25 + [25, 75] + [100] * 25)[None, :, None]).all()


def test_the_picture_is_only_looked_at_and_may_be_a_view() -> None:
    image = noise(80, 60)
    before = image.copy()
    image.flags.writeable = False
    boxes = [(10, 10, 40, 40), (-5, 30, 20, 70)]
    plain = sheet(image, *boxes, crop_px=32)
    turned = sheet(image[:, :, ::-1], *boxes, crop_px=32)
    assert np.array_equal(turned, plain[:, :, ::-1])
    assert np.array_equal(image, before)


def test_a_cut_out_shows_what_stands_beside_its_box() -> None:
    image = noise(80, 60)
    box = np.array([(30, 20, 50, 40)], np.float32)
    shown = cells(crop_sheet(image, box, crop_px=32), 32)
    assert np.array_equal(shown[0], image[14:46, 24:56, ::-1])
