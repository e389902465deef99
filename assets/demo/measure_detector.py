"""Measures the demo's detector: on the clip through the product, on held-out scenes through Ultralytics.

python assets/demo/measure_detector.py assets/models/demo-yolo26n.pt --out runs/detector
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from drawn_site.seeds import HELD_OUT
from hazardlens.errors import HazardlensError
from site_detector.measure import measure_clip, measure_scenes


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="working folder, such as the training's")
    parser.add_argument("--clip", type=Path, default=Path(__file__).parent / "site.mp4")
    parser.add_argument("--count", type=int, default=len(HELD_OUT), help="only so many of the held-out scenes; 0: none")
    options = parser.parse_args()
    truth = options.clip.with_suffix(".truth.json")
    for path in (options.weights, options.clip, truth):
        if not path.is_file():
            parser.error(f"no file {path}")
    try:
        figures = {"clip": measure_clip(options.weights, options.clip, json.loads(truth.read_text()))}
        if options.count:
            figures["held-out scenes"] = measure_scenes(options.weights, options.out, HELD_OUT[: options.count])
    except HazardlensError as error:
        parser.error(str(error))
    text = json.dumps(figures, indent=2)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "figures.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
