"""Ladders, cones, pallets, and the clutter of a site."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from .canvas import Colour
from .scene import Clutter, Thing
from .solids import Body, Face, Hull, Piece, Pose, ball_hull, box, lying, panel, upright

_WOOD: Colour = (110, 160, 196)
_GOODS: tuple[Colour, ...] = ((108, 150, 186), (150, 170, 184), (190, 190, 186), (150, 120, 80), (84, 130, 96))
_LADDER: tuple[Colour, ...] = ((196, 198, 200), (40, 190, 235), (40, 110, 235))
_CONE: tuple[Colour, ...] = ((20, 90, 250), (30, 60, 235), (20, 130, 250))
_BARRELS: tuple[Colour, ...] = ((150, 90, 40), (60, 110, 60), (80, 80, 84), (50, 60, 150))
_CRATES: tuple[Colour, ...] = ((90, 90, 84), (120, 96, 70), (70, 90, 78))
_CABINETS: tuple[Colour, ...] = ((150, 150, 146), (110, 104, 96))
_PIPES: tuple[Colour, ...] = ((130, 132, 136), (96, 100, 110), (150, 140, 120))


def ladder(thing: Thing) -> list[Body]:
    """A stepladder."""
    rng = random.Random(thing.look)
    colour, top = rng.choice(_LADDER), rng.uniform(1.6, 2.3)
    pose = Pose(thing.at, thing.heading)
    step = box(pose, (-0.22, top, -0.12), (0.22, top + 0.05, 0.12), (60, 60, 64))
    return [_leg(pose, 0.5, top, colour), _leg(pose, -0.5, top, colour), step]


def _leg(pose: Pose, foot: float, top: float, colour: Colour) -> list[Hull]:
    """One of a stepladder's two halves: its rails and rungs."""
    pieces = [_rod(pose, (x * 0.3, 0.03, foot), (x * 0.2, top, 0.04 * foot), 0.038, colour) for x in (-1.0, 1.0)]
    for k in range(1, int(top / 0.3)):
        share = k * 0.3 / top
        half, z = 0.3 - 0.1 * share, foot * (1 - 0.96 * share)
        pieces.append(_rod(pose, (-half, k * 0.3, z), (half, k * 0.3, z), 0.025, (150, 150, 152)))
    return pieces


def _rod(pose: Pose, start: Sequence[float], end: Sequence[float], radius: float, colour: Colour) -> Hull:
    a, b = pose([start, end])
    return ball_hull((a, radius), (b, radius), colour=colour, rounded=False)


def cone(thing: Thing) -> list[Body]:
    """A traffic cone, 0.75 m high."""
    rng = random.Random(thing.look)
    colour = rng.choice(_CONE)
    pose = Pose(thing.at, thing.heading)
    bands = rng.choice((((0.3, 0.45),), ((0.25, 0.36), (0.48, 0.58))))
    frusta = [_frustum(pose, 0.04, 0.75, colour), *(_frustum(pose, low, high, (235, 236, 236)) for low, high in bands)]
    return [box(pose, (-0.21, 0.0, -0.21), (0.21, 0.05, 0.21), (40, 40, 44)), frusta]


def _frustum(pose: Pose, low: float, high: float, colour: Colour) -> Hull:
    ring = [(math.cos(a), math.sin(a)) for a in np.linspace(0, 2 * math.pi, 10, endpoint=False)]
    points = [(r * c, y, r * s) for y in (low, high) for r in [0.17 - 0.185 * y] for c, s in ring]
    return Hull(points=pose(points), radii_m=np.zeros(len(points)), colour=colour, round=False)


def pallet(thing: Thing) -> list[Body]:
    """A pallet: alone, in a stack, or with goods on it."""
    rng = random.Random(thing.look)
    pose = Pose(thing.at, thing.heading)
    if thing.loaded:
        return [*pallet_boards(pose, 0.0), *goods(pose, 0.15, rng, stacked=True)]
    return [body for level in range(rng.choice((1, 2, 3, 5))) for body in pallet_boards(pose, 0.15 * level)]


