"""Things that move through a story, from one key moment to the next."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace

from .scene import VEHICLES, Point, Posture, Thing

_STRIDE_M = 2.1
"""Two steps, as far apart as a walking worker's feet are drawn."""

_FALL_S, _RISE_S = 0.6, 0.8
_TURN_S = {True: 1.2, False: 0.35}
"""How long vehicles, and others, take to turn."""


@dataclass(frozen=True)
class Key:
    """A key moment: where a thing is, and how it goes on from there."""

    at_s: float
    at: Point
    posture: Posture
    heading: float | None
    """Radians; None: the way it goes."""
    helmet: bool


@dataclass
class Actor:
    """A thing and its key moments."""

    thing: Thing
    keys: list[Key] = field(default_factory=list)

    @property
    def free_s(self) -> float:
        """When its last key moment is, in seconds."""
        return self.keys[-1].at_s if self.keys else 0.0

    def go(
        self, at_s: float, at: Point, posture: Posture = "walk", *, heading: float | None = None, helmet: bool = True
    ) -> None:
        """Add a key moment.

        Raises:
            ValueError: It is not later than the last.
        """
        if self.keys and at_s <= self.free_s:
            raise ValueError(f"expected a moment after {self.free_s} s, got {at_s} s")
        self.keys.append(Key(at_s, at, posture, heading, helmet))

    def at(self, time_s: float) -> Thing:
        """The thing at one moment."""
        k = max(0, bisect_right([key.at_s for key in self.keys], time_s) - 1)
        key, step, since_s = self.keys[k], self._step(k), time_s - self.keys[k].at_s
        share = self._share(k, since_s)
        moving = math.hypot(*step) > 0
        walked = sum(math.hypot(*self._step(j)) for j in range(k)) + share * math.hypot(*step)
        posture, fallen = self._posture(k, since_s, moving)
        return replace(
            self.thing,
            at=(key.at[0] + share * step[0], key.at[1] + share * step[1]),
            heading=self._heading(k, since_s),
            posture=posture,
            fallen=fallen,
            helmet=key.helmet,
            phase=walked / _STRIDE_M if moving else 0.45 * time_s,
        )

    def _step(self, k: int) -> Point:
        """From a key moment's place to the next one's."""
        here, there = self.keys[k].at, self.keys[min(k + 1, len(self.keys) - 1)].at
        return there[0] - here[0], there[1] - here[1]

    def _share(self, k: int, since_s: float) -> float:
        """How much of the way to the next key moment is done; vehicles gather speed and brake."""
        if k + 1 == len(self.keys):
            return 0.0
        share = min(1.0, max(0.0, since_s / (self.keys[k + 1].at_s - self.keys[k].at_s)))
        return share * share * (3 - 2 * share) if self.thing.kind in VEHICLES else share

    def _posture(self, k: int, since_s: float, moving: bool) -> tuple[Posture, float]:
        """Posture, and how far fallen: whoever lay gets up before all else."""
        posture = self.keys[k].posture
        if posture == "down":
            return posture, min(1.0, since_s / _FALL_S)
        if k and self.keys[k - 1].posture == "down" and since_s < _RISE_S:
            return "down", 1.0 - since_s / _RISE_S
        return ("stand" if posture == "walk" and not moving else posture), 1.0

    def _heading(self, k: int, since_s: float) -> float:
        """Where it looks, turning over from where it looked before."""
        heading, turn_s = self._aim(k), _TURN_S[self.thing.kind in VEHICLES]
        if k == 0 or since_s >= turn_s:
            return heading
        before = self._heading(k - 1, self.keys[k].at_s - self.keys[k - 1].at_s)
        turn = (heading - before + math.pi) % (2 * math.pi) - math.pi
        return before + turn * since_s / turn_s

    def _aim(self, k: int) -> float:
        given, step = self.keys[k].heading, self._step(k)
        if given is not None:
            return given
        return math.atan2(*step) if math.hypot(*step) > 0 else self.thing.heading
