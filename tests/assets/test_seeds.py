"""No scene that is measured on was trained on."""

import re
from itertools import combinations

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


def test_trainings_stay_within_their_ranges() -> None:
    for path in (DEMO / "train_detector.py", DEMO / "train_vlm.py"):
        source = path.read_text()
        assert "HELD_OUT" not in source
        numbers = _numbers(source)
        assert numbers["SCENES"] <= len(TRAINING)
        assert numbers.get("WATCHED", 0) <= len(VALIDATION)


def _numbers(source: str) -> dict[str, int]:
    """Values of the constants that a script sets at its top, such as `SCENES, WATCHED = 10_000, 400`."""
    found: dict[str, int] = {}
    for names, values in re.findall(r"^([A-Z_, ]+) = ([0-9_, ]+)$", source, re.MULTILINE):
        found |= zip(names.split(", "), map(int, values.split(", ")), strict=True)
    return found
