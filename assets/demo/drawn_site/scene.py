"""What a drawn site holds: plain values that are drawn, judged and put into words.

World coordinates are metres: x to the right of the camera's foot, y up, z away from it; the ground is y = 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

Kind = Literal["worker", "forklift", "truck", "ladder", "cone", "pallet"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Classes of the detector, in the order of their ids. They name things, never states."""

VEHICLES: frozenset[Kind] = frozenset({"forklift", "truck"})

Posture = Literal["stand", "walk", "work", "down"]
EffectKind = Literal["fire", "smoke", "spill"]
Hour = Literal["day", "dusk", "night"]
Point = tuple[float, float]
"""Ground position (x, z) in metres."""


@dataclass(frozen=True, kw_only=True)
class Camera:
    """A fixed camera above the origin."""

    height_m: float
    pitch: float
    """Radians below the horizontal."""
    yaw: float = 0.0
    """Radians to the right."""
    focal: float = 0.9
    """Focal length as a share of the picture's width."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """One object that the detector has a class for."""

    track: int
    kind: Kind
    at: Point
    heading: float = 0.0
    """Radians; 0 faces away from the camera, pi / 2 to the right."""
    look: int = 0
    """Seed of colours and of shape."""
    posture: Posture = "stand"
    """Workers only, as are the next four."""
    helmet: bool = True
    vest: bool = True
    phase: float = 0.0
    """Of the gait or the working motion, in cycles."""
    fallen: float = 1.0
    """With the posture `down`: 0 still upright, 1 on the ground."""
    loaded: bool = False
    """Forklifts and pallets: carries goods."""

    @property
    def down(self) -> bool:
        """Whether it is a person who is nearer to lying than to standing."""
        return self.posture == "down" and self.fallen >= 0.5


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Fire, smoke or a spill."""

    kind: EffectKind
    at: Point
    size_m: float
    """Height of the flames or of the smoke, or the spill's mean radius."""
    look: int = 0


@dataclass(frozen=True, kw_only=True)
class Zone:
    """A rectangle of ground that must stay free, sides along x and z."""

    kind: Literal["walkway", "exit"]
    x: Point
    """Left and right edge, in metres."""
    z: Point
    """Near and far edge, in metres; an exit's door is at its far edge."""


@dataclass(frozen=True, kw_only=True)
class Clutter:
    """Something the detector has no class for."""

    kind: Literal["barrel", "crate", "pipes", "cabinet"]
    at: Point
    heading: float
    look: int


@dataclass(frozen=True, kw_only=True)
class Site:
    """The place itself, which does not change during a video."""

    look: int
    indoor: bool
    wall_z: float
    """Distance of the back wall or fence, in metres."""
    side_x: Point
    """Position of the side walls, left (negative) and right."""
    zones: tuple[Zone, ...] = ()
    clutter: tuple[Clutter, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lens:
    """What camera and recording do to the picture."""

    blur_px: float = 0.0
    """Standard deviation, in pixels of a picture 640 wide."""
    noise: float = 0.0
    """Standard deviation in grey levels of 255."""
    jpeg: int | None = None
    """Quality 1 to 95; None leaves the picture as it is."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One moment."""

    site: Site
    camera: Camera
    hour: Hour
    things: tuple[Thing, ...]
    effects: tuple[Effect, ...] = ()
    lens: Lens = field(default_factory=Lens)
    sun: float = 0.6
    """Direction the light comes from, radians from the camera's axis."""
    time_s: float = 0.0
    """Moves flames and smoke."""


FOOTPRINT_M: dict[Kind, Point] = {
    "worker": (0.5, 0.5),
    "forklift": (1.2, 3.2),
    "truck": (2.3, 6.2),
    "ladder": (0.7, 1.1),
    "cone": (0.45, 0.45),
    "pallet": (1.2, 1.0),
}
"""Width across and length along the heading; a worker on the ground is `DOWN_M` long instead.

Forklifts are drawn up to 0.25 m off it: their forks reach out a little, and behind a little is empty."""

DOWN_M = 1.75


def footprint(thing: Thing) -> tuple[Point, Point]:
    """Half extents (across, along) in metres and heading's unit vector (x, z) of the ground that a thing covers."""
    width, length = FOOTPRINT_M[thing.kind]
    if thing.down:
        length = DOWN_M
    return (width / 2, length / 2), (math.sin(thing.heading), math.cos(thing.heading))
