"""Places and cameras drawn by lot."""

from __future__ import annotations

import math
import random
from typing import Literal

from .scene import Camera, Clutter, Point, Site, Zone

CLUTTER: tuple[Literal["barrel", "crate", "pipes", "cabinet"], ...] = (
    "barrel", "barrel", "crate", "pipes", "cabinet"
)  # fmt: skip


def random_camera(rng: random.Random) -> Camera:
    """A camera that looks down at a site."""
    height = rng.uniform(3.0, 6.2)
    return Camera(
        height_m=height,
        pitch=math.atan(height / rng.uniform(9.0, 13.5)),
        yaw=rng.uniform(-0.16, 0.16),
        focal=rng.uniform(0.78, 1.02),
    )


def random_site(rng: random.Random) -> Site:
    """A place with or without a walkway and an exit, with clutter along its walls."""
    wall_z, side_x = rng.uniform(17.0, 23.0), (-rng.uniform(8.0, 13.0), rng.uniform(8.0, 13.0))
    zones: list[Zone] = []
    if rng.random() < 0.6:
        x = rng.uniform(-4.5, 4.5)
        zones.append(Zone(kind="walkway", x=(x - 0.8, x + 0.8), z=(4.0, wall_z - rng.uniform(2.2, 4.0))))
    if rng.random() < 0.55:
        x = rng.uniform(-5.5, 5.5)
        zones.append(Zone(kind="exit", x=(x - 1.0, x + 1.0), z=(wall_z - 1.8, wall_z)))
    clutter = [_random_clutter(wall_z, side_x, rng) for _ in range(rng.randint(0, 6))]
    return Site(
        look=rng.getrandbits(24), indoor=rng.random() < 0.65, wall_z=wall_z, side_x=side_x, zones=tuple(zones),
        clutter=tuple(item for item in clutter if not any(_obstructs(item, zone) for zone in zones)),
    )  # fmt: skip


def _random_clutter(wall_z: float, side_x: Point, rng: random.Random) -> Clutter:
    left, right = side_x[0] + 0.8, side_x[1] - 0.8
    at = rng.uniform(left, right), wall_z - rng.uniform(0.6, 1.4)
    if rng.random() < 0.3:
        at = rng.choice((left, right)), rng.uniform(9.0, wall_z - 1)
    return Clutter(kind=rng.choice(CLUTTER), at=at, heading=rng.uniform(-0.4, 0.4), look=rng.getrandbits(24))


def _obstructs(item: Clutter, zone: Zone) -> bool:
    return zone.x[0] - 1.4 < item.at[0] < zone.x[1] + 1.4 and item.at[1] > zone.z[0] - 1.2
