"""Pictures, and what of each thing shows in them."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import drawn_site
from drawn_site import render as rendering
from drawn_site.compose import compose
from drawn_site.props import clutter
from drawn_site.render import Picture, render
from drawn_site.rules import judge
from drawn_site.scene import DOWN_M, FOOTPRINT_M, KINDS, Camera, Clutter, Effect, Kind, Point, Scene, Thing
from drawn_site.solids import Hull
from hazardlens.resources import data_path
from tests.assets.scenes import CAMERA, scene, thing

SMALL = (320, 180)


@pytest.fixture
def no_shadows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shadow changes pixels that are not the thing's."""
    monkeypatch.setitem(rendering._SHADOW, "day", 0.0)


def drawn(one: Scene) -> Picture:
    return render(one, SMALL, oversample=1)


def changed(one: Scene, other: Scene) -> np.ndarray:
    """Where two scenes' pictures differ, shape (H, W)."""
    difference: np.ndarray = (drawn(one).image != drawn(other).image).any(2)
    return difference


def bounds(mask: np.ndarray) -> tuple[float, float, float, float]:
    ys, xs = np.nonzero(mask)
    return float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1)


FINGERPRINT = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from drawn_site.compose import compose
from drawn_site.render import render
from drawn_site.rules import judge
scene = compose(7)
picture = render(scene, (320, 180), seed=7)
print(hashlib.sha256(picture.image.tobytes() + repr((scene, judge(scene, picture))).encode()).hexdigest())
"""


def test_a_seed_gives_the_same_bytes_and_truth_in_every_process() -> None:
    folder = Path(str(drawn_site.__file__)).parent.parent
    runs = [
        subprocess.run(
            [sys.executable, "-B", "-c", FINGERPRINT, folder],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
        )
        for seed in ("1", "2")
    ]
    assert runs[0].stdout == runs[1].stdout != "", runs[0].stderr


def test_another_seed_gives_another_picture() -> None:
    images = [render(compose(seed), SMALL, seed=seed).image.tobytes() for seed in (1, 1, 2)]
    assert images[0] == images[1] != images[2]


def test_the_noise_has_a_seed_of_its_own() -> None:
    one = compose(4)
    first, second = render(one, SMALL, seed=1), render(one, SMALL, seed=2)
    assert (first.image != second.image).any()
    assert judge(one, first) == judge(one, second)


def test_a_larger_picture_has_larger_boxes() -> None:
    one = scene(thing("worker"), thing("truck", (-5.0, 14.0), heading=1.0))
    small, large = render(one, SMALL), render(one, (640, 360))
    assert large.image.shape == (360, 640, 3)
    for less, more in zip(small.things, large.things, strict=True):
        assert less.box_xyxy_px is not None
        assert more.box_xyxy_px == pytest.approx([2 * value for value in less.box_xyxy_px], abs=1.5)


@pytest.mark.usefixtures("no_shadows")
@pytest.mark.parametrize("kind", KINDS)
def test_a_box_holds_the_pixels_that_the_thing_changes_and_no_more(kind: Kind) -> None:
    others = thing("pallet", (-4.0, 9.0)), thing("worker", (4.0, 14.0))
    one = scene(thing(kind, heading=0.6, look=5), *others)
    difference = changed(one, replace(one, things=one.things[1:]))
    shown = drawn(one).things[0]
    assert shown.share == 1.0
    assert shown.box_xyxy_px == pytest.approx(bounds(difference), abs=1)


@pytest.mark.usefixtures("no_shadows")
def test_a_puddles_box_holds_the_pixels_that_it_changes_and_no_more() -> None:
    one = scene(effects=(Effect(kind="spill", at=(1.0, 10.0), size_m=1.0),))
    shown = drawn(one).effects[0]
    assert shown.share == 1.0
    assert shown.box_xyxy_px == pytest.approx(bounds(changed(one, scene())), abs=1)


@pytest.mark.parametrize(
    "at",
    [(0.0, 17.0), (-9.5, 5.0), (0.0, -3.0)],
    ids=["behind a truck", "left of the picture", "behind the camera"],
)
def test_what_is_hidden_has_no_box(at: Point) -> None:
    truck, cone = thing("truck", (0.0, 11.0), heading=1.57), thing("cone", at)
    shown = drawn(scene(cone, truck)).things[0]
    assert (shown.box_xyxy_px, shown.share, shown.upper) == (None, 0.0, 0.0)
    assert [one.kind for one in judge(scene(cone, truck), drawn(scene(cone, truck))).things] == ["truck"]


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_half_out_of_the_picture_is_about_half(side: float) -> None:
    """A cone whose middle, 0.3 m above the ground, lies on the picture's edge."""
    depth = 12.0 * np.cos(CAMERA.pitch) + (CAMERA.height_m - 0.3) * np.sin(CAMERA.pitch)
    edge = side * 0.5 * depth / CAMERA.focal
    shown = render(scene(thing("cone", (edge, 12.0))), (640, 360)).things[0]
    assert shown.share == pytest.approx(0.5, abs=0.1)
    assert shown.box_xyxy_px is not None
    assert shown.box_xyxy_px[0 if side < 0 else 2] == (0 if side < 0 else 640)


