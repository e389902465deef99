"""The package as others see it."""

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema

import hazardlens
from hazardlens.record import DetectionRecord, FrameRecord, RuleTrace, VlmState
from hazardlens.resources import data_path

ROOT = Path(__file__).parent.parent


def test_all_is_sorted_and_is_what_the_namespace_gives() -> None:
    assert hazardlens.__all__ == sorted(hazardlens.__all__)
    assert set(hazardlens.__all__) == set(hazardlens._HOME)
    for name in hazardlens.__all__:
        assert getattr(hazardlens, name).__name__ == name
    public = {name for name in dir(hazardlens) if not name.startswith("_")}
    modules = {path.stem for path in (ROOT / "plugin/hazardlens").iterdir()}
    assert public - modules - {"annotations", "importlib", "Any", "TYPE_CHECKING"} == set(hazardlens.__all__)


def test_importing_the_package_loads_neither_torch_nor_cv2() -> None:
    heavy = ("torch", "cv2", "av", "transformers", "ultralytics")
    code = f"import sys, hazardlens, hazardlens.errors; print([name for name in {heavy} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(hazardlens, "no_such_name")


def test_version_is_the_same_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert newest is not None
    assert hazardlens.__version__ == newest[1] == importlib.metadata.version("hazardlens")


def test_the_record_and_its_schema_tell_of_the_same_names() -> None:
    document = json.loads(data_path("schemas", "record.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(document)
    record = FrameRecord(
        source="site.mp4",
        frame=125,
        time_s=5.0,
        size_wh=(1280, 720),
        detections=(
            DetectionRecord(
                id=0,
                track_id=7,
                class_name="person",
                class_id=0,
                confidence=0.91,
                box_xyxy=(412.0, 180.5, 466.2, 330.9),
                asked=True,
                fields={"hazard": "missing_ppe"},
            ),
        ),
        fields={"hazard": "missing_ppe"},
        vlm=VlmState(status="ok", frame=125, age_s=0.0, trigger=("every",)),
        rules=(RuleTrace(name="r", field="/severity", before="low", after="high", why="because"),),
    )
    validator = jsonschema.Draft202012Validator(document)
    assert list(validator.iter_errors(record.to_dict())) == []
    failed = {**record.to_dict(), "vlm": {**record.to_dict()["vlm"], "status": "timeout"}}
    assert list(validator.iter_errors(failed)), "a failure with fields must not pass"
