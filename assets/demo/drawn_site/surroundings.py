"""The place: floor, walls and sky, without anything that moves."""

from __future__ import annotations

import functools
import random

import cv2
import numpy as np
from numpy.typing import NDArray

from .camera import Projection
from .canvas import Colour
from .scene import Camera, Site, Zone
from .solids import shade

_PX_PER_M = 40
_NEAR_Z = 2.0
_FLOORS: tuple[Colour, ...] = ((150, 152, 154), (132, 138, 142), (118, 132, 148), (160, 158, 150), (112, 116, 118))
_YARDS: tuple[Colour, ...] = ((112, 134, 152), (120, 124, 126), (96, 118, 136), (104, 108, 110))
_WALLS: tuple[Colour, ...] = ((176, 180, 180), (150, 160, 150), (168, 150, 128), (140, 156, 176), (128, 128, 130))
_FENCES: tuple[Colour, ...] = ((150, 116, 84), (120, 130, 136), (96, 128, 104), (140, 150, 160), (110, 140, 176))
_SIGNS: tuple[Colour, ...] = (
    (60, 60, 200),
    (40, 190, 235),
    (180, 100, 40),
    (230, 230, 230),
    (50, 120, 235),
    (70, 140, 60),
)
_YELLOW: Colour = (60, 200, 235)
_WHITE: Colour = (225, 228, 228)

Image = NDArray[np.uint8]


@functools.lru_cache(maxsize=2)
def draw_place(site: Site, camera: Camera, size_wh: tuple[int, int]) -> Image:
    """Picture of the empty place, shape (H, W, 3), BGR; shared, so copy it before drawing on it."""
    rng = random.Random(site.look)
    project = Projection(camera, size_wh)
    image = _backdrop(site, project, size_wh, rng)
    height = rng.uniform(4.5, 7.0) if site.indoor else rng.uniform(1.9, 2.8)
    (left, right), far = site.side_x, site.wall_z
    colour = rng.choice(_WALLS if site.indoor else _FENCES)
    for x in (left, right):
        side = _wall(far - _NEAR_Z, height, shade(colour, 0.86), site.indoor, rng)
        _paste(image, side, project, (x, height, _NEAR_Z), (x, height, far), (x, 0, far), (x, 0, _NEAR_Z))
    back = _wall(right - left, height, colour, site.indoor, rng)
    for zone in site.zones:
        if zone.kind == "exit":
            _door(back, (zone.x[0] + zone.x[1]) / 2 - left)
    _paste(image, back, project, (left, height, far), (right, height, far), (right, 0, far), (left, 0, far))
    floor = _floor(site, rng)
    _paste(image, floor, project, (left, 0, far), (right, 0, far), (right, 0, _NEAR_Z), (left, 0, _NEAR_Z))
    image.flags.writeable = False
    return image


def _paste(image: Image, texture: Image, project: Projection, *corners: tuple[float, float, float]) -> None:
    """Lay a texture's corners (top left, top right, bottom right, bottom left) on points of the world."""
    height, width = texture.shape[:2]
    pixels, _ = project(np.array(corners, np.float64))
    source = np.array([(0, 0), (width, 0), (width, height), (0, height)], np.float32)
    matrix = cv2.getPerspectiveTransform(source, pixels.astype(np.float32))
    size_wh = image.shape[1], image.shape[0]
    cv2.warpPerspective(texture, matrix, size_wh, dst=image, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_TRANSPARENT)


