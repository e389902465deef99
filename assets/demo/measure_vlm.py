"""Measures the demo's vision-language model on the held-out scenes, through the product's prompt, mask and decoding.

python assets/demo/measure_vlm.py assets/models/demo-vlm --out runs/vlm
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from drawn_site.dataset import read_scene, write_dataset
from drawn_site.rules import SEVERITIES, Truth
from drawn_site.seeds import HELD_OUT
from hazardlens.demo.clips import shipped_clip
from hazardlens.demo.comparison import compare
from hazardlens.detect.yolo import YoloDetector
from hazardlens.video import process
from hazardlens.vlm.calibration import Temperatures
from hazardlens.vlm.local import CONFIDENCE_TEMPERATURE, LocalVlm
from site_vlm.examples import VIEW
from site_vlm.measure import PromptOnly, Scores, Sight, calibration_errors, measure

WAYS = ("true boxes", "detected boxes", "blank picture", "prompt only")
"""What the model is given; the last two tell what it says without looking."""

_SOON_S = 1.5
_MODELS = Path(__file__).parents[1] / "models"


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="working folder")
    parser.add_argument("--scenes", type=Path, help="scenes already drawn; OUT/scenes otherwise")
    parser.add_argument("--detector", type=Path, default=_MODELS / "demo-yolo26n.pt")
    parser.add_argument("--count", type=int, default=len(HELD_OUT), help="only so many of the held-out scenes")
    options = parser.parse_args()
    folder, seeds = options.scenes or options.out / "scenes", HELD_OUT[: options.count]
    write_dataset(folder, {"test": seeds}, name="measured")
    truths = Counter(truth.verdict.hazard for _, truth in _scenes(folder, seeds))
    ask = functools.partial(_ask, options.model, options.detector, folder, seeds)
    with multiprocessing.get_context("spawn").Pool(2, torch.set_num_threads, (1,)) as pool:
        scores = dict(zip(WAYS, pool.map(ask, WAYS, chunksize=1), strict=True))
    temperatures = json.loads((options.model / "config.json").read_text()).get(CONFIDENCE_TEMPERATURE, {})
    judgements = scores["true boxes"].judgements
    figures = {
        "majority": round(max(truths.values()) / len(seeds), 4),
        **{way: one.figures() for way, one in scores.items()},
        "calibration error": {
            "temperatures": temperatures,
            "before": calibration_errors(judgements, Temperatures({at: 1 / own for at, own in temperatures.items()})),
            "after": calibration_errors(judgements, Temperatures(1.0)),
        },
        "clip": _clip(options.model),
    }
    text = json.dumps(figures, indent=2)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "figures.json").write_text(text + "\n")
    print(text)


def _ask(model: Path, weights: Path, folder: Path, seeds: range, way: str) -> Scores:
    kind = PromptOnly if way == "prompt only" else LocalVlm
    detector = YoloDetector(weights, image_size_px=320, track=False) if way == "detected boxes" else None
    vlm = kind(model, device="cpu", view=VIEW)
    sight: Sight = "blank" if way == "blank picture" else "picture"
    return measure(vlm, _scenes(folder, seeds), detector=detector, sight=sight)


def _clip(model: Path) -> dict[str, float | int]:
    """The bundled clip from end to end, in shares of 0 to 1 and counts."""
    shipped = shipped_clip()
    with process(shipped.video, pipeline="demo", overrides={"vlm.model": str(model)}) as run:
        records = [record.to_dict() for record in run]
    compared = compare(records, shipped.truth(), severities=SEVERITIES)
    delays = [row.after_s for row in compared.rows if row.after_s is not None]
    return {
        "hazards": len(compared.rows),
        "reported": len(delays),
        "reported within 1.5 s": sum(delay <= _SOON_S for delay in delays),
        "calm frames asked": compared.calm_asked,
        "calm": round(compared.calm_right / max(1, compared.calm_asked), 4),
    }


def _scenes(folder: Path, seeds: range) -> Iterator[tuple[NDArray[np.uint8], Truth]]:
    for seed in seeds:
        picture, truth = read_scene(folder, "test", seed)
        yield picture.image, truth


if __name__ == "__main__":
    main()
