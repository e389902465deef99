"""Scenes drawn by lot."""

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from drawn_site.camera import Projection
from drawn_site.compose import compose
from drawn_site.geometry import gap_m, gap_to_circle_m, gap_to_zone_m, outline
from drawn_site.rules import CLOSE_M, TALL_FIRE_M, TALL_SMOKE_M, TOUCHING_M, WIDE_SPILL_M, flame_radius_m
from drawn_site.scene import KINDS, VEHICLES, EffectKind, Scene, Thing

SEEDS = range(150)


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [compose(seed) for seed in SEEDS]


def meetings(scene: Scene) -> list[float]:
    """Distance of every person from every vehicle, in metres."""
    people = [thing for thing in scene.things if thing.kind == "worker"]
    return [gap_m(person, vehicle) for person in people for vehicle in scene.things if vehicle.kind in VEHICLES]


def on_zone(thing: Thing, scene: Scene) -> bool:
    return thing.kind != "worker" and any(gap_to_zone_m(thing, zone) <= 0 for zone in scene.site.zones)


def test_a_seed_is_a_scene(scenes: list[Scene]) -> None:
    assert compose(3) == scenes[3]
    assert len(set(scenes)) == len(scenes)


def test_things_are_numbered_from_one(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert [thing.track for thing in scene.things] == list(range(1, len(scene.things) + 1))


def test_no_two_things_stand_in_each_other(scenes: list[Scene]) -> None:
    for seed, scene in zip(SEEDS, scenes, strict=True):
        for one, other in combinations(scene.things, 2):
            assert gap_m(one, other) > 0.05, (seed, one, other)


def test_things_stand_between_the_walls(scenes: list[Scene]) -> None:
    for scene in scenes:
        for thing in scene.things:
            x, z = outline(thing).T
            assert scene.site.side_x[0] < x.min()
            assert x.max() < scene.site.side_x[1]
            assert 0 < z.max() < scene.site.wall_z


def test_the_camera_sees_where_nearly_all_of_them_stand(scenes: list[Scene]) -> None:
    seen = []
    for scene in scenes:
        places = np.array([(thing.at[0], 0.0, thing.at[1]) for thing in scene.things]).reshape(-1, 3)
        x, y = Projection(scene.camera, (640, 360))(places)[0].T
        seen += list((x > 0) & (x < 640) & (y > 0) & (y < 360))
    assert np.mean(seen) > 0.95


def test_no_one_is_almost_too_close_to_a_vehicle(scenes: list[Scene]) -> None:
    gaps = [gap for scene in scenes for gap in meetings(scene)]
    assert not [gap for gap in gaps if CLOSE_M - 0.05 < gap < CLOSE_M + 0.99 or abs(gap - TOUCHING_M) < 0.04]
    assert [gap for gap in gaps if gap < TOUCHING_M]
    assert [gap for gap in gaps if TOUCHING_M < gap < CLOSE_M]


def test_nothing_almost_stands_on_a_zone(scenes: list[Scene]) -> None:
    for scene in scenes:
        for thing in scene.things:
            if thing.kind != "worker":
                assert not any(0 < gap_to_zone_m(thing, zone) < 0.3 for zone in scene.site.zones)


def test_every_hazard_is_drawn_and_many_scenes_have_none(scenes: list[Scene]) -> None:
    found = Counter(
        name
        for scene in scenes
        for name, there in {
            **{effect.kind: True for effect in scene.effects},
            "person_down": any(thing.posture == "down" for thing in scene.things),
            "missing_ppe": any(not (thing.helmet and thing.vest) for thing in scene.things),
            "vehicle_proximity": any(gap < CLOSE_M for gap in meetings(scene)),
            "blocked_path": any(on_zone(thing, scene) for thing in scene.things),
        }.items()
        if there
    )
    assert set(found) == {
        "fire", "smoke", "spill", "person_down", "missing_ppe", "vehicle_proximity", "blocked_path"
    }  # fmt: skip
    assert min(found.values()) >= 5
    assert sum(found.values()) < 1.2 * len(scenes)


@pytest.mark.parametrize(
    ("kind", "threshold_m"), [("fire", TALL_FIRE_M), ("smoke", TALL_SMOKE_M), ("spill", WIDE_SPILL_M)]
)
def test_effects_are_clearly_small_or_clearly_large(scenes: list[Scene], kind: EffectKind, threshold_m: float) -> None:
    sizes = [effect.size_m for scene in scenes for effect in scene.effects if effect.kind == kind]
    assert min(sizes) < threshold_m < max(sizes)
    assert all(abs(size / threshold_m - 1) > 0.15 for size in sizes)


def test_nothing_almost_touches_an_effect(scenes: list[Scene]) -> None:
    gaps = [
        gap_to_circle_m(thing, effect.at, flame_radius_m(effect))
        for scene in scenes
        for effect in scene.effects
        for thing in scene.things
    ]
    assert not [gap for gap in gaps if 0.1 < gap < 0.9]
    assert [gap for gap in gaps if gap < 0.1]


def test_kinds_hours_and_looks_vary(scenes: list[Scene]) -> None:
    kinds = Counter(thing.kind for scene in scenes for thing in scene.things)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) > 50
    assert {scene.hour for scene in scenes} == {"day", "dusk", "night"}
    assert {scene.site.indoor for scene in scenes} == {True, False}
    assert {thing.posture for scene in scenes for thing in scene.things} == {"stand", "walk", "work", "down"}
    assert len({scene.camera for scene in scenes}) == len(scenes)


def test_nothing_wrong_is_wrong_with_most(scenes: list[Scene]) -> None:
    """What is worn and done is as planned: nobody is bareheaded or down by chance."""
    people = [thing for scene in scenes for thing in scene.things if thing.kind == "worker"]
    assert sum(thing.helmet and thing.vest for thing in people) > 0.8 * len(people)
    assert sum(thing.posture == "down" for thing in people) < 0.15 * len(people)
