"""The short scripts beside the pipelines run as they stand."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hazardlens.resources import data_path
from hazardlens.testing.video import draw_video


@pytest.mark.parametrize(
    "script", ["video.py", *(pytest.param(script, marks=pytest.mark.full) for script in ("callback.py", "live.py"))]
)
def test_it_runs_and_says_something(script: str, random_yolo: Path, random_vlm_folder: Path, tmp_path: Path) -> None:
    video = draw_video(tmp_path / "clip.mp4", frames=12, rate=10, size_wh=(160, 120))
    pipeline = tmp_path / "mine.yaml"
    settings = {"detector": {"weights": str(random_yolo)}, "vlm": {"model": str(random_vlm_folder), "device": "cpu"}}
    pipeline.write_text(yaml.safe_dump({**settings, "schema": "hazard", "ask": {"every_s": 1.0}}))
    arguments = [video, pipeline, *([random_yolo] if script == "callback.py" else [])]
    command = [sys.executable, data_path("pipelines", script), *arguments]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    said = [line for line in run.stdout.splitlines() if " s: " in line]
    assert said[0].startswith("0.0 s: ")
    assert not any("no answer" in line for line in said)
