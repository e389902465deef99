"""Convex pieces that things are built from, and how they are lit and drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from .camera import Projection
from .canvas import Canvas, Colour

Points = NDArray[np.float64]

_CIRCLE = np.array([[math.cos(a), math.sin(a)] for a in np.linspace(0, 2 * math.pi, 14, endpoint=False)])


@dataclass(frozen=True, kw_only=True)
class Hull:
    """The convex hull of balls: limbs, heads, torsos."""

    points: Points
    """Centres, shape (n, 3)."""
    radii_m: NDArray[np.float64]
    """Shape (n,)."""
    colour: Colour
    upper: bool = False
    """Belongs to a worker's head or torso."""
    round: bool = True
    """A lighter middle makes it look round."""


@dataclass(frozen=True, kw_only=True)
class Face:
    """A flat convex polygon seen from the side that its normal points to."""

    points: Points
    """Corners in order, shape (n, 3)."""
    normal: Points
    """Points to where the face is seen from, shape (3,); the longer, the more light falls on it."""
    colour: Colour


Piece = Hull | Face
Body = Sequence[Piece]
"""Pieces drawn in their order, such as the faces of a box and the marks on them."""


def ball_hull(
    *balls: tuple[Sequence[float] | Points, float], colour: Colour, upper: bool = False, rounded: bool = True
) -> Hull:
    """Hull of balls, each given by centre and radius in metres."""
    return Hull(
        points=np.array([centre for centre, _ in balls], np.float64),
        radii_m=np.array([radius for _, radius in balls]),
        colour=colour,
        upper=upper,
        round=rounded,
    )


@dataclass(frozen=True)
class Pose:
    """Where a thing stands: its own (right, up, forward) coordinates to the world's."""

    at: tuple[float, float]
    heading: float

    def __call__(self, points: Iterable[Sequence[float]]) -> Points:
        """Turn and move points, shape (n, 3), in metres."""
        own = np.asarray(list(points), np.float64)
        moved: Points = own @ self.matrix + np.array([self.at[0], 0.0, self.at[1]])
        return moved

    @property
    def matrix(self) -> Points:
        """Rows are the thing's right, up and forward in the world."""
        sin, cos = math.sin(self.heading), math.cos(self.heading)
        return np.array([[cos, 0.0, -sin], [0.0, 1.0, 0.0], [sin, 0.0, cos]])


_BOX_FACES = (
    ((0, 1, 3, 2), (-1, 0, 0)),
    ((4, 5, 7, 6), (1, 0, 0)),
    ((0, 1, 5, 4), (0, -1, 0)),
    ((2, 3, 7, 6), (0, 1, 0)),
    ((0, 2, 6, 4), (0, 0, -1)),
    ((1, 3, 7, 5), (0, 0, 1)),
)


def box(pose: Pose, low: Sequence[float], high: Sequence[float], colour: Colour) -> list[Face]:
    """A box between two opposite corners (right, up, forward) in the thing's coordinates; its underside is left out."""
    corners = pose([(x, y, z) for x in (low[0], high[0]) for y in (low[1], high[1]) for z in (low[2], high[2])])
    return [
        Face(points=corners[list(at)], normal=np.array(normal, np.float64) @ pose.matrix, colour=colour)
        for at, normal in _BOX_FACES
        if normal[1] >= 0
    ]


def panel(pose: Pose, corners: Iterable[Sequence[float]], normal: Sequence[float], colour: Colour) -> Face:
    """A flat mark on a face, such as a window, in the thing's coordinates."""
    return Face(points=pose(corners), normal=np.asarray(normal, np.float64) @ pose.matrix, colour=colour)


def upright(pose: Pose, low: Sequence[float], high: Sequence[float], normal: Sequence[float], colour: Colour) -> Face:
    """A rectangular mark on a side, between two opposite corners that share their x or their z."""
    (x0, y0, z0), (x1, y1, z1) = low, high
    return panel(pose, [(x0, y0, z0), (x1, y0, z1), (x1, y1, z1), (x0, y1, z0)], normal, colour)


def lying(pose: Pose, low: Sequence[float], high: Sequence[float], colour: Colour) -> Face:
    """A rectangular mark on a top, between two opposite corners that share their height."""
    (x0, y, z0), (x1, _, z1) = low, high
    return panel(pose, [(x0, y, z0), (x1, y, z0), (x1, y, z1), (x0, y, z1)], (0, 1, 0), colour)


