"""Each written rule, on both sides of each threshold. Nothing is drawn: what shows is given."""

import itertools
import json
import math
from typing import get_args

import numpy as np
import pytest

from drawn_site.render import Picture, Shown
from drawn_site.rules import (
    BY_WEIGHT,
    SEVERITIES,
    Hazard,
    Severity,
    ThingTruth,
    Truth,
    Verdict,
    flame_radius_m,
    judge,
    worst,
)
from drawn_site.scene import Effect, EffectKind, Kind, Posture, Thing, Zone
from hazardlens.resources import data_path
from tests.assets.scenes import scene, thing

WALKWAY = Zone(kind="walkway", x=(4.0, 6.0), z=(5.0, 15.0))
EXIT = Zone(kind="exit", x=(-6.0, -4.0), z=(18.0, 20.0))
HEADING = math.pi / 2
"""A vehicle's length lies along x."""


def shown(height: float = 100.0, share: float = 1.0, upper: float | None = None) -> Shown:
    return Shown(box_xyxy_px=(10.0, 20.0, 60.0, 20.0 + height), share=share, upper=share if upper is None else upper)


def judged(
    *things: Thing | tuple[Thing, Shown],
    effects: tuple[Effect | tuple[Effect, Shown], ...] = (),
    zones: tuple[Zone, ...] = (WALKWAY, EXIT),
    height: int = 360,
) -> Truth:
    """Truth of things and effects that show as they are paired with, or whole."""
    pairs = [one if isinstance(one, tuple) else (one, shown()) for one in things]
    lit = [one if isinstance(one, tuple) else (one, shown()) for one in effects]
    picture = Picture(
        image=np.zeros((height, height * 16 // 9, 3), np.uint8),
        things=tuple(what for _, what in pairs),
        effects=tuple(what for _, what in lit),
    )
    made = scene(*(one for one, _ in pairs), effects=tuple(one for one, _ in lit), zones=zones)
    return judge(made, picture)


def words(verdict: Verdict) -> tuple[Hazard, Severity]:
    return verdict.hazard, verdict.severity


def all_words(truth: ThingTruth) -> list[tuple[Hazard, Severity]]:
    return [words(verdict) for verdict in truth.verdicts]


def effect(kind: EffectKind, size_m: float, x: float = 0.0) -> Effect:
    return Effect(kind=kind, at=(x, 11.0), size_m=size_m)


def beside(kind: Kind, one: Effect, gap_m: float, **more: object) -> Thing:
    """A thing whose footprint ends so far to the right of an effect."""
    half = {"worker": 0.25, "cone": 0.225, "pallet": 0.6, "forklift": 1.6}[kind]
    heading = HEADING if kind == "forklift" else 0.0
    return thing(kind, (one.at[0] + flame_radius_m(one) + gap_m + half, one.at[1]), heading=heading, **more)


def test_the_words_are_those_of_the_shipped_schema() -> None:
    fields = json.loads(data_path("schemas", "hazard.json").read_text(encoding="utf-8"))["properties"]
    assert list(get_args(Hazard)) == fields["hazard"]["enum"]
    assert list(SEVERITIES) == fields["severity"]["enum"]
    assert {*BY_WEIGHT, "other"} == set(get_args(Hazard))


def test_an_empty_picture_and_a_calm_one() -> None:
    assert words(judged().verdict) == ("none", "none")
    calm = judged(thing("worker"), thing("cone", (2.0, 9.0)), thing("truck", (-6.0, 11.0)))
    assert words(calm.verdict) == ("none", "none")
    assert [one.verdicts for one in calm.things] == [(), (), ()]
    assert [one.kind for one in calm.things] == ["worker", "cone", "truck"]
    assert [one.track for one in calm.things] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "size_m", "severity"),
    [
        ("fire", 0.99, "high"),
        ("fire", 1.0, "critical"),
        ("smoke", 2.99, "medium"),
        ("smoke", 3.0, "high"),
        ("spill", 0.89, "low"),
        ("spill", 0.9, "medium"),
    ],
)
def test_effects_by_size(kind: EffectKind, size_m: float, severity: Severity) -> None:
    truth = judged(effects=(effect(kind, size_m),))
    assert words(truth.verdict) == (kind, severity)
    assert [words(one.verdict) for one in truth.effects] == [(kind, severity)]


FIRE = effect("fire", 0.5)


