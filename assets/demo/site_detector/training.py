"""The training of the demo's detector: a YOLO26n, from nothing but drawn scenes."""

from __future__ import annotations

from pathlib import Path

import torch

from hazardlens.detect.ultralytics_setup import YOLO

RECIPE = {
    "imgsz": 320, "rect": True, "epochs": 5, "batch": 16, "nbs": 16, "seed": 0, "deterministic": True,
    "workers": 0, "device": "cpu", "amp": False, "optimizer": "AdamW", "lr0": 0.0015, "lrf": 0.01, "cos_lr": True,
    "warmup_epochs": 0.3, "scale": 0.2, "translate": 0.1, "fliplr": 0.5, "erasing": 0.0,
    "hsv_h": 0.01, "hsv_s": 0.4, "hsv_v": 0.3, "plots": False, "exist_ok": True,
}  # fmt: skip

_FINISHED = -1
"""The epoch that Ultralytics writes into the last checkpoint of a training that has come to its end."""


def train(out: Path, data: Path) -> None:
    """Train, or go on with a training that was stopped."""
    last = out / "train" / "weights" / "last.pt"
    if last.exists():
        if torch.load(last, map_location="cpu", weights_only=False)["epoch"] != _FINISHED:
            YOLO(last).train(resume=True)
    else:
        YOLO("yolo26n.yaml").train(data=str(data), project=str(out.resolve()), name="train", **RECIPE)


def keep(trained: Path, weights: Path) -> None:
    """Copy trained weights without what only the training needs, its paths above all, and mark them as the demo's."""
    checkpoint = torch.load(trained, map_location="cpu", weights_only=False)
    model = (checkpoint["ema"] or checkpoint["model"]).half()
    model.args = {"task": "detect", "imgsz": RECIPE["imgsz"]}
    torch.save({"model": model, "train_args": RECIPE, "hazardlens_demo": True}, weights)
