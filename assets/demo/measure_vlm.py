"""Measures the demo's vision-language model on the held-out scenes, through the product's prompt, mask and decoding.

python assets/demo/measure_vlm.py assets/models/demo-vlm --out runs/vlm
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from drawn_site.dataset import read_scene, write_dataset
from drawn_site.rules import Truth
from drawn_site.seeds import HELD_OUT
from hazardlens.detect.yolo import YoloDetector
from hazardlens.vlm.local import LocalVlm
from site_vlm.examples import VIEW
from site_vlm.measure import PromptOnly, calibration_errors, measure

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
    vlm = LocalVlm(options.model, device="cpu", view=VIEW)
    detector = YoloDetector(options.detector, image_size_px=320, track=False)
    truths = Counter(truth.verdict.hazard for _, truth in _scenes(folder, seeds))
    scores = measure(vlm, _scenes(folder, seeds))
    figures = {
        "majority": round(max(truths.values()) / len(seeds), 4),
        "true boxes": scores.figures(),
        "detected boxes": measure(vlm, _scenes(folder, seeds), detector=detector).figures(),
        "blank picture": measure(vlm, _scenes(folder, seeds), sight="blank").figures(),
        "prompt only": measure(PromptOnly(options.model, device="cpu", view=VIEW), _scenes(folder, seeds)).figures(),
        "calibration error": {
            "temperature": vlm.confidence_temperature,
            "before": calibration_errors(scores.judgements, 1 / vlm.confidence_temperature),
            "after": calibration_errors(scores.judgements, 1.0),
        },
    }
    text = json.dumps(figures, indent=2)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "figures.json").write_text(text + "\n")
    print(text)


def _scenes(folder: Path, seeds: range) -> Iterator[tuple[NDArray[np.uint8], Truth]]:
    for seed in seeds:
        picture, truth = read_scene(folder, "test", seed)
        yield picture.image, truth


if __name__ == "__main__":
    main()
