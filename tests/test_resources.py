"""Shipped data and packages."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from hazardlens import resources
from hazardlens.errors import InputError
from hazardlens.resources import asset_package, data_path

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


def test_the_drawn_site_needs_nothing_of_hazardlens() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in DEMO.glob("drawn_site/*.py")}
    assert "render.py" in sources
    assert not [name for name, source in sources.items() if re.search(r"^\s*(from|import) hazardlens", source, re.M)]
