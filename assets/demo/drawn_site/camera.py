"""A pinhole camera: metres to pixels."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .scene import Camera

NEAR_M = 0.5
"""Points closer than this along the optical axis are moved there: nothing behind the camera turns up in front."""


class Projection:
    """Maps points of the world to a picture.

    Args:
        camera: Where it hangs and looks.
        size_wh: Width and height of the picture in pixels.
    """

    def __init__(self, camera: Camera, size_wh: tuple[int, int]) -> None:
        width, height = size_wh
        self.focal_px = camera.focal * width
        self._centre = np.array([width / 2, height / 2])
        self._position = np.array([0.0, camera.height_m, 0.0])
        cos_p, sin_p = math.cos(camera.pitch), math.sin(camera.pitch)
        cos_y, sin_y = math.cos(camera.yaw), math.sin(camera.yaw)
        self._turn = np.array(
            [
                [cos_y, 0.0, -sin_y],
                [sin_p * sin_y, cos_p, sin_p * cos_y],
                [cos_p * sin_y, -sin_p, cos_p * cos_y],
            ]
        )

    def __call__(self, points: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Project points of shape (n, 3).

        Returns:
            Pixels (x, y), shape (n, 2), and depth along the optical axis in metres, shape (n,).
        """
        seen = (points - self._position) @ self._turn.T
        depth = np.maximum(seen[:, 2], NEAR_M)
        pixels = seen[:, :2] * np.array([1.0, -1.0]) * (self.focal_px / depth)[:, None] + self._centre
        return pixels, depth

    def toward(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Vectors from points, shape (n, 3), to the camera."""
        return self._position - points
