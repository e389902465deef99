"""Clips: a cast on one site, and what happens to it, told as a scene for each moment."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from .actors import Actor
from .place import CLUTTER, random_site
from .scene import Camera, Clutter, Effect, Hour, Kind, Lens, Point, Scene, Site, Thing, Zone

FPS = 12


@dataclass(frozen=True, kw_only=True)
class Story:
    """A told clip."""

    duration_s: float
    scene_at: Callable[[float], Scene]
    """The scene at a time in seconds from the start."""


def tell(seed: int) -> Story:
    """The story of a seed: the same cast and the same hazards, in another order, place and light."""
    return _Teller(random.Random(f"story {seed}")).story()


_HOME: Point = (1.5, 16.2)
_POST: Point = (-3.4, 10.6)
_DOOR: Point = (7.2, 7.6)
_AISLE: Point = (4.8, 10.2)
_PROPS = (
    Thing(track=0, kind="truck", at=(-6.8, 17.7), heading=1.75),
    Thing(track=0, kind="ladder", at=(3.5, 18.3), heading=0.4),
    Thing(track=0, kind="cone", at=(-4.9, 9.4)),
    Thing(track=0, kind="cone", at=(7.2, 14.0), heading=0.3),
    Thing(track=0, kind="pallet", at=(-6.1, 13.9), heading=0.25, loaded=True),
    Thing(track=0, kind="pallet", at=(7.6, 16.6), heading=0.5, loaded=True),
)


class _Teller:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._mirror = rng.choice((1.0, -1.0))
        self._effects: list[tuple[float, float, Callable[[float], Effect]]] = []
        self._clock = 2.6
        self._forklift = self._actor("forklift", _HOME, heading=2.6)
        self._fitter = self._actor("worker", _POST, heading=-0.5)
        self._walker = self._actor("worker", _AISLE, heading=0.0)
        self._visitor = self._actor("worker", _DOOR, heading=-1.6)
        self._cast = [self._forklift, self._fitter, self._walker, self._visitor]
        self._forklift.go(0.0, _HOME, "stand", heading=2.6)
        self._fitter.go(0.0, _POST, "work", heading=-0.7)
        self._walker.go(0.0, (4.9, 12.6))
        self._walker.go(1.8, _AISLE, "stand", heading=-1.8)
        self._visitor.go(0.0, _DOOR, "stand", heading=-1.6)

    def story(self) -> Story:
        plots = [
            self._missing_ppe,
            self._vehicle_proximity,
            self._spill,
            self._blocked_path,
            self._fire,
            self._person_down,
        ]
        self._rng.shuffle(plots)
        for plot in plots:
            plot()
        return Story(duration_s=self._clock, scene_at=self._scene_at(*self._stage()))

    def _actor(self, kind: Kind, at: Point, heading: float) -> Actor:
        return Actor(Thing(track=0, kind=kind, at=at, heading=heading, look=self._rng.getrandbits(24)))

    def _begin(self, actor: Actor, lead_s: float) -> float:
        """When a hazard may begin whose actor sets out so long before it."""
        return max(self._clock, actor.free_s + lead_s + 0.1)

    def _missing_ppe(self) -> None:
        """The visitor comes in bareheaded, puts a helmet on, and leaves again."""
        t, here = self._begin(self._visitor, 1.6), (0.6, 8.6)
        self._visitor.go(t - 1.6, _DOOR, helmet=False)
        self._visitor.go(t + 2.2, here, "stand", heading=-2.6, helmet=False)
        self._visitor.go(t + 3.8, here, "stand", heading=-2.6)
        self._visitor.go(t + 4.2, here)
        self._visitor.go(t + 7.2, _DOOR, "stand", heading=-1.6)
        self._clock = t + 6.0

    def _vehicle_proximity(self) -> None:
        """The forklift comes close to the fitter and backs away."""
        t, close = self._begin(self._forklift, 1.2), (-1.9, 12.0)
        way = math.atan2(close[0] - _HOME[0], close[1] - _HOME[1])
        self._forklift.go(t - 1.2, _HOME, "stand")
        self._forklift.go(t + 0.8, close, "stand", heading=way)
        self._forklift.go(t + 2.4, close, "stand", heading=way)
        self._forklift.go(t + 4.4, _HOME, "stand", heading=2.6)
        self._clock = t + 5.0

    def _blocked_path(self) -> None:
        """The forklift stops on the walkway."""
        t, block = self._begin(self._forklift, 1.6), (4.6, 14.6)
        self._forklift.go(t - 1.6, _HOME, "stand")
        self._forklift.go(t + 0.9, block, "stand", heading=1.9)
        self._forklift.go(t + 3.2, block, "stand", heading=1.9)
        self._forklift.go(t + 5.4, _HOME, "stand", heading=2.6)
        self._clock = t + 5.6

    def _spill(self) -> None:
        """Something leaks, and is mopped up."""
        t, look = self._clock, self._rng.getrandbits(24)

        def puddle(age_s: float) -> Effect:
            size = 1.25 * min(1.0, 0.4 + age_s, (3.8 - age_s) / 0.5)
            return Effect(kind="spill", at=(0.4, 11.6), size_m=max(0.1, size), look=look)

        self._effects.append((t, t + 3.6, puddle))
        self._clock = t + 5.0

    def _fire(self) -> None:
        """Smoke rises from a pallet, flames follow, and are put out."""
        t, away = self._clock, (-1.0, 8.8)
        looks = self._rng.getrandbits(24), self._rng.getrandbits(24)

        def smoke(age_s: float) -> Effect:
            size = 4.4 * min(1.0, 0.3 + 0.35 * age_s, (5.7 - age_s) / 0.8)
            return Effect(kind="smoke", at=(-6.0, 14.0), size_m=max(0.3, size), look=looks[0])

        def flames(age_s: float) -> Effect:
            size = 1.7 * min(1.0, 0.5 + 0.8 * age_s, (3.4 - age_s) / 0.6)
            return Effect(kind="fire", at=(-5.7, 13.0), size_m=max(0.3, size), look=looks[1])

        self._effects += [(t, t + 5.6, smoke), (t + 2.8, t + 6.0, flames)]
        self._fitter.go(t + 2.4, _POST)
        self._fitter.go(t + 4.0, away, "stand", heading=-0.9)
        self._fitter.go(t + 5.6, away)
        self._fitter.go(t + 7.4, _POST, "work", heading=-0.7)
        self._clock = t + 7.4

    def _person_down(self) -> None:
        """The walker falls, and gets up after a while."""
        t, spot = self._begin(self._walker, 1.6), (3.0, 9.4)
        self._walker.go(t - 1.6, _AISLE)
        self._walker.go(t - 0.3, spot, "down", heading=-1.2)
        self._walker.go(t + 4.2, spot, "stand", heading=-1.2)
        self._walker.go(t + 5.2, spot)
        self._walker.go(t + 6.4, _AISLE, "stand", heading=-1.8)
        self._clock = t + 6.2

    def _stage(self) -> tuple[Site, Camera, tuple[Thing, ...]]:
        rng = self._rng
        zones = (Zone(kind="walkway", x=(4.0, 5.6), z=(4.0, 17.0)), Zone(kind="exit", x=(-3.2, -1.2), z=(18.2, 20.0)))
        clutter = tuple(
            Clutter(kind=rng.choice(CLUTTER), at=(x, 19.2), heading=rng.uniform(-0.3, 0.3), look=rng.getrandbits(24))
            for x in (9.0, 10.4)
        )
        site = replace(random_site(rng), wall_z=20.0, side_x=(-11.5, 11.5), zones=zones, clutter=clutter)
        height = rng.uniform(4.4, 5.4)
        camera = Camera(
            height_m=height, pitch=math.atan(height / rng.uniform(11.2, 12.4)), focal=rng.uniform(0.78, 0.84)
        )
        return site, camera, tuple(replace(thing, look=rng.getrandbits(24)) for thing in _PROPS)

    def _scene_at(self, site: Site, camera: Camera, props: tuple[Thing, ...]) -> Callable[[float], Scene]:
        mirror, lens = self._mirror, Lens(blur_px=0.3, noise=self._rng.uniform(1.0, 2.5))
        hour: Hour = self._rng.choices(("day", "dusk"), (0.8, 0.2))[0]
        sun = self._rng.uniform(-1.0, 1.0)
        site = replace(
            site,
            zones=tuple(replace(zone, x=_flip(zone.x, mirror)) for zone in site.zones),
            clutter=tuple(replace(item, at=(mirror * item.at[0], item.at[1])) for item in site.clutter),
        )

        def scene(time_s: float) -> Scene:
            things = [*props, *(actor.at(time_s) for actor in self._cast)]
            effects = [make(time_s - start) for start, end, make in self._effects if start <= time_s < end]
            return Scene(
                site=site, camera=camera, hour=hour, lens=lens, sun=sun, time_s=time_s,
                things=tuple(
                    replace(t, track=k + 1, at=(mirror * t.at[0], t.at[1]), heading=mirror * t.heading)
                    for k, t in enumerate(things)
                ),
                effects=tuple(replace(e, at=(mirror * e.at[0], e.at[1])) for e in effects),
            )  # fmt: skip

        return scene


def _flip(x: Point, mirror: float) -> Point:
    low, high = sorted((mirror * x[0], mirror * x[1]))
    return low, high
