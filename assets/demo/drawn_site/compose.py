"""Scenes drawn by lot: one seed, one scene."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from .camera import Projection
from .geometry import gap_m, gap_to_circle_m, gap_to_zone_m, outline
from .place import random_camera, random_site
from .rules import CLOSE_M, FIRE_M, Hazard, flame_radius_m
from .scene import VEHICLES, Effect, EffectKind, Hour, Kind, Lens, Point, Scene, Thing

_PLANS: dict[Hazard, float] = {
    "none": 0.24, "fire": 0.12, "smoke": 0.11, "spill": 0.12,
    "person_down": 0.11, "missing_ppe": 0.12, "vehicle_proximity": 0.11, "blocked_path": 0.12,
}  # fmt: skip
_SECOND = 0.2
"""Share of the scenes in which something else is wrong as well."""

_CLEAR_M = 1.0
"""What is no hazard stays this much farther off than the rules ask, so that no verdict hangs on centimetres."""

_EFFECT_GAP_M = 1.5
"""Effects beside which nothing is meant to stand lie this far off all things."""

_REACH_M: dict[Kind, float] = {"truck": 3.4, "forklift": 1.8}
"""No point of a footprint is farther from its middle; of all else none is farther than 1 m."""

_TRIES = 40

_HOURS: tuple[Hour, ...] = get_args(Hour)

_MOST: dict[Kind, int] = {"truck": 1, "forklift": 2, "worker": 3, "ladder": 2, "pallet": 3, "cone": 4}
"""So many things of each kind at most stand about, beside those that a hazard brings."""


def compose(seed: int) -> Scene:
    """The scene of a seed."""
    return _Composer(random.Random(f"drawn site {seed}")).scene()


class _Composer:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._camera, self._site = random_camera(rng), random_site(rng)
        self._project = Projection(self._camera, (640, 360))
        self._things: list[Thing] = []
        self._effects: list[Effect] = []

    def scene(self) -> Scene:
        """All drawn by lot, in an order that a seed's scene depends on."""
        rng = self._rng
        self._add(self._plan())
        if rng.random() < _SECOND:
            self._add(self._plan())
        for kind, most in _MOST.items():
            for _ in range(rng.randint(0, most)):
                self._place(kind)
        hour: Hour = rng.choices(_HOURS, (0.6, 0.2, 0.2))[0]
        lens = Lens(blur_px=rng.uniform(0, 0.9), noise=rng.uniform(0, 7), jpeg=rng.randint(40, 95))
        rng.shuffle(self._things)
        return Scene(
            site=self._site, camera=self._camera, hour=hour, lens=lens,
            things=tuple(replace(thing, track=k + 1) for k, thing in enumerate(self._things)),
            effects=tuple(self._effects), sun=rng.uniform(-1.2, 1.2), time_s=rng.uniform(0, 20),
        )  # fmt: skip

    def _plan(self) -> Hazard:
        return self._rng.choices(list(_PLANS), list(_PLANS.values()))[0]

    def _add(self, plan: Hazard) -> None:
        add: dict[Hazard, Callable[[], object]] = {
            "fire": self._fire,
            "smoke": self._smoke,
            "spill": self._spill,
            "person_down": lambda: self._place("worker", posture="down"),
            "missing_ppe": self._bare,
            "vehicle_proximity": self._close,
            "blocked_path": self._block,
        }
        if plan in add:
            add[plan]()

    def _fire(self) -> None:
        size = self._rng.choice((self._rng.uniform(0.45, 0.8), self._rng.uniform(1.2, 2.0)))
        beside: Kind | None = self._rng.choice(("pallet", "forklift", "truck", "worker", None, None))
        self._effect("fire", size, self._beside(beside, 0.4 * size, FIRE_M + _CLEAR_M))

    def _smoke(self) -> None:
        size = self._rng.choice((self._rng.uniform(1.6, 2.5), self._rng.uniform(3.5, 5.5)))
        beside: Kind | None = self._rng.choice(("pallet", "forklift", "truck", None, None))
        self._effect("smoke", size, self._beside(beside, 0.1 * size, _EFFECT_GAP_M))

    def _spill(self) -> None:
        size = self._rng.choice((self._rng.uniform(0.45, 0.72), self._rng.uniform(1.08, 1.7)))
        beside: Kind | None = self._rng.choice(("worker", "forklift", None, None, None))
        self._effect("spill", size, self._beside(beside, 0.8 * size, _EFFECT_GAP_M))

    def _effect(self, kind: EffectKind, size_m: float, at: Point | None) -> None:
        if at is not None:
            self._effects.append(Effect(kind=kind, at=at, size_m=size_m, look=self._rng.getrandbits(24)))

    def _beside(self, kind: Kind | None, radius: float, person_gap_m: float) -> Point | None:
        """A place for an effect: touching a new thing, near a new worker, or clear of all."""
        thing = self._place(kind) if kind else None
        if thing is None:
            return self._clear_ground(radius, person_gap_m)
        point, outward = self._edge_point(thing)
        x, z = point + outward * radius * 0.9
        return float(x), float(z)

    def _edge_point(self, thing: Thing) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """A point on the edge of a footprint, and the direction from the footprint's middle to it."""
        edge = outline(thing)
        point = edge[self._rng.randrange(len(edge))]
        away = point - np.array(thing.at)
        return point, away / max(1e-6, float(np.linalg.norm(away)))

    def _clear_ground(self, radius: float, person_gap_m: float) -> Point | None:
        for _ in range(_TRIES):
            at = self._ground()
            if all(
                gap_to_circle_m(thing, at, radius) > (person_gap_m if thing.kind == "worker" else _EFFECT_GAP_M)
                for thing in self._things
            ):
                return at
        return None

    def _bare(self) -> None:
        helmet, vest = self._rng.choice(((False, True), (True, False), (False, False)))
        self._place("worker", helmet=helmet, vest=vest)

    def _close(self) -> None:
        rng = self._rng
        vehicle = self._place(rng.choice(("forklift", "forklift", "truck")))
        if vehicle is None:
            return
        gap = rng.choice((rng.uniform(0.1, 0.55), rng.uniform(1.05, 1.7)))
        for _ in range(_TRIES):
            point, outward = self._edge_point(vehicle)
            x, z = point + outward * (gap + 0.3)
            worker = self._new("worker", (float(x), float(z)))
            if 0.05 < gap_m(worker, vehicle) < gap + 0.2 and self._allowed(worker, {vehicle}):
                self._things.append(worker)
                return

    def _block(self) -> None:
        rng = self._rng
        zones = [zone for zone in self._site.zones if zone.kind == "exit" or rng.random() < 0.8]
        if not zones:
            return
        zone = rng.choice(zones)
        for _ in range(_TRIES):
            at = rng.uniform(*zone.x), rng.uniform(max(zone.z[0], 5.0), zone.z[1] - 0.5)
            thing = self._new(rng.choice(("pallet", "pallet", "cone", "ladder", "forklift")), at)
            if gap_to_zone_m(thing, zone) <= 0 and self._visible(at) and self._allowed(thing, set(), zones=False):
                self._things.append(thing)
                return

    def _place(self, kind: Kind, **given: Any) -> Thing | None:
        """Put a new thing where it is not part of any hazard but its own; None where there is no room."""
        for _ in range(_TRIES):
            thing = self._new(kind, self._ground(), **given)
            if self._allowed(thing, set()):
                self._things.append(thing)
                return thing
        return None

    def _new(self, kind: Kind, at: Point, **given: Any) -> Thing:
        rng = self._rng
        thing = Thing(
            track=0, kind=kind, at=at, heading=rng.uniform(-math.pi, math.pi), look=rng.getrandbits(24),
            posture=rng.choice(("stand", "walk", "walk", "work")) if kind == "worker" else "stand",
            phase=rng.random(), loaded=kind in ("forklift", "pallet") and rng.random() < 0.5,
        )  # fmt: skip
        return replace(thing, **given)

    def _allowed(self, thing: Thing, company: set[Thing], *, zones: bool = True) -> bool:
        """Whether a thing has room, and is no hazard to anything but its company; zones: nor on a zone."""
        return (
            self._inside(thing)
            and all(self._apart(thing, other) for other in self._things if other not in company)
            and not (zones and thing.kind != "worker" and self._near_zone(thing))
            and not any(self._near_effect(thing, effect) for effect in self._effects)
        )

    def _inside(self, thing: Thing) -> bool:
        left, right = self._site.side_x
        x, z = outline(thing).T
        return bool(x.min() >= left + 0.4 and x.max() <= right - 0.4 and z.max() <= self._site.wall_z - 0.3)

    def _near_zone(self, thing: Thing) -> bool:
        return any(gap_to_zone_m(thing, zone) < 0.35 for zone in self._site.zones)

    def _near_effect(self, thing: Thing, effect: Effect) -> bool:
        least = FIRE_M if effect.kind == "fire" and thing.kind == "worker" else 0.0
        return gap_to_circle_m(thing, effect.at, flame_radius_m(effect)) <= least + _CLEAR_M

    def _apart(self, thing: Thing, other: Thing) -> bool:
        pair = {thing.kind, other.kind}
        meeting = "worker" in pair and pair & VEHICLES
        least = CLOSE_M + _CLEAR_M if meeting else 0.35
        far = math.dist(thing.at, other.at) - _REACH_M.get(thing.kind, 1.0) - _REACH_M.get(other.kind, 1.0)
        return far > least or gap_m(thing, other) > least

    def _ground(self) -> Point:
        rng = self._rng
        while True:
            at = rng.uniform(*self._site.side_x), rng.uniform(4.5, self._site.wall_z - 0.8)
            if self._visible(at):
                return at

    def _visible(self, at: Point) -> bool:
        (pixel,), _ = self._project(np.array([(at[0], 0.0, at[1])]))
        return bool(10 < pixel[0] < 630 and 100 < pixel[1] < 352)