def test_what_stands_in_front_takes_its_share() -> None:
    worker = thing("worker", (0.0, 12.0), heading=3.0)
    free = drawn(scene(worker)).things[0]
    behind = drawn(scene(worker, thing("pallet", (0.0, 10.6), look=1, loaded=True))).things[0]
    assert free.share == free.upper == 1.0
    assert 0.3 < behind.share < 0.8
    assert behind.upper > 0.95, "the pallet hides the legs"
    assert behind.box_xyxy_px is not None
    assert free.box_xyxy_px is not None
    assert behind.box_xyxy_px[3] < free.box_xyxy_px[3] - 5


def test_the_order_of_things_does_not_matter() -> None:
    one = scene(thing("worker", (0.0, 12.0)), thing("forklift", (0.6, 10.0)), thing("cone", (1.0, 9.0)))
    turned = drawn(replace(one, things=one.things[::-1]))
    assert drawn(one).image.tobytes() == turned.image.tobytes()
    assert drawn(one).things == turned.things[::-1]


@pytest.mark.usefixtures("no_shadows")
@pytest.mark.parametrize(
    ("change", "highest", "lowest"),
    [({"helmet": False}, 0.0, 0.25), ({"vest": False}, 0.1, 0.6), ({"posture": "work"}, 0.0, 1.0)],
)
@pytest.mark.parametrize("look", [1, 2])
def test_what_a_worker_wears_and_does_can_be_seen(
    change: dict[str, object], highest: float, lowest: float, look: int
) -> None:
    before = thing("worker", (0.0, 9.0), heading=2.0, look=look)
    difference = changed(scene(before), scene(replace(before, **change)))  # type: ignore[arg-type]
    _, top, _, bottom = drawn(scene(before)).things[0].box_xyxy_px or (0, 0, 0, 0)
    height = bottom - top
    assert difference.sum() > 0.04 * height**2 / 4
    assert bounds(difference)[1] >= top + highest * height - 1
    assert bounds(difference)[3] <= top + lowest * height + 1


@pytest.mark.parametrize("look", [1, 2, 3])
def test_who_lies_on_the_ground_is_wide_and_low(look: int) -> None:
    boxes = [
        drawn(scene(thing("worker", heading=1.57, look=look, posture=posture))).things[0].box_xyxy_px or (0, 0, 0, 0)
        for posture in ("stand", "down")
    ]
    (stand_w, stand_h), (down_w, down_h) = [(x1 - x0, y1 - y0) for x0, y0, x1, y1 in boxes]
    assert stand_h > 2 * stand_w
    assert down_w > 1.5 * down_h
    assert down_h < 0.6 * stand_h


