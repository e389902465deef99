"""What a model reasons, from the pipeline file and the command line to the record."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from hazardlens.testing.video import draw_video
from tests.warm import hazardlens

SCHEMA = {"type": "object", "properties": {"hazard": {"enum": ["none", "fire"]}}, "required": ["hazard"]}


@pytest.mark.parametrize(
    ("written", "given", "most"),
    [
        ({}, [], None),
        ({"reasoning_tokens": 7, "keep_reasoning": True}, [], 7),
        ({"reasoning_tokens": 7}, [], None),
        pytest.param({"reasoning_tokens": 7}, ["vlm.keep_reasoning=true"], 7, marks=pytest.mark.full),
        ({"reasoning_tokens": 30, "keep_reasoning": True}, ["vlm.reasoning_tokens=5"], 5),
        pytest.param({}, ["vlm.reasoning_tokens=7", "vlm.keep_reasoning=true"], 7, marks=pytest.mark.full),
        pytest.param(
            {"reasoning_tokens": 7, "keep_reasoning": True}, ["vlm.reasoning_tokens=0"], None, marks=pytest.mark.full
        ),
    ],
)
def test_reasoning_goes_from_file_and_command_line_to_the_record(
    written: dict[str, Any],
    given: list[str],
    most: int | None,
    random_yolo: Path,
    random_vlm_folder: Path,
    tmp_path: Path,
) -> None:
    draw_video(tmp_path / "a.mp4", frames=2, rate=10)
    vlm = {"model": str(random_vlm_folder), "device": "cpu", **written}
    detector = {"weights": str(random_yolo), "image_size": 64}
    own = {"schema": SCHEMA, "vlm": vlm, "detector": detector, "video": False}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(own))
    changes = [part for change in given for part in ("--set", change)]
    run = hazardlens("process", "a.mp4", "--pipeline", "own.yaml", *changes, "--out", "out", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    lines = (tmp_path / "out" / "a" / "records.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    assert first["vlm"]["status"] == "ok"
    assert list(first["fields"]) == ["hazard"]
    said = first["vlm"]
    if most is None:
        assert said["reasoning"] is None
    else:
        assert said["reasoning"]
        # An answer's tokens are no more than its bytes.
        assert most < said["output_tokens"] <= most + len(said["raw"])
