"""A person: a skeleton in a posture, dressed."""

from __future__ import annotations

import math
import random

from .canvas import Colour
from .scene import Posture, Thing
from .solids import Body, Hull, Points, Pose, ball_hull, shade

_SKIN: tuple[Colour, ...] = ((150, 180, 224), (118, 150, 198), (92, 122, 176), (64, 88, 132), (46, 62, 96))
_HAIR: tuple[Colour, ...] = ((28, 26, 26), (40, 52, 74), (60, 84, 118), (120, 122, 126), (36, 40, 92))
_CLOTHES: tuple[Colour, ...] = ((92, 60, 44), (70, 70, 72), (48, 52, 58), (64, 84, 62), (122, 96, 70), (56, 44, 92))
_TROUSERS: tuple[Colour, ...] = ((84, 58, 40), (58, 56, 54), (70, 84, 96), (40, 40, 42))
_HELMETS: tuple[Colour, ...] = ((40, 200, 250), (235, 238, 240), (30, 120, 250), (200, 110, 30), (50, 50, 225))
_VESTS: tuple[Colour, ...] = ((40, 245, 205), (30, 235, 245), (20, 125, 255))
_STRIPE: Colour = (225, 228, 228)

Joint = tuple[float, float, float]
Joints = dict[str, Joint]

_SIDES = (("l", -1.0), ("r", 1.0))
_TRUNK: Joints = {
    "mid_l": (-0.1, 1.1, 0.06),
    "mid_r": (0.1, 1.1, 0.06),
    "belt_l": (-0.14, 1.12, 0.0),
    "belt_r": (0.14, 1.12, 0.0),
    "neck": (0.0, 1.48, 0.02),
    "head": (0.0, 1.61, 0.04),
    "crown": (0.0, 1.66, 0.03),
    "face": (0.0, 1.6, 0.17),
}
"""What is the same in every posture, but for the way it leans."""


def build(thing: Thing) -> list[Body]:
    """Bodies of a worker."""
    rng = random.Random(thing.look)
    skin, hair, shirt = rng.choice(_SKIN), rng.choice(_HAIR), rng.choice(_CLOTHES)
    trousers, helmet, vest = rng.choice(_TROUSERS), rng.choice(_HELMETS), rng.choice(_VESTS)
    joints = _joints(thing.posture, thing.phase, rng)
    if thing.posture == "down":
        joints = _between(joints, _lie(joints, rng), thing.fallen)
    pose = Pose(thing.at, thing.heading)
    world = dict(zip(joints, pose(joints.values()), strict=True))

    def limb(*parts: tuple[str, float], colour: Colour) -> Hull:
        return ball_hull(*((world[name], radius) for name, radius in parts), colour=colour)

    bodies: list[Body] = []
    for side in "lr":
        bodies += [
            [limb((f"hip_{side}", 0.1), (f"knee_{side}", 0.075), colour=trousers)],
            [limb((f"knee_{side}", 0.075), (f"foot_{side}", 0.055), colour=trousers)],
            [limb((f"foot_{side}", 0.055), (f"toe_{side}", 0.05), colour=(40, 44, 52))],
            [
                limb((f"shoulder_{side}", 0.075), (f"elbow_{side}", 0.055), colour=shirt),
                limb((f"elbow_{side}", 0.055), (f"hand_{side}", 0.045), colour=shirt),
                limb((f"hand_{side}", 0.055), colour=skin),
            ],
        ]
    torso = _torso(world, shirt, vest if thing.vest else None)
    return [*bodies, torso, _head(world, skin, helmet if thing.helmet else None, hair)]


def _torso(world: dict[str, Points], shirt: Colour, vest: Colour | None) -> list[Hull]:
    def hull(colour: Colour, grow: float, *names: tuple[str, float]) -> Hull:
        return ball_hull(*((world[n], r * grow) for n, r in names), colour=colour, upper=True)

    corners = (("shoulder_l", 0.09), ("shoulder_r", 0.09), ("hip_l", 0.11), ("hip_r", 0.11))
    pieces = [hull(shirt, 1.0, *corners)]
    if vest is not None:
        pieces.append(hull(vest, 1.14, *corners))
        stripes = (("belt_l", "belt_r"), ("shoulder_l", "mid_l"), ("shoulder_r", "mid_r"))
        pieces += [
            ball_hull((world[a], 0.035), (world[b], 0.035), colour=_STRIPE, upper=True, rounded=False)
            for a, b in stripes
        ]
    return pieces


