"""Clips: a cast on one site, and what happens to it, told as a scene for each moment."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from .compose import random_site
from .scene import Camera, Effect, Hour, Lens, Point, Posture, Scene, Site, Thing, Zone

FPS = 12
_STRIDE_M = 1.5
_FALL_S = 0.6


@dataclass(frozen=True)
class _Key:
    at_s: float
    at: Point
    posture: Posture = "walk"
    """From here on."""
    heading: float | None = None
    """From here on; None: the way it goes."""
    helmet: bool = True


@dataclass
class _Actor:
    """A thing and its way through the story."""

    thing: Thing
    keys: list[_Key] = field(default_factory=list)

    def go(self, at_s: float, at: Point, posture: Posture = "walk", **more: object) -> None:
        self.keys.append(_Key(at_s, at, posture, **more))  # type: ignore[arg-type]

    def at(self, time_s: float) -> Thing:
        """The thing at one moment."""
        if not self.keys:
            return self.thing
        k = max(0, bisect_right([key.at_s for key in self.keys], time_s) - 1)
        key = self.keys[k]
        after = self.keys[min(k + 1, len(self.keys) - 1)]
        share = 0.0 if after.at_s <= key.at_s else min(1.0, max(0.0, (time_s - key.at_s) / (after.at_s - key.at_s)))
        step = after.at[0] - key.at[0], after.at[1] - key.at[1]
        moving = math.hypot(*step) > 0.05
        walked = sum(math.dist(a.at, b.at) for a, b in zip(self.keys[:k], self.keys[1 : k + 1], strict=True))
        heading = key.heading if key.heading is not None else math.atan2(*step) if moving else self.thing.heading
        return replace(
            self.thing,
            at=(key.at[0] + share * step[0], key.at[1] + share * step[1]),
            heading=self._turned(k, heading, time_s - key.at_s),
            posture=key.posture if key.posture != "walk" or moving else "stand",
            helmet=key.helmet,
            fallen=min(1.0, max(0.0, (time_s - key.at_s) / _FALL_S)),
            phase=(walked + share * math.hypot(*step)) / _STRIDE_M if moving else 0.45 * time_s,
        )

    def _turned(self, k: int, heading: float, since_s: float) -> float:
        """Turn over from the heading before within a third of a second."""
        if k == 0 or since_s > 0.35:
            return heading
        before = self.keys[k - 1]
        step = self.keys[k].at[0] - before.at[0], self.keys[k].at[1] - before.at[1]
        old = (
            before.heading if before.heading is not None else math.atan2(*step) if math.hypot(*step) > 0.05 else heading
        )
        turn = (heading - old + math.pi) % (2 * math.pi) - math.pi
        return old + turn * since_s / 0.35


@dataclass(frozen=True, kw_only=True)
class Story:
    """A told clip."""

    duration_s: float
    scene_at: Callable[[float], Scene]
    """The scene at a time in seconds from the start."""


def tell(seed: int) -> Story:
    """The story of a seed: the same cast and the same hazards, in another order, place and light."""
    return _Teller(random.Random(f"story {seed}")).story()


_HOME: Point = (0.6, 16.0)
_POST: Point = (-3.4, 10.6)
_DOOR: Point = (7.2, 7.6)
_AISLE: Point = (4.8, 10.2)


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

    def _actor(self, kind, at: Point, heading: float) -> _Actor:  # type: ignore[no-untyped-def]
        look = self._rng.getrandbits(24)
        return _Actor(Thing(track=0, kind=kind, at=at, heading=heading, look=look, loaded=False))

    def _missing_ppe(self) -> None:
        """The visitor comes in bareheaded, puts a helmet on, and leaves again."""
        t, here = self._clock, (0.6, 8.6)
        self._visitor.go(t - 1.6, _DOOR, helmet=False)
        self._visitor.go(t + 2.2, here, "stand", heading=-2.6, helmet=False)
        self._visitor.go(t + 3.8, here, "stand", heading=-2.6)
        self._visitor.go(t + 4.2, here)
        self._visitor.go(t + 7.2, _DOOR, "stand", heading=-1.6)
        self._clock = t + 6.0

    def _vehicle_proximity(self) -> None:
        """The forklift comes close to the fitter and backs away."""
        t, close = self._clock, (-1.9, 12.0)
        way = math.atan2(close[0] - _HOME[0], close[1] - _HOME[1])
        self._forklift.go(t - 1.2, _HOME, "stand")
        self._forklift.go(t + 0.8, close, "stand", heading=way)
        self._forklift.go(t + 2.4, close, "stand", heading=way)
        self._forklift.go(t + 4.4, _HOME, "stand", heading=2.6)
        self._clock = t + 5.0

    def _blocked_path(self) -> None:
        """The forklift stops on the walkway."""
        t, block = self._clock, (4.6, 14.6)
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
        away = (-1.0, 8.8)
        t, looks = self._clock, (self._rng.getrandbits(24), self._rng.getrandbits(24))

        def smoke(age_s: float) -> Effect:
            return Effect(kind="smoke", at=(-6.0, 14.0), size_m=2.0 + min(2.4, 1.2 * age_s), look=looks[0])

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
        t, spot = self._clock, (3.0, 9.4)
        self._walker.go(t - 1.6, _AISLE)
        self._walker.go(t - 0.3, spot, "down", heading=-1.2)
        self._walker.go(t + 4.4, spot, "stand", heading=-1.2)
        self._walker.go(t + 5.0, spot)
        self._walker.go(t + 6.0, _AISLE, "stand", heading=-1.8)
        self._clock = t + 6.0

    def _stage(self) -> tuple[Site, Camera, tuple[Thing, ...]]:
        rng = self._rng
        place = random_site(rng)
        zones = (Zone(kind="walkway", x=(4.0, 5.6), z=(4.0, 17.0)), Zone(kind="exit", x=(-1.7, 0.3), z=(18.2, 20.0)))
        site = replace(place, wall_z=20.0, side_x=(-11.5, 11.5), zones=zones, clutter=place.clutter[:2])
        height = rng.uniform(4.4, 5.4)
        camera = Camera(
            height_m=height, pitch=math.atan(height / rng.uniform(11.2, 12.4)), focal=rng.uniform(0.78, 0.84)
        )
        props = (
            ("truck", (-6.8, 17.7), 1.75), ("ladder", (2.3, 18.0), 0.4), ("cone", (-4.9, 9.4), 0.0),
            ("cone", (7.2, 14.0), 0.3), ("pallet", (-6.1, 13.9), 0.25), ("pallet", (7.6, 16.6), 0.5),
        )  # fmt: skip
        things = tuple(
            Thing(track=0, kind=kind, at=at, heading=heading, look=rng.getrandbits(24), loaded=kind == "pallet")  # type: ignore[arg-type]
            for kind, at, heading in props
        )
        return site, camera, things

    def _scene_at(self, site: Site, camera: Camera, props: tuple[Thing, ...]) -> Callable[[float], Scene]:
        mirror, lens = self._mirror, Lens(blur_px=0.3, noise=self._rng.uniform(1.0, 2.5))
        hour: Hour = self._rng.choices(("day", "dusk"), (0.8, 0.2))[0]
        sun = self._rng.uniform(-1.0, 1.0)
        site = replace(
            site,
            zones=tuple(replace(zone, x=_flip(zone.x, mirror)) for zone in site.zones),
            clutter=tuple(c for c in site.clutter if c.at[1] > 18.0 and abs(c.at[0]) > 7.5),
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
