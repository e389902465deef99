"""Training goes on wherever it was stopped."""

from pathlib import Path
from typing import Any

import pytest
import torch

from hazardlens.resources import asset_package

asset_package("site_detector")
from site_detector import training  # noqa: E402


class Yolo:
    """Stands for Ultralytics' model: notes what is asked of it."""

    asked: list[tuple[str, dict[str, Any]]]

    def __init__(self, source: str | Path) -> None:
        self.source = Path(source).name

    def add_callback(self, event: str, _: object) -> None:
        assert event == "on_model_save"

    def train(self, **arguments: Any) -> None:
        self.asked.append((self.source, arguments))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    monkeypatch.setattr(training, "YOLO", Yolo)
    monkeypatch.setattr(Yolo, "asked", [], raising=False)
    return Yolo.asked


def weights(out: Path, **epochs: int) -> Path:
    folder = out / "train" / "weights"
    folder.mkdir(parents=True)
    for name, epoch in epochs.items():
        torch.save({"epoch": epoch}, folder / f"{name}.pt")
    return folder


def test_it_begins(asked: list[tuple[str, dict[str, Any]]], tmp_path: Path) -> None:
    training.train(tmp_path, tmp_path / "data.yaml")
    ((source, arguments),) = asked
    assert source == "yolo26n.yaml"
    assert arguments.items() >= training.RECIPE.items()


def test_it_goes_on(asked: list[tuple[str, dict[str, Any]]], tmp_path: Path) -> None:
    weights(tmp_path, last=2)
    assert training.train(tmp_path, tmp_path / "data.yaml")
    assert asked == [("last.pt", {"resume": True})]


@pytest.mark.parametrize("epoch", [-1, training.RECIPE["epochs"] - 1])
def test_it_is_over(asked: list[tuple[str, dict[str, Any]]], tmp_path: Path, epoch: int) -> None:
    weights(tmp_path, last=epoch)
    assert not training.train(tmp_path, tmp_path / "data.yaml")
    assert asked == []


def test_a_checkpoint_that_was_cut_off_is_replaced(asked: list[tuple[str, dict[str, Any]]], tmp_path: Path) -> None:
    folder = weights(tmp_path, last=3, spare=2)
    (folder / "last.pt").write_bytes((folder / "last.pt").read_bytes()[:200])
    training.train(tmp_path, tmp_path / "data.yaml")
    assert asked == [("last.pt", {"resume": True})]
    assert torch.load(folder / "last.pt")["epoch"] == 2


def test_the_weights_kept_are_the_demos(random_yolo: Path, tmp_path: Path) -> None:
    trained = tmp_path / "trained.pt"
    checkpoint = torch.load(random_yolo, weights_only=False)
    torch.save({**checkpoint, "ema": None, "optimizer": {"of": "no use"}, "train_args": {"data": "/a/path"}}, trained)
    training.keep(trained, tmp_path / "kept.pt")
    kept = torch.load(tmp_path / "kept.pt", weights_only=False)
    assert kept["hazardlens_demo"] is True
    assert "optimizer" not in kept
    assert kept["train_args"] == training.RECIPE
    assert next(kept["model"].parameters()).dtype == torch.float16