def _head(world: dict[str, Points], skin: Colour, helmet: Colour | None, hair: Colour) -> list[Hull]:
    head, crown, face = world["head"], world["crown"], world["face"]
    neck = ball_hull((world["neck"], 0.055), (head, 0.06), colour=shade(skin, 0.85), upper=True)
    ball = ball_hull((head, 0.115), colour=skin, upper=True)
    if helmet is None:
        back = head - 0.35 * (face - head)
        return [neck, ball, ball_hull((crown, 0.105), (back, 0.1), colour=hair, upper=True)]
    up = crown - head
    dome = ball_hull((head + 1.1 * up, 0.14), (head + 0.75 * up, 0.15), colour=helmet, upper=True)
    rear, front = head + 0.7 * up, head + 0.7 * up + 0.9 * (face - head)
    brim = ball_hull((rear, 0.13), (front, 0.07), colour=shade(helmet, 0.86), upper=True)
    return [neck, ball, brim, dome]


def _joints(posture: Posture, phase: float, rng: random.Random) -> Joints:
    """Joints as (right, up, forward) in metres."""
    swing = math.sin(2 * math.pi * phase)
    lean = {"walk": 0.08, "work": 0.45 + 0.18 * rng.random(), "stand": 0.02, "down": 0.0}[posture]
    hip_y = 0.92 - (0.1 if posture == "work" else 0.0) - 0.02 * abs(swing) * (posture == "walk")
    upper = dict(_TRUNK)
    for side, sign in _SIDES:
        upper[f"shoulder_{side}"] = (sign * 0.19, 1.4, 0.0)
        upper[f"elbow_{side}"], upper[f"hand_{side}"] = _arm(posture, sign, swing, rng)
    return _legs(posture, phase, hip_y) | {name: _lean(point, lean, hip_y) for name, point in upper.items()}


def _legs(posture: Posture, phase: float, hip_y: float) -> Joints:
    swing, rise = math.sin(2 * math.pi * phase), math.cos(2 * math.pi * phase)
    stride = {"walk": 0.55, "work": 0.12, "stand": 0.04, "down": 0.0}[posture]
    spread, bent = (0.17, 0.14) if posture == "work" else (0.11, 0.03)
    joints: Joints = {}
    for side, sign in _SIDES:
        forward = sign * swing * stride
        lift = max(0.0, sign * rise) * 0.14 if posture == "walk" else 0.0
        joints[f"hip_{side}"] = (sign * 0.1, hip_y, 0.0)
        joints[f"knee_{side}"] = (sign * spread, 0.5, forward * 0.45 + bent + lift * 0.6)
        joints[f"foot_{side}"] = (sign * spread, 0.07 + lift, forward * 0.95 - lift)
        joints[f"toe_{side}"] = (sign * (spread + 0.02), 0.05 + lift, forward * 0.95 + 0.2 - lift)
    return joints


def _arm(posture: Posture, sign: float, swing: float, rng: random.Random) -> tuple[Joint, Joint]:
    if posture == "work":
        reach = 0.08 * swing * sign
        return (sign * 0.28, 1.15, 0.2 + reach), (sign * 0.14, 1.0 + reach, 0.48)
    if posture == "walk":
        back = -sign * swing
        return (sign * 0.27, 1.14, 0.16 * back), (sign * 0.27, 0.93, 0.34 * back + 0.06)
    raised = rng.random() < 0.25
    if raised and posture == "stand":
        return (sign * 0.3, 1.17, 0.14), (sign * 0.16, 1.28, 0.34)
    return (sign * 0.28, 1.13, 0.0), (sign * 0.29, 0.88, 0.06)


def _lean(point: Joint, angle: float, pivot_y: float) -> Joint:
    x, y, z = point
    up = y - pivot_y
    sin, cos = math.sin(angle), math.cos(angle)
    return x, pivot_y + up * cos - z * sin, up * sin + z * cos


def _lie(joints: Joints, rng: random.Random) -> Joints:
    """Lay a standing skeleton on its back or its face, head along the heading, limbs spread.

    The lots are drawn in the joints' order, which therefore belongs to a seed's look.
    """
    side = rng.choice((-1.0, 1.0))
    spread = {name: rng.uniform(0.05, 0.32) for name in joints}
    laid: Joints = {}
    for name, (x, y, z) in joints.items():
        outward = math.copysign(1.0, x)
        if name.startswith(("hand", "elbow")):
            x += outward * spread[f"elbow_{name[-1]}"] * (1.7 if name.startswith("hand") else 1.0)
        if name.startswith(("knee", "foot", "toe")):
            x += outward * spread[f"knee_{name[-1]}"] * {"knee": 0.5, "foot": 0.6, "toe": 0.8}[name[:-2]]
        laid[name] = (x, 0.13 + 0.55 * side * z if not name.startswith("toe") else 0.12, y - 0.9)
    return laid


def _between(upright: Joints, laid: Joints, share: float) -> Joints:
    """A body on its way to the ground, its feet slipping back."""

    def way(name: str, axis: int) -> float:
        return upright[name][axis] + share * (laid[name][axis] - upright[name][axis])

    return {name: (way(name, 0), way(name, 1), way(name, 2)) for name in upright}
