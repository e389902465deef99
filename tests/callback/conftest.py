"""Models with random weights that see something, for every task that has boxes."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hazardlens.testing.video import draw_video
from tests.callback.sights import build


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Every test leaves as many threads as it found, once its models are gone."""
    before = set(threading.enumerate())
    yield
    deadline_s = time.monotonic() + 10
    while (left := ours() - before) and time.monotonic() < deadline_s:
        gc.collect()
        time.sleep(0.01)
    assert not left


def ours() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if "hazardlens" in thread.name}


@pytest.fixture(scope="session")
def sighted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Weights of a YOLO26n for a task: random, but for the last layer, so that it finds persons and follows them."""
    folder = tmp_path_factory.mktemp("sighted")
    return lambda task: build(folder, task)


@pytest.fixture
def load(sighted: Callable[[str], Path]) -> Iterator[Callable[..., Any]]:
    """Loads such a model; small pictures, a few objects, nothing printed."""
    from ultralytics import YOLO

    def make(task: str = "detect") -> Any:
        model = YOLO(sighted(task))
        model.overrides.update(imgsz=64, max_det=4, verbose=False)
        return model

    return make


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    """25 frames at 10 per second, each showing its number, stored without loss."""
    return draw_video(tmp_path / "clip.mkv", frames=25, rate=10, size_wh=(96, 64), codec="ffv1", pixel_format="bgr0")