def pallet_boards(pose: Pose, base: float) -> list[Body]:
    """The wood of one pallet, its lower side at a height in metres."""
    hollow = [upright(pose, (-0.44, base, z), (0.44, base + 0.1, z), (0, 0, z), (34, 42, 50)) for z in (-0.49, 0.49)]
    stringers: list[Piece] = []
    for x in (-0.6, -0.06, 0.48):
        stringers += box(pose, (x, base, -0.5), (x + 0.12, base + 0.11, 0.5), (76, 112, 140))
    top = base + 0.15
    deck = box(pose, (-0.6, base + 0.11, -0.5), (0.6, top, 0.5), _WOOD)
    gaps = [lying(pose, (-0.6, top, z - 0.02), (0.6, top, z + 0.02), (60, 86, 108)) for z in (-0.31, -0.1, 0.1, 0.31)]
    return [[*hollow, *stringers, *deck, *gaps]]


def goods(pose: Pose, base: float, rng: random.Random, *, stacked: bool) -> list[Body]:
    """Cartons or a wrapped block, standing at a height in metres."""
    colour = rng.choice(_GOODS)
    if rng.random() < 0.4 or not stacked:
        return [box(pose, (-0.52, base, -0.44), (0.52, base + rng.uniform(0.5, 0.95), 0.44), colour)]
    return [
        _carton(pose, x, base, z, base + rng.uniform(0.35, 0.9), colour) for x in (-0.54, 0.02) for z in (-0.46, 0.02)
    ]


def _carton(pose: Pose, x: float, low: float, z: float, high: float, colour: Colour) -> list[Face]:
    """A carton with a strip of tape; x and z are its left and near side."""
    tape = lying(pose, (x + 0.21, high, z), (x + 0.29, high, z + 0.44), (150, 190, 214))
    return [*box(pose, (x, low, z), (x + 0.5, high, z + 0.44), colour), tape]


def clutter(item: Clutter) -> list[Body]:
    """What lies about and has no class."""
    return _CLUTTER[item.kind](Pose(item.at, item.heading), random.Random(item.look))


def _barrel(pose: Pose, rng: random.Random) -> list[Body]:
    colour = rng.choice(_BARRELS)
    ring = [(0.29 * math.cos(a), 0.29 * math.sin(a)) for a in np.linspace(0, 2 * math.pi, 14, endpoint=False)]
    tank = [(x, y, z) for y in (0.0, 0.88) for x, z in ring]
    lid = [(x * 0.92, 0.88, z * 0.92) for x, z in ring]
    blue, green, red = (min(255, channel + 40) for channel in colour)
    return [
        [
            Hull(points=pose(tank), radii_m=np.zeros(len(tank)), colour=colour, round=False),
            panel(pose, lid, (0, 1, 0), (blue, green, red)),
        ]
    ]


def _crate(pose: Pose, rng: random.Random) -> list[Body]:
    half, high = rng.uniform(0.3, 0.6), rng.uniform(0.4, 0.9)
    return [box(pose, (-half, 0.0, -half), (half, high, half), rng.choice(_CRATES))]


def _cabinet(pose: Pose, rng: random.Random) -> list[Body]:
    return [box(pose, (-0.5, 0.0, -0.3), (0.5, rng.uniform(1.3, 2.0), 0.3), rng.choice(_CABINETS))]


def _pipes(pose: Pose, rng: random.Random) -> list[Body]:
    ends = pose([(x, 0.1 + 0.17 * row, z) for row in range(2) for x in (-0.25, 0.0, 0.25) for z in (-1.2, 1.2)])
    colour = rng.choice(_PIPES)
    return [
        [ball_hull((near, 0.1), (far, 0.1), colour=colour) for near, far in zip(ends[::2], ends[1::2], strict=True)]
    ]


_CLUTTER: dict[str, Callable[[Pose, random.Random], list[Body]]] = {
    "barrel": _barrel,
    "crate": _crate,
    "cabinet": _cabinet,
    "pipes": _pipes,
}
