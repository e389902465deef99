"""Measures the demo's detector: on the held-out scenes through Ultralytics, on the clip through the product.

python assets/demo/measure_detector.py assets/models/demo-yolo26n.pt --out runs/detector
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from drawn_site.seeds import HELD_OUT
from site_detector.measure import measure_clip, measure_scenes


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="working folder, such as the training's")
    parser.add_argument("--clip", type=Path, default=Path(__file__).parent / "site.mp4")
    options = parser.parse_args()
    figures = {
        "held-out scenes": measure_scenes(options.weights, options.out, HELD_OUT),
        "clip": measure_clip(
            options.weights, options.clip, json.loads(options.clip.with_suffix(".truth.json").read_text())
        ),
    }
    text = json.dumps(figures, indent=2)
    (options.out / "figures.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
