"""The package as others see it."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import jsonschema
import pytest

import hazardlens
from hazardlens.record import Confidence, DetectionRecord, FrameRecord, RuleTrace, VlmState
from hazardlens.resources import data_path
from hazardlens.testing.video import draw_video

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
        confidence={"hazard": Confidence(p=0.93, choices={"none": 0.07, "missing_ppe": 0.93}, mask_mass=0.88)},
        vlm=VlmState(status="ok", frame=125, age_s=0.0, trigger=("every",)),
        rules=(RuleTrace(name="r", field="/fields/severity", before="low", after="high", why="because"),),
    )
    validator = jsonschema.Draft202012Validator(document)
    assert list(validator.iter_errors(record.to_dict())) == []
    assert record.to_dict()["confidence"]["hazard"]["p"] == 0.93
    failed = {**record.to_dict(), "vlm": {**record.to_dict()["vlm"], "status": "timeout"}}
    assert list(validator.iter_errors(failed)), "a failure with fields must not pass"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (path,) = folder.glob("hazardlens-*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_the_wheel_is_small(wheel: Path) -> None:
    (packed,) = wheel.parent.glob("hazardlens-*.whl")
    assert packed.stat().st_size < 40_000_000


def test_the_wheel_brings_its_data_and_finds_it(wheel: Path) -> None:
    for kind, name in (("schemas", "hazard.json"), ("schemas", "record.json"), ("pipelines", "site.yaml")):
        assert (wheel / "hazardlens" / "data" / kind / name).read_bytes() == (ROOT / kind / name).read_bytes()
    assert (wheel / "hazardlens" / "py.typed").exists()
    models = [path.name for path in (ROOT / "assets" / "models").glob("*") if not path.name.startswith(".")]
    code = (
        "import sys, hazardlens.resources as r; from hazardlens import FieldSchema, Pipeline;"
        "print(r.__file__, r.data_path('schemas', 'hazard.json'));"
        "print(r.asset_package('drawn_site').__file__);"
        "print(*[r.shipped_model(name) for name in sys.argv[1:]]);"
        "[Pipeline.load(name).check(FieldSchema.load('hazard'), None) for name in ('site', 'demo')]"
    )
    command = [sys.executable, "-c", code, *models]
    run = subprocess.run(command, env={"PYTHONPATH": str(wheel)}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert all(Path(path).is_relative_to(wheel) for path in run.stdout.split())


OFFLINE = """
import socket, sys
def refuse(*arguments, **named):
    print("NETWORK", arguments[0], file=sys.stderr)
    raise OSError("no network")
socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
from hazardlens.cli import app
app(["demo", "--out", sys.argv[1]])
"""


@pytest.mark.full
def test_the_demo_runs_from_the_wheel_without_a_network(wheel: Path, tmp_path: Path) -> None:
    """Nothing is asked of one; only Ultralytics looks up two names as it is imported, to see whether it is there."""
    environment = {"PYTHONPATH": str(wheel), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", OFFLINE, str(tmp_path / "out")]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "These models know drawn scenes only" in run.stdout
    assert {*re.findall("NETWORK (.*)", run.stderr)} <= {"one.one.one.one", "dns.google"}
    assert {path.name for path in (tmp_path / "out" / "site").iterdir()} == {
        "annotated.mp4", "records.jsonl", "summary.json"
    }  # fmt: skip


OPTIMISED = """
import sys, json, hazardlens
from hazardlens.testing import FakeDetector, FakeVlm, FunctionVlm
assert not __debug__ or sys.exit("assertions are on")
good = list(hazardlens.process(sys.argv[1], pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FakeVlm()))
bad = list(hazardlens.process(
    sys.argv[1], pipeline={"schema": "hazard"}, detector=FakeDetector(), vlm=FunctionVlm(lambda q: "{}")))
print(json.dumps([[record.vlm.status for record in run] for run in (good, bad)]))
"""


def test_without_assertions_nothing_changes(tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=3, rate=10)
    run = subprocess.run([sys.executable, "-O", "-c", OPTIMISED, clip], capture_output=True, text=True)
    assert json.loads(run.stdout) == [["ok", "carried", "carried"], ["invalid", "skipped", "skipped"]], run.stderr
