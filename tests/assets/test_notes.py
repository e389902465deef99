"""Sentences say what is true, and are read back."""

import random

import pytest

from drawn_site.compose import compose
from drawn_site.notes import Claim, agrees, claims, read, write
from drawn_site.render import render
from drawn_site.rules import Truth, judge
from drawn_site.scene import Effect, Scene, Zone
from tests.assets.scenes import scene, thing


def truth_of(one: Scene) -> Truth:
    return judge(one, render(one, oversample=1))


CALM = scene(thing("worker", (0.0, 9.0)), thing("cone", (3.0, 9.0)))


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (CALM, [Claim("none"), Claim(workers=1)]),
        (scene(), [Claim("none"), Claim(workers=0)]),
        (
            scene(thing("worker", (-4.0, 9.0), helmet=False)),
            [Claim("missing_ppe", "on the left", "helmet"), Claim(workers=1)],
        ),
        (
            scene(thing("worker", (4.0, 9.0), helmet=False, vest=False), thing("worker", (0.0, 9.0), vest=False)),
            [
                Claim("missing_ppe", "on the right", "helmet or vest"),
                Claim("missing_ppe", "in the middle", "vest"),
                Claim(workers=2),
            ],
        ),
        (
            scene(effects=(Effect(kind="fire", at=(-4.0, 10.0), size_m=0.7),)),
            [Claim("fire", "on the left", "low"), Claim(workers=0)],
        ),
        (
            scene(effects=(Effect(kind="smoke", at=(0.0, 12.0), size_m=4.0),)),
            [Claim("smoke", "in the middle", "thick"), Claim(workers=0)],
        ),
        (
            scene(effects=(Effect(kind="spill", at=(4.0, 9.0), size_m=1.3),)),
            [Claim("spill", "on the right", "large"), Claim(workers=0)],
        ),
        (
            scene(thing("worker", (0.0, 9.0), posture="down", heading=1.5)),
            [Claim("person_down", "in the middle"), Claim(workers=1)],
        ),
        (
            scene(thing("cone", (0.0, 9.0)), zones=(Zone(kind="walkway", x=(-0.8, 0.8), z=(4.0, 16.0)),)),
            [Claim("blocked_path", "in the middle", "cone"), Claim(workers=0)],
        ),
        (
            scene(thing("forklift", (0.0, 11.0)), thing("worker", (1.6, 11.0))),
            [Claim("vehicle_proximity", "in the middle", "forklift"), Claim(workers=1)],
        ),
    ],
)
def test_what_may_be_said(shown: Scene, expected: list[Claim]) -> None:
    truth = truth_of(shown)
    assert claims(truth) == expected
    assert all(agrees(claim, truth) for claim in expected)


def test_what_is_written_is_read_back_and_true() -> None:
    for seed in range(12):
        truth = truth_of(compose(seed))
        allowed = claims(truth)
        for chance in range(8):
            note = write(truth, random.Random(chance))
            said = read(note)
            assert 10 <= len(note) <= 240
            assert said[0] == allowed[0]
            assert said[-1] == allowed[-1]
            assert all(agrees(claim, truth) for claim in said), note


def test_notes_vary() -> None:
    truth = truth_of(CALM)
    assert len({write(truth, random.Random(chance)) for chance in range(30)}) == 3


@pytest.mark.parametrize(
    "note",
    [
        "A worker on the left wears no helmet.",
        "There is no hazard. Two workers in view.",
        "Low flames burn on the left.",
        "Everything looks fine to me.",
        "",
    ],
)
def test_what_is_not_true_does_not_agree(note: str) -> None:
    truth = truth_of(scene(thing("worker", (4.0, 9.0), helmet=False)))
    said = read(note)
    assert not any(agrees(claim, truth) for claim in said)
    assert len(said) == note.count(".")


def test_near_the_border_of_two_thirds_both_may_be_said() -> None:
    truth = truth_of(scene(thing("worker", (-1.98, 9.0), posture="down", heading=0.2)))
    x = sum(truth.things[0].box_xyxy_px[::2]) / 2 / 640
    assert abs(x - 1 / 3) < 0.05
    assert agrees(Claim("person_down", "on the left"), truth)
    assert agrees(Claim("person_down", "in the middle"), truth)
    assert not agrees(Claim("person_down", "on the right"), truth)
