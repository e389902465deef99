"""Fixtures shared by all tests."""

import os
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from hazardlens.resources import asset_package

os.environ["YOLO_AUTOINSTALL"] = "false"
os.environ["YOLO_OFFLINE"] = "true"
os.environ["HF_HUB_OFFLINE"] = "1"

asset_package("drawn_site")
"""Test modules import from it."""

SHARED = Path(__file__).parent.parent.parent / "shared"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure where everything must run."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("HAZARDLENS_REQUIRE_ALL"):
        report.outcome = "failed"
        report.longrepr = f"skipped although HAZARDLENS_REQUIRE_ALL is set: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def shared_file() -> Callable[[str], Path]:
    """Path of a file of the shared real inputs; the test is skipped, naming it, where it is absent."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"needs {name} in a folder 'shared' beside the checkout")
        return path

    return find


@pytest.fixture(scope="session")
def random_vlm_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny VLM with random weights."""
    from tests.random_vlm import build

    return build(tmp_path_factory.mktemp("random-vlm"))


@pytest.fixture(scope="session")
def random_yolo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A YOLO26n with random weights and COCO's class names: it goes through the real code and finds nothing."""
    from ultralytics import YOLO
    from ultralytics.utils import YAML
    from ultralytics.utils.checks import check_yaml

    model = YOLO("yolo26n.yaml")
    model.model.names = YAML.load(check_yaml("coco8.yaml"))["names"]
    path = tmp_path_factory.mktemp("random-yolo") / "random.pt"
    model.save(path)
    return path
