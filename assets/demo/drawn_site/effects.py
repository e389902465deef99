"""Fire, smoke and spills: seeded shapes that move with time."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .camera import Projection
from .canvas import Canvas, Colour
from .scene import Effect

_FLAMES: tuple[tuple[float, Colour], ...] = ((1.0, (16, 52, 226)), (0.74, (20, 120, 255)), (0.46, (70, 210, 255)))
_SPILLS: tuple[tuple[Colour, Colour], ...] = (
    ((30, 28, 28), (120, 104, 96)),
    ((120, 96, 62), (236, 224, 206)),
    ((60, 150, 60), (150, 235, 170)),
    ((40, 150, 190), (150, 230, 245)),
    ((36, 60, 120), (110, 140, 200)),
)
_SMOKE: tuple[Colour, ...] = ((52, 52, 54), (96, 96, 98), (170, 170, 172), (212, 212, 214))
_RING = [(math.cos(a), math.sin(a)) for a in np.linspace(0, 2 * math.pi, 20, endpoint=False)]
_COARSE = 4
"""Smoke is worked out in a picture so many times smaller."""


def draw_spill(effect: Effect, canvas: Canvas, project: Projection) -> None:
    """A glossy puddle with a sharp edge."""
    rng = random.Random(effect.look)
    colour, gloss = rng.choice(_SPILLS)
    outline = _blob(effect, rng)
    layer = canvas.image.copy()
    area = _pixels(project(outline)[0])
    cv2.fillPoly(layer, [area], colour)
    for _ in range(3):
        x, z = rng.uniform(-0.5, 0.4), rng.uniform(-0.4, 0.4)
        shine = (outline - outline.mean(0)) * rng.uniform(0.12, 0.3) + outline.mean(0)
        shine[:, 0] += x * effect.size_m
        shine[:, 2] += z * effect.size_m
        cv2.fillPoly(layer, [_pixels(project(shine)[0])], gloss)
    cv2.polylines(layer, [area], True, gloss, max(1, canvas.image.shape[1] // 640))
    cv2.addWeighted(layer, 0.82, canvas.image, 0.18, 0, dst=canvas.image)
    canvas.cover([area])


def _blob(effect: Effect, rng: random.Random) -> NDArray[np.float64]:
    """A puddle's edge on the ground, shape (48, 3), in metres."""
    angles = np.linspace(0, 2 * math.pi, 48, endpoint=False)
    radius = np.ones(48)
    for wave in (2, 3, 5):
        radius += rng.uniform(0.05, 0.3) / wave * 1.6 * np.sin(wave * angles + rng.uniform(0, 6.3))
    radius *= effect.size_m / math.sqrt(float((radius**2).mean()))
    x, z = effect.at
    return np.stack([x + radius * np.cos(angles), np.zeros(48), z + radius * np.sin(angles)], axis=1)


def draw_fire(effect: Effect, canvas: Canvas, project: Projection, time_s: float) -> None:
    """Flames on the ground, tongue by tongue."""
    rng = random.Random(effect.look)
    (x, z), radius = effect.at, 0.45 * effect.size_m
    char = np.array([(x + radius * c, 0.0, z + radius * s) for c, s in _RING])
    cv2.fillConvexPoly(canvas.image, _pixels(project(char)[0]), (26, 28, 32))
    foot, scale = _foot(effect, project)
    tongues = [_Tongue.drawn_by_lot(rng) for _ in range(9)]
    for share, colour in _FLAMES:
        for tongue in tongues:
            area = _pixels(tongue.outline(share, effect.size_m * scale, time_s) + foot)
            cv2.fillPoly(canvas.image, [area], colour)
            canvas.cover([area])


