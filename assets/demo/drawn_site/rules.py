"""The written rules that say what is a hazard, and how bad: the truth of a picture.

Each rule can be decided from the one picture. Distances run along the ground, from a person's edge to a footprint.

| hazard | when | severity |
|---|---|---|
| fire | flames show | high below `TALL_FIRE_M`, else critical; critical when a person is within `FIRE_M` |
| smoke | smoke shows | medium below `TALL_SMOKE_M`, else high |
| spill | a puddle shows | low below `WIDE_SPILL_M` radius, else medium |
| person_down | a person lies on the ground | critical |
| missing_ppe | a person who is up wears no vest / no helmet / neither | low / medium / high |
| vehicle_proximity | a person who is up is within `CLOSE_M` of a vehicle | high; critical within `TOUCHING_M` |
| blocked_path | something stands on a walkway / in front of an exit | low / medium |

A hazard counts only where enough of it shows: `EFFECT_SHARE` of flames, smoke or a puddle, `PERSON_SHARE` of a person
(for helmet and vest also of head and torso alone), `THING_SHARE` of anything else; and its box is at least `EFFECT_PX`,
`PERSON_PX` (`DOWN_PX`) or `THING_PX` high.

A thing's own verdict is the worst of what it causes or suffers: flames, smoke or a puddle within `TOUCH_EFFECT_M` of
its footprint count for the thing as they count for the picture. The picture's verdict is the worst of all; ties go to
the hazard named first in `BY_WEIGHT`. A pallet on a forklift's forks is part of the forklift.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from .geometry import gap_m, gap_to_circle_m, gap_to_zone_m
from .render import Picture, Shown
from .scene import VEHICLES, Effect, Kind, Scene, Thing

Hazard = Literal[
    "none", "fire", "smoke", "spill", "person_down", "missing_ppe", "vehicle_proximity", "blocked_path", "other"
]
"""As in `schemas/hazard.json`; `other` is never drawn."""
Severity = Literal["none", "low", "medium", "high", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)

BY_WEIGHT: tuple[Hazard, ...] = (
    "fire", "person_down", "vehicle_proximity", "smoke", "missing_ppe", "blocked_path", "spill", "none"
)  # fmt: skip

TALL_FIRE_M = 1.0
FIRE_M = 2.0
TALL_SMOKE_M = 3.0
WIDE_SPILL_M = 0.9
CLOSE_M = 2.0
TOUCHING_M = 0.8
TOUCH_EFFECT_M = 0.3

EFFECT_SHARE = 0.4
PERSON_SHARE = 0.5
THING_SHARE = 0.3
PERSON_PX = 30.0
DOWN_PX = 8.0
THING_PX = 10.0
EFFECT_PX = 5.0
"""Heights are in pixels of a picture 360 high; `DOWN_PX` is for a person on the ground."""
SHOWN_SHARE = 0.2
SHOWN_PX = 4
"""A thing of which less shows is not in the truth: no detector is asked to find it. In pixels of the picture itself."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""


@dataclass(frozen=True)
class Verdict:
    """A hazard and its severity."""

    hazard: Hazard = "none"
    severity: Severity = "none"

    @property
    def weight(self) -> tuple[int, int]:
        """Sorts verdicts, the worst highest."""
        return SEVERITIES.index(self.severity), -BY_WEIGHT.index(self.hazard)


@dataclass(frozen=True, kw_only=True)
class ThingTruth:
    """What is true of one thing that shows."""

    track: int
    kind: Kind
    box_xyxy_px: Box
    share: float
    """How much of it shows, 0 to 1."""
    verdicts: tuple[Verdict, ...]
    """All that holds for it, the worst first; empty: no hazard."""
    posture: Literal["up", "down"] | None
    """Workers only."""
    helmet: bool | None
    """Workers of whom head and torso show; None: cannot be told."""
    vest: bool | None

    @property
    def verdict(self) -> Verdict:
        """The worst."""
        return self.verdicts[0] if self.verdicts else Verdict()


@dataclass(frozen=True, kw_only=True)
class EffectTruth:
    """Flames, smoke or a puddle that shows."""

    effect: Effect
    box_xyxy_px: Box
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of a picture."""

    size_wh: tuple[int, int]
    things: tuple[ThingTruth, ...]
    effects: tuple[EffectTruth, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        return worst([*(t.verdict for t in self.things), *(e.verdict for e in self.effects)])


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts; no hazard where there are none."""
    return max(verdicts, key=lambda verdict: verdict.weight, default=Verdict())