def _speckle(shape: tuple[int, int], rng: random.Random, *, cell: int, strength: float) -> NDArray[np.float32]:
    """Smooth noise around 0, shape (H, W)."""
    noise = np.random.default_rng(rng.getrandbits(32))
    small = noise.standard_normal((max(2, shape[0] // cell), max(2, shape[1] // cell))).astype(np.float32)
    large: NDArray[np.float32] = cv2.resize(small, (shape[1], shape[0]), interpolation=cv2.INTER_CUBIC) * strength
    return large


def _textured(width: int, height: int, colour: Colour, rng: random.Random) -> Image:
    grain = _speckle((height, width), rng, cell=2, strength=3.5) + _speckle((height, width), rng, cell=60, strength=5)
    return np.clip(np.array(colour, np.float32) + grain[:, :, None], 0, 255).astype(np.uint8)


def _backdrop(site: Site, project: Projection, size_wh: tuple[int, int], rng: random.Random) -> Image:
    return _roof(project, size_wh) if site.indoor else _sky(project, size_wh, rng)


def _roof(project: Projection, size_wh: tuple[int, int]) -> Image:
    width, height = size_wh
    image = np.full((height, width, 3), (72, 72, 74), np.uint8)
    for z in range(6, 24, 2):
        (start, end), _ = project(np.array([(-30.0, 7.5, z), (30.0, 7.5, z)]))
        cv2.line(image, (int(start[0]), int(start[1])), (int(end[0]), int(end[1])), (58, 58, 60), max(2, width // 200))
    return image


def _sky(project: Projection, size_wh: tuple[int, int], rng: random.Random) -> Image:
    """Haze above, and houses far off."""
    width, height = size_wh
    top = np.array(rng.choice(((214, 170, 120), (220, 200, 180), (200, 186, 170))), np.float32)
    bottom = np.array((236, 228, 216), np.float32)
    share = np.linspace(0, 1, height, dtype=np.float32)[:, None, None] ** 0.7
    image = np.broadcast_to(top * (1 - share) + bottom * share, (height, width, 3)).astype(np.uint8).copy()
    for _ in range(rng.randint(3, 9)):
        x, far, w, h = rng.uniform(-30, 30), rng.uniform(30, 60), rng.uniform(4, 12), rng.uniform(4, 14)
        corners, _ = project(np.array([(x, 0, far), (x, h, far), (x + w, h, far), (x + w, 0, far)], np.float64))
        tone = rng.randint(140, 195)
        cv2.fillConvexPoly(image, corners.astype(np.int32), (tone + 12, tone + 4, tone))
    return image


def _wall(width_m: float, height_m: float, colour: Colour, indoor: bool, rng: random.Random) -> Image:
    width, height = int(width_m * _PX_PER_M), int(height_m * _PX_PER_M)
    image = _textured(width, height, colour, rng)
    step = rng.choice((0.6, 1.2, 2.4))
    for k in range(1, int(width_m / step) + 1):
        x = int(k * step * _PX_PER_M)
        cv2.line(image, (x, 0), (x, height), shade(colour, 0.84), 2)
    cv2.rectangle(image, (0, height - int(0.35 * _PX_PER_M)), (width, height), shade(colour, 0.7), -1)
    if indoor:
        for k in range(int(width_m / 4)):
            if rng.random() < 0.5:
                _window(image, (4 * k + 1) * _PX_PER_M, colour)
    for _ in range(rng.randint(0, 5)):
        _sign(image, rng)
    return image


def _window(wall: Image, x: int, colour: Colour) -> None:
    top, bottom = int(0.5 * _PX_PER_M), int(0.5 * _PX_PER_M) + int(1.1 * _PX_PER_M)
    cv2.rectangle(wall, (x, top), (x + 2 * _PX_PER_M, bottom), (215, 205, 190), -1)
    cv2.line(wall, (x + _PX_PER_M, top), (x + _PX_PER_M, bottom), shade(colour, 0.6), 2)


def _sign(wall: Image, rng: random.Random) -> None:
    height, width = wall.shape[:2]
    highest = int(height * 0.3)
    x, y = rng.randint(0, max(1, width - 50)), rng.randint(highest, max(highest + 1, height - 60))
    colour = rng.choice(_SIGNS)
    w, h = rng.randint(16, 48), rng.randint(14, 34)
    cv2.rectangle(wall, (x, y), (x + w, y + h), colour, -1)
    cv2.rectangle(wall, (x + 3, y + 3), (x + w - 3, y + h - 3), shade(colour, 0.8), 1)


def _door(wall: Image, centre_m: float) -> None:
    height = wall.shape[0]
    x, half, top = int(centre_m * _PX_PER_M), int(0.75 * _PX_PER_M), height - int(2.1 * _PX_PER_M)
    cv2.rectangle(wall, (x - half - 4, top - 4), (x + half + 4, height), (60, 60, 62), -1)
    cv2.rectangle(wall, (x - half, top), (x + half, height), (150, 190, 160), -1)
    cv2.line(wall, (x, top), (x, height), (70, 90, 76), 2)
    cv2.rectangle(wall, (x - half, top + 46), (x + half, top + 50), (70, 70, 72), -1)
    cv2.rectangle(wall, (x - 22, top - 26), (x + 22, top - 8), (80, 150, 30), -1)
    cv2.arrowedLine(wall, (x - 14, top - 17), (x + 14, top - 17), _WHITE, 3, tipLength=0.5)


def _floor(site: Site, rng: random.Random) -> Image:
    left, right = site.side_x
    width, height = int((right - left) * _PX_PER_M), int((site.wall_z - _NEAR_Z) * _PX_PER_M)
    base = rng.choice(_FLOORS if site.indoor else _YARDS)
    image = _textured(width, height, base, rng)
    step = rng.choice((1.5, 3.0, 5.0))
    for k in range(1, int(max(width, height) / _PX_PER_M / step) + 1):
        at = int(k * step * _PX_PER_M)
        cv2.line(image, (at, 0), (at, height), shade(base, 0.88), 2)
        cv2.line(image, (0, at), (width, at), shade(base, 0.88), 2)
    for _ in range(rng.randint(2, 6)):
        _stain(image, base, rng)
    for _ in range(rng.randint(0, 3)):
        _tyre_marks(image, base, rng)
    if rng.random() < 0.5:
        _bays(image, rng)
    for zone in site.zones:
        x0, x1 = (int((x - left) * _PX_PER_M) for x in zone.x)
        y1, y0 = (int((site.wall_z - z) * _PX_PER_M) for z in zone.z)
        _mark_zone(image, zone, (x0, y0), (x1, y1))
    return image


def _stain(image: Image, base: Colour, rng: random.Random) -> None:
    """A dull patch, as old dirt leaves it: no edge, no shine."""
    height, width = image.shape[:2]
    centre = rng.randint(0, width - 1), rng.randint(0, height - 1)
    axes = rng.randint(8, 50), rng.randint(8, 36)
    layer = image.copy()
    cv2.ellipse(layer, centre, axes, rng.uniform(0, 180), 0, 360, shade(base, rng.uniform(0.78, 0.9)), -1)
    image[:] = cv2.addWeighted(cv2.GaussianBlur(layer, (0, 0), 5), 0.7, image, 0.3, 0)


def _tyre_marks(image: Image, base: Colour, rng: random.Random) -> None:
    height, width = image.shape[:2]
    x, y, radius = rng.randint(0, width), rng.randint(0, height), rng.randint(120, 500)
    start = rng.uniform(0, 360)
    for axis in (radius, radius + 44):
        end = start + rng.uniform(30, 90)
        cv2.ellipse(image, (x, y), (axis, axis), 0, start, end, shade(base, 0.82), 7)


def _bays(image: Image, rng: random.Random) -> None:
    height, width = image.shape[:2]
    x, y, count = rng.randint(0, width // 2), rng.randint(0, height // 2), rng.randint(2, 4)
    for k in range(count + 1):
        cv2.line(image, (x + k * 110, y), (x + k * 110, y + 180), _WHITE, 4)
    cv2.line(image, (x, y), (x + count * 110, y), _WHITE, 4)


def _mark_zone(floor: Image, zone: Zone, top_left: tuple[int, int], bottom_right: tuple[int, int]) -> None:
    """A green band for a walkway, hatching in front of an exit; corners in pixels."""
    (x0, y0), (x1, y1) = top_left, bottom_right
    area = floor[max(y0, 0) : y1, max(x0, 0) : x1]
    if zone.kind == "walkway":
        area[:] = cv2.addWeighted(area, 0.45, np.full_like(area, (110, 170, 90)), 0.55, 0)
    else:
        for k in range(y0 - y1, x1 - x0, 28):
            cv2.line(area, (k, 0), (k + y1 - y0, y1 - y0), _YELLOW, 6)
    cv2.rectangle(floor, (x0, y0), (x1, y1), _YELLOW, 6)
