"""Objects made unrecognizable before anybody else sees the picture."""

from __future__ import annotations

from collections.abc import Collection

import cv2
import numpy as np
from numpy.typing import NDArray

from hazardlens.detect.base import Detections

_AROUND = 0.1
_CELLS = 6


def blurred(image: NDArray[np.uint8], detections: Detections, classes: Collection[str]) -> NDArray[np.uint8]:
    """A picture in which all detections of some classes are reduced to a few soft patches of colour.

    What a box shows, with a tenth of its size around it, is averaged to at most 6 cells along its longer side. A
    detector misses things: what it did not find is not blurred.

    Args:
        image: Pixels, shape (H, W, 3), uint8; not changed.
        detections: What was found on it.
        classes: Names of the classes.

    Returns:
        The picture itself where there is nothing to blur, else a changed copy.
    """
    chosen = [index for index in range(len(detections)) if detections.class_name(index) in classes]
    if not chosen:
        return image
    result = image.copy()
    height, width = image.shape[:2]
    for index in chosen:
        x1, y1, x2, y2 = (float(value) for value in detections.boxes_xyxy_px[index])
        out_x, out_y = _AROUND * (x2 - x1), _AROUND * (y2 - y1)
        left, right = max(0, int(x1 - out_x)), min(width, int(x2 + out_x) + 1)
        top, bottom = max(0, int(y1 - out_y)), min(height, int(y2 + out_y) + 1)
        if left < right and top < bottom:
            result[top:bottom, left:right] = _softened(result[top:bottom, left:right])
    return result


def _softened(part: NDArray[np.uint8]) -> NDArray[np.uint8]:
    height, width = part.shape[:2]
    scale = _CELLS / max(height, width, _CELLS)
    cells = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(part, cells, interpolation=cv2.INTER_AREA)
    soft: NDArray[np.uint8] = cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)
    return soft