def judge(scene: Scene, picture: Picture) -> Truth:
    """Apply the rules to a scene and what shows of it."""
    height, width = picture.image.shape[:2]
    things = [
        (thing, shown, shown.box_xyxy_px)
        for thing, shown in zip(scene.things, picture.things, strict=True)
        if shown.box_xyxy_px is not None and shown.share >= SHOWN_SHARE and _height(shown.box_xyxy_px) >= SHOWN_PX
    ]
    counted = [thing for thing, shown, box in things if _counts(thing, shown, _height(box) * 360 / height)]
    effects = [
        EffectTruth(effect=effect, box_xyxy_px=shown.box_xyxy_px, verdict=effect_verdict(effect, counted))
        for effect, shown in zip(scene.effects, picture.effects, strict=True)
        if shown.box_xyxy_px is not None
        and shown.share >= EFFECT_SHARE
        and _height(shown.box_xyxy_px) * 360 / height >= EFFECT_PX
    ]
    return Truth(
        size_wh=(width, height),
        things=tuple(_thing_truth(thing, shown, box, scene, counted, effects) for thing, shown, box in things),
        effects=tuple(effects),
    )


def effect_verdict(effect: Effect, counted: Sequence[Thing]) -> Verdict:
    """What flames, smoke or a puddle mean for the picture."""
    if effect.kind == "spill":
        return Verdict("spill", "low" if effect.size_m < WIDE_SPILL_M else "medium")
    if effect.kind == "smoke":
        return Verdict("smoke", "medium" if effect.size_m < TALL_SMOKE_M else "high")
    radius = flame_radius_m(effect)
    near = any(thing.kind == "worker" and gap_to_circle_m(thing, effect.at, radius) < FIRE_M for thing in counted)
    return Verdict("fire", "critical" if near or effect.size_m >= TALL_FIRE_M else "high")


def flame_radius_m(effect: Effect) -> float:
    """Radius of the ground that flames or the foot of smoke cover, or a puddle's mean radius."""
    return {"fire": 0.4, "smoke": 0.1, "spill": 1.0}[effect.kind] * effect.size_m


def _height(box_xyxy_px: Box) -> float:
    _, top, _, bottom = box_xyxy_px
    return bottom - top


def _counts(thing: Thing, shown: Shown, height_px: float) -> bool:
    """Whether enough of a thing shows for a verdict on it."""
    if thing.kind != "worker":
        return shown.share >= THING_SHARE and height_px >= THING_PX
    return shown.share >= PERSON_SHARE and height_px >= (DOWN_PX if thing.down else PERSON_PX)


def _thing_truth(
    thing: Thing, shown: Shown, box: Box, scene: Scene, counted: Sequence[Thing], effects: Sequence[EffectTruth]
) -> ThingTruth:
    verdicts: set[Verdict] = set()
    person = thing.kind == "worker" and thing in counted
    dressed = person and not thing.down and shown.upper >= PERSON_SHARE
    if thing in counted:
        verdicts |= {*_own(thing, scene), *_meetings(thing, counted), *_touched(thing, effects)}
    if dressed:
        verdicts |= {*_clothing(thing)}
    return ThingTruth(
        track=thing.track,
        kind=thing.kind,
        box_xyxy_px=box,
        share=shown.share,
        verdicts=tuple(sorted(verdicts, key=lambda verdict: verdict.weight, reverse=True)),
        posture=("down" if thing.down else "up") if person else None,
        helmet=thing.helmet if dressed else None,
        vest=thing.vest if dressed else None,
    )


def _clothing(thing: Thing) -> list[Verdict]:
    if thing.helmet and thing.vest:
        return []
    return [Verdict("missing_ppe", "low" if thing.helmet else "medium" if thing.vest else "high")]


def _own(thing: Thing, scene: Scene) -> list[Verdict]:
    if thing.down:
        return [Verdict("person_down", "critical")]
    if thing.kind == "worker":
        return []
    return [
        Verdict("blocked_path", "low" if zone.kind == "walkway" else "medium")
        for zone in scene.site.zones
        if gap_to_zone_m(thing, zone) <= 0
    ]


def _meetings(thing: Thing, counted: Sequence[Thing]) -> list[Verdict]:
    """Verdicts of one who is up beside vehicles, or of a vehicle beside such people."""
    if thing.kind != "worker" and thing.kind not in VEHICLES:
        return []
    found = []
    for other in counted:
        person, vehicle = (thing, other) if thing.kind == "worker" else (other, thing)
        if person.kind == "worker" and vehicle.kind in VEHICLES and not person.down:
            gap = gap_m(person, vehicle)
            if gap < CLOSE_M:
                found.append(Verdict("vehicle_proximity", "critical" if gap < TOUCHING_M else "high"))
    return found


def _touched(thing: Thing, effects: Sequence[EffectTruth]) -> list[Verdict]:
    return [
        one.verdict
        for one in effects
        if gap_to_circle_m(thing, one.effect.at, flame_radius_m(one.effect)) < TOUCH_EFFECT_M
    ]