@pytest.mark.parametrize(
    ("kind", "gap_m", "posture", "share", "severity"),
    [
        ("worker", 1.99, "stand", 1.0, "critical"),
        ("worker", 2.01, "stand", 1.0, "high"),
        ("worker", 1.99, "stand", 0.49, "high"),
        ("worker", 1.3, "down", 1.0, "critical"),
        ("forklift", 1.0, "stand", 1.0, "high"),
    ],
)
def test_fire_is_critical_with_a_person_near(
    kind: Kind, gap_m: float, posture: Posture, share: float, severity: Severity
) -> None:
    near = beside(kind, FIRE, gap_m, posture=posture)
    truth = judged((near, shown(share=share)), effects=(FIRE,))
    assert words(truth.effects[0].verdict) == ("fire", severity)
    assert "fire" not in {verdict.hazard for verdict in truth.things[0].verdicts}, "it does not touch the flames"


@pytest.mark.parametrize("kind", ["worker", "forklift", "pallet", "cone"])
@pytest.mark.parametrize("one", [effect("fire", 0.5), effect("smoke", 2.0), effect("spill", 0.6)])
def test_what_touches_an_effect_has_part_in_it(kind: Kind, one: Effect) -> None:
    for gap_m, touches in ((-0.1, True), (0.29, True), (0.31, False)):
        truth = judged(beside(kind, one, gap_m), effects=(one,), zones=())
        expected = truth.effects[0].verdict if touches else Verdict()
        assert truth.things[0].verdict == expected
        assert truth.verdict == truth.effects[0].verdict


@pytest.mark.parametrize(
    ("helmet", "vest", "severity"),
    [(True, False, "low"), (False, True, "medium"), (False, False, "high"), (True, True, "none")],
)
def test_missing_ppe(helmet: bool, vest: bool, severity: Severity) -> None:
    (truth,) = judged(thing("worker", helmet=helmet, vest=vest)).things
    assert words(truth.verdict) == (("none" if severity == "none" else "missing_ppe"), severity)
    assert (truth.posture, truth.helmet, truth.vest) == ("up", helmet, vest)


def test_a_person_down_needs_no_helmet() -> None:
    truth = judged(thing("worker", posture="down", helmet=False, vest=False))
    assert all_words(truth.things[0]) == [("person_down", "critical")]
    assert (truth.things[0].posture, truth.things[0].helmet, truth.things[0].vest) == ("down", None, None)
    assert words(truth.verdict) == ("person_down", "critical")


def test_clothing_is_judged_where_head_and_torso_show() -> None:
    bare = thing("worker", helmet=False)
    (seen,) = judged((bare, shown(share=0.6, upper=0.5))).things
    (hidden,) = judged((bare, shown(share=0.6, upper=0.49))).things
    assert all_words(seen) == [("missing_ppe", "medium")]
    assert (hidden.verdicts, hidden.posture, hidden.helmet, hidden.vest) == ((), "up", None, None)


@pytest.mark.parametrize(("vehicle", "half"), [("forklift", 1.6), ("truck", 3.1)])
@pytest.mark.parametrize(("gap_m", "severity"), [(0.79, "critical"), (0.81, "high"), (1.99, "high"), (2.01, None)])
def test_vehicle_proximity_concerns_both(vehicle: Kind, half: float, gap_m: float, severity: Severity | None) -> None:
    truth = judged(thing(vehicle, heading=HEADING), thing("worker", (half + gap_m + 0.25, 11.0)), zones=())
    expected = [("vehicle_proximity", severity)] if severity else []
    assert [all_words(one) for one in truth.things] == [expected, expected]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (thing("pallet"), thing("worker", (1.0, 11.0))),
        (thing("forklift"), thing("truck", (2.5, 11.0))),
        (thing("worker"), thing("worker", (0.6, 11.0))),
        ((thing("forklift"), shown(share=0.29)), thing("worker", (1.0, 11.0))),
        (thing("forklift"), (thing("worker", (1.0, 11.0)), shown(share=0.49))),
    ],
)
def test_no_proximity_without_a_person_and_a_vehicle_that_count(one: Thing, other: Thing) -> None:
    assert [one.verdicts for one in judged(one, other).things] == [(), ()]


def test_who_is_down_beside_a_vehicle_is_down() -> None:
    truth = judged(thing("forklift"), thing("worker", (1.5, 11.0), posture="down"))
    assert [all_words(one) for one in truth.things] == [[], [("person_down", "critical")]]


