"""Scenes built by hand."""

import math
from dataclasses import replace

from drawn_site.scene import Camera, Effect, Hour, Kind, Lens, Point, Scene, Site, Thing, Zone

CAMERA = Camera(height_m=4.5, pitch=math.atan(4.5 / 11))
"""The ground 11 m away is in the middle of its picture."""


def thing(kind: Kind, at: Point = (0.0, 11.0), **more: object) -> Thing:
    return Thing(track=0, kind=kind, at=at, **more)  # type: ignore[arg-type]


def scene(
    *things: Thing,
    effects: tuple[Effect, ...] = (),
    zones: tuple[Zone, ...] = (),
    hour: Hour = "day",
    camera: Camera = CAMERA,
    lens: Lens | None = None,
    time_s: float = 0.0,
) -> Scene:
    """A scene on an empty site; its things are numbered from 1."""
    return Scene(
        site=Site(look=3, indoor=True, wall_z=20.0, side_x=(-11.0, 11.0), zones=zones),
        camera=camera,
        hour=hour,
        lens=lens or Lens(),
        things=tuple(replace(one, track=k + 1) for k, one in enumerate(things)),
        effects=effects,
        time_s=time_s,
    )
