"""Trains the demo's detector: a YOLO26n, from nothing but drawn scenes.

    python assets/demo/train_detector.py --out runs/detector

Run it again to go on where it was stopped; the folder must not be moved meanwhile. The weights come to
OUT/demo-yolo26n.pt.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from drawn_site.dataset import write_dataset
from drawn_site.seeds import TRAINING, VALIDATION
from site_detector.training import keep, train

SCENES, WATCHED = 10_000, 400


def main() -> None:
    """Draw, train, keep the best weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="working folder; about 600 MB")
    out = parser.parse_args().out
    if out.exists() and not out.is_dir():
        parser.error(f"{out} is no folder")
    data = write_dataset(out / "scenes", {"train": TRAINING[:SCENES], "val": VALIDATION[:WATCHED]})
    if not train(out, data):
        print(f"{out} holds a training that is over; name another folder to begin one")
    weights = out / "demo-yolo26n.pt"
    keep(out / "train" / "weights" / "best.pt", weights)
    print(f"{weights}, {weights.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
