"""No scene that is measured on was trained on."""

from itertools import combinations

from drawn_site.seeds import CLIP, HELD_OUT, TRAINING, VALIDATION

RANGES = (TRAINING, VALIDATION, HELD_OUT)


def test_the_ranges_share_no_seed() -> None:
    for one, other in combinations(RANGES, 2):
        assert one.stop <= other.start or other.stop <= one.start


def test_the_clip_lies_outside_them() -> None:
    assert not any(CLIP in seeds for seeds in RANGES)


def test_the_held_out_scenes_are_as_many_as_the_figures_say() -> None:
    assert len(HELD_OUT) == 2000
