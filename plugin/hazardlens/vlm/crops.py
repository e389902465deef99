"""Each object by itself: cut-outs of a picture, all equally large, side by side in a second picture."""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

_LEAST_COLUMNS = 4
_AROUND = 1.6
"""Enough to see what stands beside a person."""

_LEAST_SIDE_PX = 8


def crop_sheet(
    image: NDArray[np.uint8], boxes_xyxy_px: NDArray[np.float32], *, crop_px: int, around: float = _AROUND
) -> NDArray[np.uint8]:
    """Lay a cut-out of each box side by side, row by row.

    A cut-out is the square about the box's centre whose side is `around` times the box's longer side, at least 8
    pixels, to whole pixels of the picture; what of it lies outside the picture is black.

    Args:
        image: Pixels, shape (H, W, 3), uint8, BGR.
        boxes_xyxy_px: Corners (x1, y1, x2, y2) in pixels of the picture, shape (n, 4), n at least 1.
        crop_px: Side of a cut-out on the sheet in pixels.
        around: Side of a cut-out, in longer sides of its box.

    Returns:
        The sheet, uint8, RGB: a square of as many rows as columns, max(4, ceil(sqrt(n))) of them, `crop_px` each, box k
        in row k // columns and column k % columns; cells without a box are black.
    """
    columns = sheet_columns(len(boxes_xyxy_px))
    sheet = np.zeros((columns * crop_px, columns * crop_px, 3), np.uint8)
    for index, (x1, y1, x2, y2) in enumerate(boxes_xyxy_px.tolist()):
        row, column = divmod(index, columns)
        side = max(_LEAST_SIDE_PX, round(around * max(x2 - x1, y2 - y1)))
        corner = round((x1 + x2 - side) / 2), round((y1 + y2 - side) / 2)
        cell = sheet[row * crop_px : (row + 1) * crop_px, column * crop_px : (column + 1) * crop_px]
        _fill(cell, image, corner, side)
    rgb: NDArray[np.uint8] = cv2.cvtColor(sheet, cv2.COLOR_BGR2RGB)
    return rgb


def sheet_columns(count: int) -> int:
    """Columns, and rows, of the sheet of `count` objects."""
    return max(_LEAST_COLUMNS, math.ceil(math.sqrt(count)))


def _fill(cell: NDArray[np.uint8], image: NDArray[np.uint8], corner_xy_px: tuple[int, int], side_px: int) -> None:
    """Scale what a square of the picture shows into `cell`; only what lies inside is scaled, however large it is."""
    scale = len(cell) / side_px
    (left, right), (to_left, to_right) = _overlap(corner_xy_px[0], side_px, image.shape[1], scale)
    (top, bottom), (to_top, to_bottom) = _overlap(corner_xy_px[1], side_px, image.shape[0], scale)
    size_wh = to_right - to_left, to_bottom - to_top
    if min(size_wh) > 0:
        method = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
        inside = image[top:bottom, left:right]
        cell[to_top:to_bottom, to_left:to_right] = cv2.resize(inside, size_wh, interpolation=method)


def _overlap(start: int, side: int, length: int, scale: float) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where a square's extent along one axis lies inside the picture, in its pixels and in those of the cell."""
    first, last = min(max(start, 0), length), min(max(start + side, 0), length)
    return (first, last), (round((first - start) * scale), round((last - start) * scale))
