"""The training of the demo's detector: a YOLO26n, from nothing but drawn scenes."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import torch

from hazardlens.detect.ultralytics_setup import YOLO

RECIPE: dict[str, Any] = {
    "imgsz": 320, "rect": True, "epochs": 5, "batch": 16, "nbs": 16, "seed": 0, "deterministic": True,
    "workers": 0, "device": "cpu", "amp": False, "optimizer": "AdamW", "lr0": 0.0015, "lrf": 0.01, "cos_lr": True,
    "warmup_epochs": 0.3, "scale": 0.2, "translate": 0.1, "fliplr": 0.5, "erasing": 0.0,
    "hsv_h": 0.01, "hsv_s": 0.4, "hsv_v": 0.3, "plots": False, "exist_ok": True,
}  # fmt: skip


def train(out: Path, data: Path) -> bool:
    """Train, or go on with a training that was stopped.

    The last checkpoint is kept twice, since a training may be killed while it writes one.

    Returns:
        Whether there was anything to do.
    """
    last = out / "train" / "weights" / "last.pt"
    spare = last.with_name("spare.pt")
    epoch = _epoch(last)
    if epoch is None and _epoch(spare) is not None:
        shutil.copyfile(spare, last)
        epoch = _epoch(last)
    if epoch is None:
        _run(YOLO("yolo26n.yaml"), spare, data=str(data), project=str(out.resolve()), name="train", **RECIPE)
    elif 0 <= epoch < RECIPE["epochs"] - 1:
        _run(YOLO(last), spare, resume=True)
    else:
        return False
    return True


def _run(model: YOLO, spare: Path, **arguments: Any) -> None:
    model.add_callback("on_model_save", lambda trainer: shutil.copyfile(trainer.last, spare))
    model.train(**arguments)


def _epoch(checkpoint: Path) -> int | None:
    """The last epoch that was run, from 0; -1 where the training is over; None where there is no whole checkpoint."""
    try:
        return int(torch.load(checkpoint, map_location="cpu", weights_only=False)["epoch"])
    except (EOFError, OSError, RuntimeError, pickle.UnpicklingError):
        return None


def keep(trained: Path, weights: Path) -> None:
    """Copy trained weights without what only the training needs, its paths above all, and mark them as the demo's."""
    checkpoint = torch.load(trained, map_location="cpu", weights_only=False)
    model = (checkpoint["ema"] or checkpoint["model"]).half()
    model.args = {"task": "detect", "imgsz": RECIPE["imgsz"]}
    model.__dict__.pop("pt_path", None)
    torch.save({"model": model, "train_args": RECIPE, "hazardlens_demo": True}, weights)
