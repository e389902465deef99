"""Fits the temperatures of the demo VLM's confidence to validation scenes, and writes it into the model's config.json.

python assets/demo/calibrate_vlm.py assets/models/demo-vlm --out runs/vlm
"""

from __future__ import annotations

import argparse
import json
import shutil
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
    parser.add_argument("--count", type=int, default=500, help="scenes")
    options = parser.parse_args()
    folder, seeds = options.scenes or options.out / "scenes", VALIDATION[: options.count]
    write_dataset(folder, {"val": seeds}, name="calibrated")
    vlm = LocalVlm(_without_temperatures(options.model, options.out / "plain"), device="cpu", view=VIEW)
    scenes = ((picture.image, truth) for picture, truth in (read_scene(folder, "val", seed) for seed in seeds))
    judgements = measure(vlm, scenes).judgements
    temperatures = {}
    for field in sorted({one.place for one in judgements}):
        of = [one for one in judgements if one.place == field]
        found = fit_temperature([one.confidence.choices for one in of], [one.truth for one in of])
        temperatures[field] = round(found, 3)
        print(f"{field}: {temperatures[field]}, from {len(of)} verdicts")
    config = options.model / "config.json"
    settings = json.loads(config.read_text())
    config.write_text(json.dumps({**settings, CONFIDENCE_TEMPERATURE: temperatures}, indent=2, sort_keys=True) + "\n")


def _without_temperatures(model: Path, to: Path) -> Path:
    """A copy of a model whose confidence is as it comes."""
    shutil.copytree(model, to, dirs_exist_ok=True)
    settings = json.loads((model / "config.json").read_text())
    settings.pop(CONFIDENCE_TEMPERATURE, None)
    (to / "config.json").write_text(json.dumps(settings))
    return to


if __name__ == "__main__":
    main()
