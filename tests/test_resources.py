"""Shipped data and packages."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from hazardlens import resources
from hazardlens.errors import InputError
from hazardlens.resources import asset_package, data_path, model_source, shipped_model

DEMO = data_path("assets", "demo")


def test_a_shipped_package_is_imported_once_under_its_own_name() -> None:
    package = asset_package("drawn_site")
    assert asset_package("drawn_site") is package is sys.modules["drawn_site"]
    assert package.__name__ == "drawn_site"
    assert Path(str(package.__file__)).parent == DEMO / "drawn_site"
    assert importlib.import_module("drawn_site.seeds").__package__ == "drawn_site"


@pytest.mark.parametrize("name", ["no_such_package", "train_detector", "json", "", "../models"])
def test_a_package_that_is_not_shipped_is_named(name: str) -> None:
    before = sys.modules.get(name)
    with pytest.raises(InputError, match=f"demo/{name}/__init__.py"):
        asset_package(name)
    assert sys.modules.get(name) is before


def test_a_package_that_fails_to_import_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "__init__.py"
    broken.write_text("raise OSError('half way')")
    monkeypatch.setattr(resources, "data_path", lambda kind, name: broken)
    with pytest.raises(OSError, match="half way"):
        asset_package("broken_package")
    assert "broken_package" not in sys.modules


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of shipped models, and an empty folder to stand in."""
    folder = tmp_path / "assets" / "models"
    (folder / "small-vlm").mkdir(parents=True)
    (folder / "small.pt").write_bytes(b"")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(resources, "data_folder", lambda kind: tmp_path / kind)
    return folder


@pytest.mark.parametrize("name", ["small.pt", "small-vlm"])
def test_a_shipped_model_is_found_by_name_from_any_folder(models: Path, name: str) -> None:
    assert shipped_model(name) == models / name
    assert model_source(name) == model_source(Path(name)) == models / name


def test_a_path_that_exists_comes_before_a_shipped_model(models: Path) -> None:
    Path("small.pt").write_bytes(b"own")
    assert model_source("small.pt") == "small.pt"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../models", "small", "small-vlm/", "models/small.pt", "*", "org/name"]
)
def test_what_is_not_shipped_stays_as_it_is(models: Path, name: str) -> None:
    assert shipped_model(name) is None
    assert model_source(name) == name


@pytest.mark.parametrize("missing", ["models", "assets"])
def test_without_shipped_models_others_can_be_named(monkeypatch, tmp_path: Path, missing: str) -> None:
    def folder(kind: str) -> Path:
        if missing == "assets":
            raise InputError("the shipped folder 'assets' is missing")
        return tmp_path

    monkeypatch.setattr(resources, "data_folder", folder)
    assert shipped_model("small.pt") is None
    assert model_source("yolo26n.pt") == "yolo26n.pt"


def test_the_drawn_site_needs_nothing_of_hazardlens() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in DEMO.glob("drawn_site/*.py")}
    assert "render.py" in sources
    assert not [name for name, source in sources.items() if re.search(r"^\s*(from|import) hazardlens", source, re.M)]