@pytest.mark.parametrize(
    ("kind", "at", "severity"),
    [
        ("cone", (3.78, 10.0), "low"),
        ("cone", (3.77, 10.0), None),
        ("ladder", (5.0, 10.0), "low"),
        ("forklift", (5.0, 10.0), "low"),
        ("pallet", (-5.0, 17.51), "medium"),
        ("pallet", (-5.0, 17.49), None),
        ("worker", (5.0, 10.0), None),
        ("worker", (-5.0, 19.0), None),
    ],
)
def test_blocked_path(kind: Kind, at: tuple[float, float], severity: Severity | None) -> None:
    truth = judged(thing(kind, at))
    assert all_words(truth.things[0]) == ([("blocked_path", severity)] if severity else [])


@pytest.mark.parametrize(
    ("one", "least_share", "least_px"),
    [
        (thing("worker", helmet=False), 0.5, 30.0),
        (thing("worker", posture="down"), 0.5, 8.0),
        (thing("cone", (5.0, 10.0)), 0.3, 10.0),
        (thing("truck", (5.0, 10.0)), 0.3, 10.0),
    ],
)
@pytest.mark.parametrize("height", [360, 720])
def test_things_too_small_or_too_hidden_have_no_verdict(
    one: Thing, least_share: float, least_px: float, height: int
) -> None:
    scale = height / 360

    def verdicts(share: float, px: float) -> int:
        (truth,) = judged((one, shown(px * scale, share, upper=1.0)), height=height).things
        assert (truth.posture is None) == (not truth.verdicts or one.kind != "worker")
        return len(truth.verdicts)

    assert verdicts(least_share, least_px) == 1
    assert verdicts(least_share - 0.01, least_px) == 0
    assert verdicts(least_share, least_px - 0.5) == 0


@pytest.mark.parametrize("kind", ["fire", "smoke", "spill"])
def test_effects_too_small_or_too_hidden_do_not_count(kind: EffectKind) -> None:
    one = effect(kind, 1.0)
    assert judged(effects=((one, shown(5.0, 0.4)),)).verdict.hazard == kind
    for what in (shown(5.0, 0.39), shown(4.5, 0.4), Shown(box_xyxy_px=None, share=0.0, upper=0.0)):
        truth = judged(beside("cone", one, 0.1), effects=((one, what),))
        assert truth.effects == ()
        assert truth.things[0].verdicts == ()


def test_what_hardly_shows_is_not_in_the_truth() -> None:
    nothing = Shown(box_xyxy_px=None, share=0.0, upper=0.0)
    for what, there in ((shown(4, 0.2), True), (shown(3.5, 1.0), False), (shown(90, 0.19), False), (nothing, False)):
        assert len(judged((thing("worker", posture="down"), what)).things) == there


def test_a_thing_has_all_its_verdicts_the_worst_first() -> None:
    puddle = effect("spill", 0.6)
    worker = beside("worker", puddle, 0.1, vest=False)
    forklift = thing("forklift", (worker.at[0] + 0.25 + 1.0 + 1.6, 11.0), heading=HEADING)
    truth = judged(worker, forklift, effects=(puddle,), zones=())
    assert all_words(truth.things[0]) == [("vehicle_proximity", "high"), ("missing_ppe", "low"), ("spill", "low")]
    assert words(truth.things[0].verdict) == ("vehicle_proximity", "high")


def test_the_same_verdict_twice_is_one() -> None:
    truth = judged(thing("forklift"), thing("worker", (1.0, 11.0)), thing("worker", (-1.0, 11.0)))
    assert all_words(truth.things[0]) == [("vehicle_proximity", "critical")]


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(BY_WEIGHT[:-1], 2)))
def test_ties_go_to_the_weightier_hazard(first: Hazard, second: Hazard) -> None:
    one, other = Verdict(first, "medium"), Verdict(second, "medium")
    assert worst([one, other]) == worst([other, one]) == one
    assert worst([one, Verdict(second, "high")]) == Verdict(second, "high"), "severity comes first"


def test_the_picture_has_the_worst_of_all() -> None:
    down, fire = thing("worker", (8.0, 11.0), posture="down"), effect("fire", 1.5, x=-5.0)
    bare, smoke = thing("worker", helmet=False, vest=False), effect("smoke", 4.0, x=-5.0)
    assert words(judged(down, bare).verdict) == ("person_down", "critical")
    assert words(judged(down, effects=(fire,)).verdict) == ("fire", "critical")
    assert words(judged(bare, effects=(smoke,)).verdict) == ("smoke", "high")
    assert words(judged(thing("cone", (5.0, 9.0)), effects=(effect("spill", 0.6),)).verdict) == ("blocked_path", "low")
