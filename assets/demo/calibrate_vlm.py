"""Fits the temperature of the demo VLM's confidence to validation scenes, and writes it into the model's config.json.

python assets/demo/calibrate_vlm.py assets/models/demo-vlm --out runs/vlm
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from drawn_site.dataset import read_scene, write_dataset
from drawn_site.seeds import VALIDATION
from hazardlens.vlm.calibration import fit_temperature
from hazardlens.vlm.local import CONFIDENCE_TEMPERATURE, LocalVlm
from site_vlm.examples import VIEW
from site_vlm.measure import measure


def main() -> None:
    """Ask, fit, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="working folder")
    parser.add_argument("--scenes", type=Path, help="scenes already drawn; OUT/scenes otherwise")
    parser.add_argument("--count", type=int, default=1000, help="scenes")
    options = parser.parse_args()
    folder, seeds = options.scenes or options.out / "scenes", VALIDATION[: options.count]
    write_dataset(folder, {"val": seeds}, name="calibrated")
    vlm = LocalVlm(options.model, device="cpu", view=VIEW)
    scenes = ((picture.image, truth) for picture, truth in (read_scene(folder, "val", seed) for seed in seeds))
    # After a wrong hazard the true severity may not be among the values; no temperature can make it likelier.
    judgements = [one for one in measure(vlm, scenes).judgements if one.truth in one.confidence.choices]
    found = fit_temperature([one.confidence.choices for one in judgements], [one.truth for one in judgements])
    temperature = round(vlm.confidence_temperature * found, 3)
    config = options.model / "config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, CONFIDENCE_TEMPERATURE: temperature}, indent=2, sort_keys=True) + "\n")
    print(f"{CONFIDENCE_TEMPERATURE}: {temperature}, from {len(judgements)} verdicts")


if __name__ == "__main__":
    main()