def test_night_is_darker_and_a_fire_lights_it() -> None:
    day, night = drawn(scene()).image, drawn(scene(hour="night")).image
    fire = drawn(scene(hour="night", effects=(Effect(kind="fire", at=(0.0, 11.0), size_m=1.0),))).image
    assert night.mean() < 0.65 * day.mean()
    floor = slice(120, 140), slice(140, 180)
    assert fire[floor].mean() > 1.2 * night[floor].mean()


@pytest.mark.parametrize("kind", ["fire", "smoke"])
def test_flames_and_smoke_rise_as_high_as_said_and_move(kind: str) -> None:
    level = Camera(height_m=2.0, pitch=0.0)
    one = scene(effects=(Effect(kind=kind, at=(0.0, 10.0), size_m=1.5),), camera=level)  # type: ignore[arg-type]
    _, top, _, bottom = drawn(one).effects[0].box_xyxy_px or (0, 0, 0, 0)
    px_per_m = level.focal * SMALL[0] / 10
    assert (bottom - top) / px_per_m == pytest.approx(1.5, abs=0.5)
    assert changed(one, replace(one, time_s=0.5)).any()


@pytest.mark.parametrize("kind", ["barrel", "crate", "pipes", "cabinet"])
def test_clutter_is_drawn_and_has_no_truth(kind: str) -> None:
    item = Clutter(kind=kind, at=(0.0, 10.0), heading=0.2, look=1)  # type: ignore[arg-type]
    empty = scene()
    full = replace(empty, site=replace(empty.site, clutter=(item,)))
    assert changed(empty, full).any()
    assert judge(full, drawn(full)).things == ()
    assert clutter(item)


REACH_M: dict[Kind, float] = {"forklift": 0.26, "truck": 0.06, "ladder": 0.03, "cone": 0.03, "pallet": 0.01}
"""A forklift's forks reach out of its footprint, its counterweight does not fill it."""


@pytest.mark.parametrize("kind", REACH_M)
@pytest.mark.parametrize("loaded", [False, True])
def test_a_footprint_is_the_ground_that_a_thing_is_drawn_on(kind: Kind, loaded: bool) -> None:
    (right, ahead), (left, behind) = extents([thing(kind, (0, 0), look=look, loaded=loaded) for look in range(20)])
    width, length = FOOTPRINT_M[kind]
    assert (right, -left) == pytest.approx([width / 2] * 2, abs=0.05)
    assert (ahead, -behind) == pytest.approx([length / 2] * 2, abs=REACH_M[kind])


def test_a_person_on_the_ground_is_as_long_as_the_footprint() -> None:
    (_, ahead), (_, behind) = extents([thing("worker", (0, 0), look=look, posture="down") for look in range(20)])
    assert (ahead, -behind) == pytest.approx([DOWN_M / 2] * 2, abs=0.05)


def extents(things: list[Thing]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Farthest that any of them reaches, along x and z: right and ahead, left and behind."""
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for one in things:
        for piece in [piece for body in rendering._BUILD[one.kind](one) for piece in body]:
            radii = piece.radii_m[:, None] if isinstance(piece, Hull) else 0.0
            low, high = np.minimum(low, (piece.points - radii).min(0)), np.maximum(high, (piece.points + radii).max(0))
    return (float(high[0]), float(high[2])), (float(low[0]), float(low[2]))


def test_a_drawn_place_is_not_drawn_on() -> None:
    one = scene(thing("truck"))
    assert drawn(scene()).image.tobytes() != drawn(one).image.tobytes()
    assert drawn(scene()).image.tobytes() == drawn(scene()).image.tobytes()


def test_the_readmes_example_runs() -> None:
    readme = data_path("assets", "demo/README.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    run = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert run.stdout.startswith("Verdict(hazard=")
