"""The bundled detector does what its card says, on a small fixed sample; the card's figures are for 2,000 scenes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from drawn_site.scene import KINDS, VEHICLES
from drawn_site.seeds import HELD_OUT
from hazardlens.detect.yolo import YoloDetector
from hazardlens.resources import asset_package, data_path

asset_package("site_detector")
from site_detector.measure import measure_clip, measure_scenes  # noqa: E402

WEIGHTS = data_path("assets", "models/demo-yolo26n.pt")
CLIP = data_path("assets", "demo/site.mp4")
SAMPLE = HELD_OUT[::40]


def moves(thing: str) -> bool:
    """Whether it is a worker or a vehicle, by its name in the figures."""
    return thing.split()[0] in {"worker", *VEHICLES}


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    return json.loads(WEIGHTS.with_suffix(".json").read_text())


def test_the_weights_are_small_and_know_things_only() -> None:
    detector = YoloDetector(WEIGHTS, image_size_px=320)
    assert WEIGHTS.stat().st_size <= 6_000_000
    assert detector.class_names == dict(enumerate(KINDS))


def test_nothing_of_the_machine_that_trained_it_is_in_the_weights() -> None:
    assert not re.search(rb"/(home|root|tmp|work|mnt)/", WEIGHTS.read_bytes())


def test_the_card_tells_the_figures(figures: dict[str, Any]) -> None:
    card = WEIGHTS.with_suffix(".md").read_text()
    held_out = figures["held-out scenes"]
    assert held_out["scenes"] == len(HELD_OUT)
    for name in ("mAP50", "mAP50-95"):
        assert f"| all | {held_out['mAP50']:.3f} | {held_out['mAP50-95']:.3f} |" in card, name
    for kind, one in held_out["by class"].items():
        assert f"| {kind} | {one['mAP50']:.3f} | {one['mAP50-95']:.3f} |" in card
    for thing, one in figures["clip"].items():
        assert f"| {thing} | {one['frames']} | {100 * one['found']:.1f} % | {one['tracks']} |" in card


def test_a_sample_of_the_held_out_scenes(figures: dict[str, Any], tmp_path: Path) -> None:
    sample = measure_scenes(WEIGHTS, tmp_path, SAMPLE)
    held_out = figures["held-out scenes"]
    assert sample["scenes"] == len(SAMPLE) == 50
    assert sample["mAP50"] == pytest.approx(held_out["mAP50"], abs=0.05)
    assert sample["mAP50-95"] == pytest.approx(held_out["mAP50-95"], abs=0.06)
    assert set(sample["by class"]) == set(KINDS)


def test_workers_and_vehicles_of_the_clip_are_found(figures: dict[str, Any]) -> None:
    truth = json.loads(CLIP.with_suffix(".truth.json").read_text())
    found = measure_clip(WEIGHTS, CLIP, truth, every=6)
    assert found.keys() == figures["clip"].keys()
    assert all(one["found"] >= 0.95 for thing, one in found.items() if moves(thing))


@pytest.mark.full
def test_the_whole_clip(figures: dict[str, Any]) -> None:
    truth = json.loads(CLIP.with_suffix(".truth.json").read_text())
    clip = measure_clip(WEIGHTS, CLIP, truth)
    for thing, told in figures["clip"].items():
        assert clip[thing]["found"] == pytest.approx(told["found"], abs=0.02)
        assert clip[thing]["found"] >= (0.95 if moves(thing) else 0.0)
        assert clip[thing]["tracks"] <= told["tracks"]