def wheel(pose: Pose, centre: Sequence[float], radius: float, width: float) -> list[Piece]:
    """A wheel whose axle lies across the thing."""
    x, y, z = centre
    rim = [(y + radius * s, z + radius * c) for c, s in _CIRCLE]
    tyre = Hull(
        points=pose([(x + dx, a, b) for dx in (-width / 2, width / 2) for a, b in rim]),
        radii_m=np.zeros(2 * len(rim)),
        colour=(34, 32, 32),
        round=False,
    )
    side = 1.0 if x > 0 else -1.0
    hub = [(x + side * width / 2, y + 0.5 * radius * s, z + 0.5 * radius * c) for c, s in _CIRCLE]
    return [tyre, panel(pose, hub, (side, 0, 0), (120, 122, 126))]


def shade(colour: Colour, factor: float) -> Colour:
    """A colour made lighter or darker."""
    b, g, r = (min(255, max(0, round(channel * factor))) for channel in colour)
    return b, g, r


class Light:
    """Parallel light.

    Args:
        azimuth: Where it comes from, radians from the z axis to the x axis.
        elevation: Radians above the ground.
    """

    def __init__(self, azimuth: float, elevation: float) -> None:
        flat = math.cos(elevation)
        self.direction = np.array([flat * math.sin(azimuth), math.sin(elevation), flat * math.cos(azimuth)])

    def on(self, normal: Points) -> float:
        """Brightness of a face, 0.62 to 1.1."""
        return 0.62 + 0.48 * max(0.0, float(normal @ self.direction))

    def shadow(self, points: Points) -> Points:
        """Where points, shape (n, 3), throw their shadow on the ground."""
        reach = points[:, 1:2] / self.direction[1]
        moved: Points = points - reach * self.direction
        moved[:, 1] = 0.0
        return moved


_Placed = list[tuple[Piece, Points, NDArray[np.float64]]]
"""A body's pieces, each with the pixels and depths of its points."""


def draw(bodies: Sequence[Body], canvas: Canvas, project: Projection, light: Light, owner: int) -> None:
    """Draw one thing's bodies, the farthest first, as the given owner (0: nobody's)."""
    for body in _farthest_first(bodies, project):
        for piece, pixels, depth in body:
            canvas.owner = owner
            if isinstance(piece, Hull):
                canvas.owner += 1 if owner and piece.upper else 0
                _draw_hull(piece, canvas, pixels, project.focal_px / depth)
            elif float(project.toward(piece.points)[0] @ piece.normal) > 0:
                canvas.polygon(pixels, shade(piece.colour, light.on(piece.normal)))


def _farthest_first(bodies: Sequence[Body], project: Projection) -> list[_Placed]:
    pieces = [piece for body in bodies for piece in body]
    pixels, depth = project(np.concatenate([piece.points for piece in pieces]))
    ends = np.cumsum([len(piece.points) for piece in pieces])[:-1]
    parts = iter(zip(pieces, np.split(pixels, ends), np.split(depth, ends), strict=True))
    placed: list[_Placed] = [[next(parts) for _ in body] for body in bodies]
    return sorted(placed, key=lambda body: -float(np.concatenate([depths for _, _, depths in body]).mean()))


def _draw_hull(piece: Hull, canvas: Canvas, pixels: Points, px_per_m: NDArray[np.float64]) -> None:
    radii = piece.radii_m * px_per_m
    canvas.polygon(_hull_outline(pixels, radii), shade(piece.colour, 0.84 if piece.round else 0.95))
    if piece.round and radii.max() > 1.5:
        lit = pixels + np.array([-0.18, -0.22]) * radii[:, None]
        canvas.decorate(_hull_outline(lit, radii * 0.62), piece.colour)


def _hull_outline(pixels: Points, radii: NDArray[np.float64]) -> Points:
    """Outline, shape (n, 2), of the convex hull of circles; of the centres alone where all radii are 0."""
    spread = pixels if not radii.any() else (pixels[:, None] + radii[:, None, None] * _CIRCLE).reshape(-1, 2)
    hull: Points = cv2.convexHull(spread.astype(np.float32))[:, 0].astype(np.float64)
    return hull


def shadow_outlines(bodies: Sequence[Body], project: Projection, light: Light) -> list[Points]:
    """Outlines in pixels, each (n, 2), of the shadows that bodies throw on the ground."""
    outlines = []
    for body in bodies:
        points = np.concatenate([piece.points for piece in body])
        radii = np.concatenate(
            [piece.radii_m if isinstance(piece, Hull) else np.zeros(len(piece.points)) for piece in body]
        )
        pixels, depth = project(light.shadow(points))
        outlines.append(_hull_outline(pixels, radii * project.focal_px / depth * 0.8))
    return outlines
