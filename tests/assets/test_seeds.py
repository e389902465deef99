"""No scene that is measured on was trained on."""

import importlib
from itertools import combinations
from pathlib import Path

import pytest

from drawn_site.seeds import CLIP, HELD_OUT, TRAINING, VALIDATION
from hazardlens.resources import data_path

DEMO = data_path("assets", "demo")
RANGES = (TRAINING, VALIDATION, HELD_OUT)


def test_the_ranges_share_no_seed() -> None:
    for one, other in combinations(RANGES, 2):
        assert one.stop <= other.start or other.stop <= one.start


def test_the_clip_lies_outside_them() -> None:
    assert not any(CLIP in seeds for seeds in RANGES)


def test_the_held_out_scenes_are_as_many_as_the_figures_say() -> None:
    assert len(HELD_OUT) == 2000


def test_trainings_stay_within_their_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DEMO))
    detector, vlm = (importlib.import_module(name) for name in ("train_detector", "train_vlm"))
    for script in (detector, vlm):
        assert "HELD_OUT" not in Path(script.__file__).read_text()
    assert detector.SCENES in range(len(TRAINING) + 1)
    assert detector.WATCHED in range(len(VALIDATION) + 1)
    assert {*vlm.SEEDS} <= {*TRAINING}
