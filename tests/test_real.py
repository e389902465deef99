"""The main job on real footage with real detector weights, where they are at hand, and a VLM of random weights."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

import hazardlens
from hazardlens.frames.file import VideoFile
from hazardlens.resources import data_path
from hazardlens.schema import FieldSchema

RECORD = jsonschema.Draft202012Validator(json.loads(data_path("schemas", "record.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def weights(shared_file: Callable[[str], Path]) -> Path:
    return shared_file("real/yolo26n_int8.tflite")


def read(folder: Path) -> list[dict]:
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines()]
    for record in records:
        assert list(RECORD.iter_errors(record)) == []
    return records


def judge_asked(records: list[dict]) -> int:
    """Every asked frame has one valid entry per object asked about; gives the number of asked frames."""
    schema = FieldSchema.load("hazard")
    asked = [record for record in records if record["vlm"]["trigger"]]
    for record in asked:
        about = [entry for entry in record["detections"] if entry["asked"]]
        answer = json.loads(record["vlm"]["raw"])
        assert record["vlm"]["status"] == "ok"
        assert [entry["id"] for entry in answer["detections"]] == list(range(len(about)))
        assert list(jsonschema.Draft202012Validator(schema.ground(len(about)).document).iter_errors(answer)) == []
        assert all(entry["fields"] is not None for entry in about)
    return len(asked)


def test_a_picture_of_a_bus(weights: Path, random_vlm_folder: Path, tmp_path: Path) -> None:
    import ultralytics

    bus = Path(ultralytics.__file__).parent / "assets" / "bus.jpg"
    list(hazardlens.process(bus, detector=weights, vlm=random_vlm_folder, out=tmp_path))
    (record,) = read(tmp_path / "bus")
    assert judge_asked([record]) == 1
    assert sorted(entry["class"] for entry in record["detections"]) == ["bus"] + ["person"] * 4
    assert record["time_s"] == 0.0
    assert {path.name for path in (tmp_path / "bus").iterdir()} == {"records.jsonl", "summary.json", "annotated.jpg"}


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_yard_with_people(
    weights: Path, shared_file: Callable[[str], Path], random_vlm_folder: Path, tmp_path: Path
) -> None:
    yard = shared_file("real/vtest.avi")
    list(hazardlens.process(yard, detector=weights, vlm=random_vlm_folder, every="2s", out=tmp_path))
    records = read(tmp_path / "vtest")
    assert [record["frame"] for record in records] == list(range(795))
    assert [record["time_s"] for record in records] == [k / 10 for k in range(795)]
    assert judge_asked(records) >= 40
    with_people = sum(any(entry["class"] == "person" for entry in record["detections"]) for record in records)
    assert with_people >= 0.97 * 795
    summary = json.loads((tmp_path / "vtest" / "summary.json").read_text(encoding="utf-8"))
    assert (summary["frames"]["expected"], summary["frames"]["read"], summary["complete"]) == (795, 795, True)
    with VideoFile(tmp_path / "vtest" / "annotated.mp4") as video:
        assert [round(frame.time_s, 4) for frame in video] == [k / 10 for k in range(795)]
