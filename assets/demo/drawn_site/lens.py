"""Light over the whole picture, and what camera and recording do to it."""

from __future__ import annotations

import random

import cv2
import numpy as np
from numpy.typing import NDArray

from .camera import Projection
from .scene import Hour, Lens, Point, Scene

Image = NDArray[np.uint8]

_COARSE = 8
"""Light is worked out in a picture so many times smaller."""

_AMBIENT: dict[Hour, tuple[float, float, float]] = {
    "day": (1.0, 1.0, 1.0),
    "dusk": (0.66, 0.7, 0.8),
    "night": (0.4, 0.34, 0.32),
}
_LAMPS: dict[Hour, float] = {"day": 0.0, "dusk": 0.2, "night": 0.5}


def light(image: Image, scene: Scene, project: Projection) -> Image:
    """Darken the picture to the hour; lamps and fires brighten what is around them."""
    if scene.hour == "day" and not any(effect.kind == "fire" for effect in scene.effects):
        return image
    height, width = image.shape[:2]
    level = _level(scene, project, (width // _COARSE, height // _COARSE))
    lit: Image = np.clip(image * cv2.resize(level, (width, height)), 0, 255).astype(np.uint8)
    return lit


def _level(scene: Scene, project: Projection, size_wh: tuple[int, int]) -> NDArray[np.float32]:
    """Share of blue, green and red light that arrives, shape (H, W, 3), in a picture `_COARSE` times smaller."""
    level = np.empty((size_wh[1], size_wh[0], 3), np.float32)
    level[:] = _AMBIENT[scene.hour]
    rng = random.Random(scene.site.look)
    left, right = scene.site.side_x
    for _ in range(2):
        spot = rng.uniform(left * 0.6, right * 0.6), rng.uniform(5.0, scene.site.wall_z)
        glow = _pool(spot, 0.6, 3.2, project, size_wh)
        level += glow[:, :, None] * np.array((0.8, 0.95, 1.0), np.float32) * _LAMPS[scene.hour]
    for fire in scene.effects:
        if fire.kind == "fire":
            flicker = 1.0 + 0.08 * np.sin(9.0 * scene.time_s + fire.look % 7)
            glow = _pool(fire.at, 0.5 * fire.size_m, 1.6 + fire.size_m, project, size_wh)
            level += glow[:, :, None] * np.array((0.05, 0.28, 0.6), np.float32) * flicker
    return level


def _pool(
    at: Point, height_m: float, radius_m: float, project: Projection, size_wh: tuple[int, int]
) -> NDArray[np.float32]:
    """Bell-shaped brightness, shape (H, W), peak 1, around a point above the ground."""
    (centre,), (depth,) = project(np.array([(at[0], height_m, at[1])]))
    radius = radius_m * project.focal_px / depth / _COARSE
    x = (np.arange(size_wh[0], dtype=np.float32) - centre[0] / _COARSE) / radius
    y = (np.arange(size_wh[1], dtype=np.float32) - centre[1] / _COARSE) / (0.7 * radius)
    glow: NDArray[np.float32] = np.exp(-0.5 * y**2)[:, None] * np.exp(-0.5 * x**2)[None]
    return glow


def record(image: Image, lens: Lens, noise: np.random.Generator) -> Image:
    """Blur the picture, add noise, and compress it."""
    if lens.blur_px > 0.2:
        image = cv2.GaussianBlur(image, (0, 0), lens.blur_px * image.shape[1] / 640)
    if lens.noise > 0:
        grain = noise.standard_normal(image.shape, np.float32) * lens.noise
        image = np.clip(image + grain, 0, 255).astype(np.uint8)
    if lens.jpeg is not None:
        _, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, lens.jpeg])
        image = np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)
    return image