@dataclass(frozen=True)
class _Tongue:
    """One flame: place and measures as shares of the fire's height, and how it flickers."""

    x: float
    high: float
    wide: float
    phase: float
    speed: float

    @classmethod
    def drawn_by_lot(cls, rng: random.Random) -> _Tongue:
        return cls(
            x=rng.uniform(-0.36, 0.36),
            high=rng.uniform(0.55, 1.0),
            wide=rng.uniform(0.2, 0.34),
            phase=rng.uniform(0, 6.3),
            speed=rng.uniform(5, 11),
        )

    def outline(self, share: float, fire_px: float, time_s: float) -> NDArray[np.float64]:
        """Shape (20, 2), in pixels from the fire's foot; the share shrinks the inner, hotter flames."""
        flicker = 0.85 + 0.15 * math.sin(self.speed * time_s + self.phase)
        height = (1 - 1.3 * abs(self.x)) * self.high * flicker * share * fire_px * 1.15
        width = self.wide * share * fire_px
        rise = np.linspace(0, 1, 10)
        half = 0.5 * width * np.sqrt(np.clip(rise + 0.12, 0, 1)) * (1 - rise) ** 0.8 * 1.9
        middle = 0.2 * math.sin(0.7 * self.speed * time_s + self.phase) * height * rise**2
        middle = middle + self.x * fire_px * (0.6 + 0.4 * share)
        left, right = middle - half, middle + half
        return np.stack([np.concatenate([left, right[::-1]]), -height * np.concatenate([rise, rise[::-1]])], 1)


def draw_smoke(effect: Effect, canvas: Canvas, project: Projection, time_s: float) -> None:
    """Puffs that rise, widen and thin out."""
    rng = random.Random(effect.look)
    colour = np.array(rng.choice(_SMOKE), np.float32)
    height, width = canvas.owners.shape
    density = _density(effect, project, (height // _COARSE, width // _COARSE), time_s, rng)
    alpha = cv2.resize(1 - np.exp(-1.1 * density), (width, height))
    ys, xs = np.nonzero(alpha > 0.01)
    if len(ys) == 0:
        return
    area = slice(ys.min(), ys.max() + 1), slice(xs.min(), xs.max() + 1)
    veil = alpha[area][:, :, None]
    tone = colour * (1.0 - 0.18 * np.linspace(0, 1, veil.shape[0], dtype=np.float32)[:, None, None])
    canvas.image[area] = (canvas.image[area] * (1 - veil) + tone * veil).astype(np.uint8)
    canvas.veil(alpha)


def _density(
    effect: Effect, project: Projection, shape: tuple[int, int], time_s: float, rng: random.Random
) -> NDArray[np.float32]:
    """How thick the smoke is at each pixel of a picture `_COARSE` times smaller."""
    foot, scale = _foot(effect, project)
    lean = rng.uniform(-0.35, 0.35)
    density = np.zeros(shape, np.float32)
    for k in range(26):
        age = (k / 26 + 0.12 * time_s) % 1.0
        sway = rng.uniform(-1, 1) * (0.05 + 0.16 * age) + lean * age
        centre = foot + np.array([sway * effect.size_m, -(0.04 + 0.96 * age) * effect.size_m]) * scale
        radius = (0.07 + 0.15 * age) * effect.size_m * scale * rng.uniform(0.75, 1.25)
        puff = np.zeros_like(density)
        x, y = np.clip(centre / _COARSE, -9999, 9999)
        cv2.circle(puff, (int(x), int(y)), max(1, int(radius / _COARSE)), 1.0, -1)
        density += puff * (1.0 - 0.85 * age) * 0.75
    sigma = max(1.0, 0.05 * effect.size_m * scale / _COARSE)
    smooth: NDArray[np.float32] = cv2.GaussianBlur(density, (0, 0), sigma)
    return smooth


def _foot(effect: Effect, project: Projection) -> tuple[NDArray[np.float64], float]:
    """Pixel (x, y) of the ground that an effect rises from, and pixels per metre there."""
    (foot,), (depth,) = project(np.array([(effect.at[0], 0.0, effect.at[1])]))
    return foot, project.focal_px / float(depth)


def _pixels(points: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.round(points).astype(np.int32)
