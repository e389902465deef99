"""Forklifts and trucks."""

from __future__ import annotations

import random

from .canvas import Colour
from .props import goods, pallet_boards
from .scene import Thing
from .solids import Body, Piece, Pose, ball_hull, box, panel, upright, wheel

_FORKLIFT: tuple[Colour, ...] = ((20, 170, 240), (20, 110, 235), (50, 60, 205), (70, 140, 60), (60, 190, 215))
_CAB: tuple[Colour, ...] = ((220, 222, 224), (60, 60, 190), (160, 90, 40), (60, 130, 70), (40, 160, 225))
_CARGO: tuple[Colour, ...] = ((228, 228, 226), (190, 150, 110), (120, 122, 128), (90, 120, 170), (110, 150, 120))
_BANDS: tuple[Colour, ...] = ((60, 60, 190), (150, 90, 40), (70, 130, 70))
_GLASS: Colour = (92, 78, 62)
_DARK: Colour = (52, 50, 50)
_STEEL: Colour = (96, 98, 104)
_LAMP: Colour = (190, 235, 250)
_AMBER: Colour = (30, 160, 255)


def forklift(thing: Thing) -> list[Body]:
    """Bodies of a forklift; its forks point along the heading."""
    rng = random.Random(thing.look)
    colour = rng.choice(_FORKLIFT)
    lift = rng.uniform(0.15, 0.5) if thing.loaded else 0.08
    height = rng.uniform(2.15, 2.5)
    pose = Pose(thing.at, thing.heading)
    bodies = [*_forklift_body(pose, colour), *_mast(pose, lift, height)]
    if thing.loaded:
        x, _, z = pose([(0.0, 0.0, 1.32)])[0]
        carried = Pose((x, z), thing.heading)
        bodies += [*pallet_boards(carried, lift + 0.06), *goods(carried, lift + 0.21, rng, stacked=False)]
    return bodies


def _forklift_body(pose: Pose, colour: Colour) -> list[Body]:
    back = (0, 0, -1)
    foot, top = pose([(0.3, 2.14, -0.6), (0.3, 2.2, -0.6)])
    return [
        box(pose, (-0.55, 0.25, -0.9), (0.55, 1.0, 0.5), colour),
        box(pose, (-0.52, 0.3, -1.35), (0.52, 1.08, -0.9), _DARK),
        [
            *box(pose, (-0.48, 1.0, -0.75), (0.48, 2.0, 0.42), _GLASS),
            upright(pose, (-0.48, 1.9, -0.75), (0.48, 2.0, -0.75), back, colour),
            upright(pose, (-0.06, 1.0, -0.75), (0.06, 2.0, -0.75), back, colour),
            *(upright(pose, (x, 1.0, -0.2), (x, 2.0, -0.12), (x, 0, 0), colour) for x in (-0.48, 0.48)),
        ],
        box(pose, (-0.54, 2.0, -0.82), (0.54, 2.1, 0.48), colour),
        [ball_hull((foot, 0.07), (top, 0.06), colour=_AMBER)],
    ]


def _mast(pose: Pose, lift: float, height: float) -> list[Body]:
    """Rails, forks and wheels."""
    bodies: list[Body] = []
    for x in (-0.3, 0.3):
        bodies += [
            box(pose, (x - 0.06, 0.05, 0.55), (x + 0.06, height, 0.7), _STEEL),
            box(pose, (x - 0.06, lift, 0.7), (x + 0.06, lift + 0.06, 1.75), _STEEL),
            wheel(pose, (x * 1.75, 0.33, 0.25), 0.33, 0.22),
            wheel(pose, (x * 1.75, 0.27, -0.85), 0.27, 0.22),
        ]
    return [
        *bodies,
        box(pose, (-0.45, lift + 0.05, 0.68), (0.45, lift + 0.5, 0.74), _STEEL),
        box(pose, (-0.3, height - 0.1, 0.57), (0.3, height, 0.68), _STEEL),
    ]


def truck(thing: Thing) -> list[Body]:
    """Bodies of a truck; its cab points along the heading."""
    rng = random.Random(thing.look)
    cab, cargo = rng.choice(_CAB), rng.choice(_CARGO)
    pose = Pose(thing.at, thing.heading)
    bodies: list[Body] = [box(pose, (-0.5, 0.5, -3.0), (0.5, 0.85, 2.9), _DARK), _cab(pose, cab)]
    kind = rng.choice(("van", "flat", "tipper"))
    if kind == "van":
        bodies.append(_van(pose, cargo, rng))
    else:
        bodies += _flatbed(pose, rng) if kind == "flat" else _tipper(pose, cargo)
    for x in (-1.0, 1.0):
        bodies += [wheel(pose, (x, 0.48, z), 0.48, 0.3) for z in (2.15, -1.5, -2.5)]
    return bodies


def _flatbed(pose: Pose, rng: random.Random) -> list[Body]:
    bodies: list[Body] = [box(pose, (-1.12, 0.85, -3.1), (1.12, 1.0, 1.35), (90, 110, 130))]
    for z in (-2.9, -1.5, -0.1):
        top = 1.0 + rng.uniform(0.35, 0.8)
        bodies.append(box(pose, (-0.95, 1.0, z), (0.95, top, z + 1.1), rng.choice(_CARGO)))
    return bodies


def _tipper(pose: Pose, colour: Colour) -> list[Body]:
    heap = pose([(x, 1.55, z) for x in (-0.5, 0.5) for z in (-2.2, 0.4)])
    return [
        box(pose, (-1.12, 0.85, -3.1), (1.12, 1.75, 1.3), colour),
        [ball_hull(*((point, 0.4) for point in heap), colour=(96, 142, 176))],
    ]


def _cab(pose: Pose, colour: Colour) -> list[Piece]:
    z, ahead = 3.05, (0, 0, 1)
    windscreen = [(-1.0, 1.6, z), (1.0, 1.6, z), (0.92, 2.45, z), (-0.92, 2.45, z)]
    pieces: list[Piece] = [
        *box(pose, (-1.12, 0.55, 1.5), (1.12, 2.65, z), colour),
        panel(pose, windscreen, ahead, _GLASS),
        upright(pose, (-0.6, 0.95, z), (0.6, 1.4, z), ahead, _DARK),
        upright(pose, (-1.12, 0.55, z), (1.12, 0.8, z), ahead, _DARK),
    ]
    pieces += [upright(pose, (x - 0.15, 0.9, z), (x + 0.15, 1.1, z), ahead, _LAMP) for x in (-0.85, 0.85)]
    for x in (-1.12, 1.12):
        window = [(x, 1.6, 1.9), (x, 1.6, 2.85), (x, 2.4, 2.75), (x, 2.4, 1.9)]
        pieces.append(panel(pose, window, (x, 0, 0), _GLASS))
    return pieces


def _van(pose: Pose, colour: Colour, rng: random.Random) -> list[Piece]:
    top = rng.uniform(2.8, 3.2)
    z, behind = -3.1, (0, 0, -1)
    band = rng.choice(_BANDS)
    return [
        *box(pose, (-1.15, 0.85, z), (1.15, top, 1.35), colour),
        upright(pose, (-0.04, 0.95, z), (0.04, top - 0.1, z), behind, _STEEL),
        *(upright(pose, (x, 0.9, z), (x + 0.2, 1.05, z), behind, (50, 50, 200)) for x in (-1.1, 0.9)),
        *(upright(pose, (x, 1.5, z), (x, 1.75, 1.35), (x, 0, 0), band) for x in (-1.15, 1.15)),
    ]
