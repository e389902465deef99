"""Counting what a detector finds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drawn_site.clip import write_clip
from drawn_site.seeds import CLIP
from drawn_site.story import tell
from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.resources import asset_package

asset_package("site_detector")
from site_detector import measure  # noqa: E402


def seen(*boxes: tuple[str, tuple[float, float, float, float]], tracks: tuple[int, ...] = ()) -> Detections:
    names = {0: "worker", 1: "truck"}
    return Detections(
        boxes_xyxy_px=np.array([box for _, box in boxes], np.float32).reshape(-1, 4),
        confidence=np.ones(len(boxes), np.float32),
        class_id=np.array([0 if kind == "worker" else 1 for kind, _ in boxes], np.int64),
        track_id=tracks or (None,) * len(boxes),
        class_names=names,
    )


def test_overlap_by_hand() -> None:
    boxes = np.array([(0, 0, 10, 10), (5, 0, 15, 10), (20, 20, 30, 30), (2, 2, 8, 8)], np.float32)
    assert measure.overlap(boxes, np.array((0, 0, 10, 10), np.float32)) == pytest.approx([1.0, 1 / 3, 0.0, 0.36])
    assert len(measure.overlap(boxes[:0], boxes[0])) == 0


def test_the_best_match_is_of_the_kind_and_overlaps_by_half() -> None:
    detections = seen(("truck", (0, 0, 10, 10)), ("worker", (3, 0, 13, 10)), ("worker", (1, 0, 11, 10)))
    assert measure.best_match(detections, "worker", (0, 0, 10, 10)) == 2
    assert measure.best_match(detections, "truck", (0, 0, 10, 10)) == 0
    assert measure.best_match(detections, "worker", (6, 0, 16, 10)) == 1
    assert measure.best_match(detections, "truck", (6, 0, 16, 10)) is None
    assert measure.best_match(seen(), "worker", (0, 0, 10, 10)) is None


def test_a_clip_is_counted_thing_by_thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten frames, a worker of whom half shows in eight of them, and who is found in six of these under two ids."""
    story = tell(CLIP + 1)
    monkeypatch.setattr("drawn_site.clip.tell", lambda _: type(story)(duration_s=10 / 12, scene_at=story.scene_at))
    clip = tmp_path / "clip.mp4"
    write_clip(clip, CLIP + 1, (320, 180), oversample=1)
    box = [10.0, 10.0, 20.0, 30.0]

    def things(index: int) -> list[dict[str, Any]]:
        worker = {"track": 3, "class": "worker", "box_xyxy": box, "share": 0.4 if index < 2 else 0.9}
        return [worker, {"track": 4, "class": "cone", "box_xyxy": box, "share": 1.0}]  # never found

    truth = {"frames": [{"things": things(index)} for index in range(10)]}
    box_xyxy = (box[0], box[1], box[2], box[3])

    class Scripted:
        """Stands for a detector: finds the worker where the test says so."""

        def detect(self, frames: list[Frame], *, stream: str) -> list[Detections]:
            index = frames[0].index
            return [seen(("worker", box_xyxy), tracks=(1 if index < 6 else 2,)) if index not in (4, 9) else seen()]

    monkeypatch.setattr(measure, "YoloDetector", lambda *_, **__: Scripted())
    figures = measure.measure_clip(Path("weights.pt"), clip, truth)
    assert figures == {
        "cone 4": {"frames": 10, "found": 0.0, "longest track": 0.0, "tracks": 0},
        "worker 3": {"frames": 8, "found": 0.75, "longest track": 0.375, "tracks": 2},
    }
