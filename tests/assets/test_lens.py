"""What camera and recording do to a picture."""

import numpy as np
import pytest

from drawn_site.lens import record
from drawn_site.scene import Lens

GREY = np.full((90, 160, 3), 128, np.uint8)
STEP = np.where(np.arange(160)[None, :, None] < 80, GREY, 20).astype(np.uint8)


def recorded(image: np.ndarray, **lens: float) -> np.ndarray:
    return record(image, Lens(**lens), np.random.default_rng(1))  # type: ignore[arg-type]


def test_a_perfect_lens_changes_nothing() -> None:
    assert recorded(STEP).tobytes() == STEP.tobytes()


@pytest.mark.parametrize("level", [2.0, 6.0])
def test_noise_is_as_strong_as_said(level: float) -> None:
    assert recorded(GREY, noise=level).astype(float).std() == pytest.approx(level, rel=0.1)


def test_blur_softens_an_edge_and_leaves_the_rest() -> None:
    soft = recorded(STEP, blur_px=8.0)
    assert 20 < soft[45, 80, 0] < 128
    assert soft[45, 5].tolist() == STEP[45, 5].tolist()


def test_blur_grows_with_the_picture() -> None:
    wide = np.concatenate([STEP, STEP[:, ::-1]], axis=1)
    assert len(np.unique(recorded(wide, blur_px=4.0))) > len(np.unique(recorded(STEP, blur_px=4.0)))


def test_compression_loses_little_at_a_high_quality_and_more_at_a_low_one() -> None:
    noisy = recorded(GREY, noise=8.0)
    losses = [np.abs(recorded(noisy, jpeg=quality).astype(int) - noisy).mean() for quality in (95, 40)]
    assert 0 < losses[0] < 0.9 * losses[1]
