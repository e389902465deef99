"""The README's commands, run as they stand; only the install step is left out."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import hazardlens
from hazardlens.parts import settle
from hazardlens.testing.video import draw_video

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [block.strip() for block in re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)]


def without_install(command: str) -> str:
    steps = command.split(" && ")
    kept = [step for step in steps if "-m venv" not in step and "pip install" not in step]
    assert kept
    return " && ".join(kept)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the project's after the install step."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / ".venv").symlink_to(sys.prefix)
    draw_video(folder / "my video.mp4", frames=25, rate=10, size_wh=(160, 120))
    return folder


@pytest.fixture
def environment(place: Path, random_yolo: Path, random_vlm_folder: Path) -> dict[str, str]:
    video = place / "my video.mp4"
    paths = {"VIDEO": video, "CAMERA": video, "DETECTOR": random_yolo, "VLM": random_vlm_folder}
    return {**os.environ, **{name: str(path) for name, path in paths.items()}}


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.full), *range(2, len(COMMANDS))])
def test_command(place: Path, environment: dict[str, str], number: int) -> None:
    run = subprocess.run(
        ["bash", "-euc", without_install(COMMANDS[number])], cwd=place, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout
    if "--trace" in COMMANDS[number]:
        traces = {path.name for path in (place / "results" / "trace").glob("*/*")}
        assert {"frame_000000.png", "frame_000000.prompt.txt", "frame_000000.answer.json"} <= traces
    if "hazardlens live" in COMMANDS[number]:
        made = {path.name for path in (place / "watch").iterdir()}
        assert made == {"records.jsonl", "status.json"}
        assert "ended" in run.stdout
    if number == 0:
        assert "These models know drawn scenes only" in run.stdout
    if number == 2:
        made = {path.name for path in (place / "hazardlens-out" / "my video").iterdir()}
        assert made == {"records.jsonl", "annotated.mp4", "summary.json"}


def test_the_first_command_is_the_demo_the_second_the_tests_the_third_the_main_job() -> None:
    assert COMMANDS[0].endswith(".venv/bin/hazardlens demo")
    assert "hazardlens process" in COMMANDS[2]
    assert COMMANDS[1].endswith(".venv/bin/pytest")
    command = ["bash", "-euc", without_install(COMMANDS[1]) + " --collect-only -q tests/test_package.py"]
    place = {"cwd": ROOT, "capture_output": True, "text": True}
    run = subprocess.run([*command[:2], command[2].replace(".venv/bin/", f"{sys.prefix}/bin/")], **place)
    assert "test_version_is_the_same_everywhere" in run.stdout


def test_the_python_example(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    from hazardlens.testing import FakeDetector, FunctionVlm

    answer = {"notes": "Flames by the wall.", "hazard": "fire", "severity": "high"}
    verdict = {"hazard": "fire", "severity": "high"}
    vlm = FunctionVlm(lambda q: {**answer, "detections": [{"id": i, **verdict} for i in range(q.asked)]})
    clip = draw_video(tmp_path / "clip.mp4", frames=25, rate=10)
    exec(example, {"video": clip, "detector": FakeDetector(), "vlm": vlm, "hazardlens": hazardlens})  # noqa: S102
    assert capsys.readouterr().out.splitlines()[0] == "0.0 s: fire. Flames by the wall."


@pytest.mark.parametrize("page", ["README.md", "docs/schemas.md"])
def test_another_schema_without_the_rules_is_settled_as_the_pages_say(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (arguments,) = re.findall(r"schema=\{.*?\}, overrides=\{.*?\}", text)
    settled = settle("site", **eval(f"dict({arguments})"))  # noqa: S307 - the page's own code
    assert settled.pipeline.rules == ()


def test_the_pipeline_in_the_docs_is_one() -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/pipelines.md").read_text(), re.MULTILINE | re.DOTALL)
    pipeline = hazardlens.Pipeline.load(yaml.safe_load(example))
    pipeline.check(hazardlens.FieldSchema.load("hazard"), ["person", "truck"])
    assert [rule.kind for rule in pipeline.rules] == ["escalate", "contradiction", "worst_object"]


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
