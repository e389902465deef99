"""How good the demo's detector is: on drawn scenes through Ultralytics, on the clip through the product."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drawn_site.dataset import write_dataset
from hazardlens.detect.base import Detections
from hazardlens.detect.ultralytics_setup import YOLO
from hazardlens.detect.yolo import YoloDetector
from hazardlens.frames.file import VideoFile

IMAGE_SIZE = 320
CONFIDENCE = 0.25
_HALF = 0.5
_SAME = 0.5
"""Least overlap (intersection over union) at which a detection is the thing."""


def measure_scenes(weights: Path, out: Path, seeds: Iterable[int]) -> dict[str, Any]:
    """MAP on drawn scenes, by Ultralytics' own validation.

    Args:
        weights: The detector.
        out: Working folder; scenes that are not there yet are drawn.
        seeds: The scenes.
    """
    seeds = list(seeds)
    data = write_dataset(out / "scenes", {"test": seeds}, name="measured")
    metrics = YOLO(weights).val(
        data=str(data), split="test", imgsz=IMAGE_SIZE, batch=16, workers=0, device="cpu", plots=False, verbose=False,
        project=str(out.resolve()), name="measure", exist_ok=True,
    )  # fmt: skip
    return {
        "scenes": len(seeds),
        "mAP50": round(float(metrics.box.map50), 4),
        "mAP50-95": round(float(metrics.box.map), 4),
        "by class": {
            metrics.names[int(k)]: {"mAP50": round(float(fifty), 4), "mAP50-95": round(float(mean), 4)}
            for k, fifty, mean in zip(metrics.box.ap_class_index, metrics.box.ap50, metrics.box.ap, strict=True)
        },
    }


def measure_clip(weights: Path, clip: Path, truth: dict[str, Any], *, every: int = 1) -> dict[str, Any]:
    """How much of a clip's things is found, and how long tracks last.

    A thing counts in the frames in which at least half of it shows.

    Args:
        weights: The detector.
        clip: The video.
        truth: Its truth file's content.
        every: Look at each so many-th frame only; above 1 nothing is tracked.
    """
    detector = YoloDetector(weights, confidence=CONFIDENCE, image_size_px=IMAGE_SIZE, track=every == 1)
    counted: Counter[str] = Counter()
    tracks: defaultdict[str, Counter[int | None]] = defaultdict(Counter)
    with VideoFile(clip) as video:
        for frame in video:
            if frame.index % every:
                continue
            (detections,) = detector.detect([frame], stream="clip")
            for thing in truth["frames"][frame.index]["things"]:
                if thing["share"] < _HALF:
                    continue
                name = f"{thing['class']} {thing['track']}"
                counted[name] += 1
                found = best_match(detections, thing["class"], thing["box_xyxy"])
                if found is not None:
                    tracks[name][detections.track_id[found]] += 1
    return {name: _figures(count, tracks[name]) for name, count in sorted(counted.items())}


def _figures(count: int, tracks: Counter[int | None]) -> dict[str, Any]:
    return {
        "frames": count,
        "found": round(sum(tracks.values()) / count, 4),
        "longest track": round(max(tracks.values(), default=0) / count, 4),
        "tracks": len(tracks),
    }


def best_match(detections: Detections, kind: str, box_xyxy_px: Sequence[float]) -> int | None:
    """The detection of a kind that overlaps a box most, if by enough."""
    candidates = [k for k in range(len(detections)) if detections.class_name(k) == kind]
    overlaps = overlap(detections.boxes_xyxy_px[candidates], np.asarray(box_xyxy_px, np.float32))
    if not len(overlaps) or overlaps.max() < _SAME:
        return None
    return candidates[int(overlaps.argmax())]


def overlap(boxes: NDArray[np.float32], box: NDArray[np.float32]) -> NDArray[np.float32]:
    """Intersection over union of boxes, shape (n, 4), with one box; shape (n,)."""
    low, high = np.maximum(boxes[:, :2], box[:2]), np.minimum(boxes[:, 2:], box[2:])
    both = np.prod(np.clip(high - low, 0, None), axis=1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) + np.prod(box[2:] - box[:2])
    return np.asarray(both / np.maximum(areas - both, 1e-9), np.float32)
