"""Records and results in the forms of other tools."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hazardlens
from hazardlens import interchange
from hazardlens.errors import InputError
from hazardlens.testing import FakeDetector, FunctionVlm
from hazardlens.testing.video import draw_video
from tests.callback.sights import PIPELINE, answer, build
from tests.callback.test_results import IDS, SEVERITIES, carrying, record


def without_nan(frame: Any) -> Any:
    return frame.astype(object).where(frame.notna(), None)


CONVERT: dict[str, Callable[..., Any]] = {
    "polars": lambda told: interchange.to_polars(told).to_dicts(),
    "pandas": lambda told: without_nan(interchange.to_pandas(told)).to_dict("records"),
}


@pytest.fixture(params=CONVERT)
def convert(request: pytest.FixtureRequest) -> Callable[..., Any]:
    pytest.importorskip(request.param)
    return CONVERT[request.param]


def boxes(frame: Any) -> list:
    return [("person", 1, 2.0, 2.0, 12.0, 30.0), ("truck", 2, 30.0, 2.0, 42.0, 30.0)]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[hazardlens.FrameRecord]:
    clip = draw_video(tmp_path_factory.mktemp("clip") / "clip.mp4", frames=4, rate=2)
    pipeline = {**PIPELINE, "max_objects": 1}
    return list(hazardlens.process(clip, pipeline=pipeline, detector=FakeDetector(boxes), vlm=FunctionVlm(answer)))


def test_a_frame_has_a_row_per_detection(convert: Callable, records: list) -> None:
    rows = convert(records)
    assert [(row["source"], row["frame"], row["time_s"], row["id"]) for row in rows] == [
        ("clip.mp4", frame, frame / 2, number) for frame in range(4) for number in (0, 1)
    ]
    first, second = rows[:2]
    (third,) = [row for row in rows if row["frame"] == 1 and row["class"] == "truck"]
    assert [first[name] for name in ("x1", "y1", "x2", "y2")] == list(records[0].detections[0].box_xyxy)
    assert (first["class"], first["severity"], first["asked"], first["vlm_status"]) == ("truck", "low", True, "ok")
    assert (second["severity"], second["hazard"], second["asked"]) == (None, None, False)
    assert (third["vlm_status"], third["vlm_age_s"], third["severity"]) == ("carried", 0.5, "low")


@pytest.mark.parametrize("nothing", [[], [replace(record("error"), detections=())]])
def test_where_nothing_was_found_the_columns_are_there(nothing: list) -> None:
    frame = interchange.to_polars(nothing)
    assert frame.height == 0
    assert frame.columns[:3] == ["source", "frame", "time_s"]
    assert frame.columns[-2:] == ["vlm_status", "vlm_age_s"]


def test_a_result_has_its_rows_in_its_own_order(convert: Callable) -> None:
    rows = convert([carrying()[1:], carrying()[:1]])
    assert [row["severity"] for row in rows] == [*SEVERITIES[1:], SEVERITIES[0]]
    assert [row["id"] for row in rows] == [*IDS[1:], IDS[0]]


def test_coco_has_what_it_asks_for_and_the_fields(records: list) -> None:
    coco = json.loads(json.dumps(interchange.to_coco(records)))
    assert [(one["id"], one["file_name"], one["width"], one["height"]) for one in coco["images"]] == [
        (k, "clip.mp4", 64, 48) for k in range(1, 5)
    ]
    assert coco["images"][1]["attributes"]["hazard"] == "spill"
    assert coco["categories"] == [{"id": 0, "name": "person"}, {"id": 1, "name": "truck"}]
    assert [one["id"] for one in coco["annotations"]] == list(range(1, 9))
    assert {one["image_id"] for one in coco["annotations"]} == {1, 2, 3, 4}
    one = coco["annotations"][0]
    assert (one["bbox"], one["area"], one["category_id"], one["iscrowd"]) == ([30.0, 2.0, 12.0, 28.0], 336.0, 1, 0)
    assert (one["attributes"], coco["annotations"][1]["attributes"]) == ({"hazard": "spill", "severity": "low"}, None)


@pytest.mark.parametrize("of_result", [True, False])
def test_supervision_has_fields_in_data_and_the_frame_in_metadata(of_result: bool) -> None:
    pytest.importorskip("supervision")
    told = carrying() if of_result else record()
    found = interchange.to_supervision(told)
    order = [0, 1, 2, 3] if of_result else [IDS.index(k) for k in range(4)]
    assert found.data["severity"].tolist() == [SEVERITIES[row] for row in order]
    assert found.xyxy.shape == (4, 4)
    assert len(found.data["class_name"]) == 4
    assert found.metadata["fields"]["hazard"] == "fire"
    assert (found.metadata["frame"], found.metadata["time_s"], found.metadata["vlm"]["status"]) == (3, 0.3, "ok")
    chosen = found[found.data["severity"] == "high"]
    assert (len(chosen), chosen.metadata["source"]) == (1, "x")


def test_supervision_keeps_the_masks_of_a_result(tmp_path: Path) -> None:
    pytest.importorskip("supervision")
    from ultralytics import YOLO

    from hazardlens.testing.video import number_image

    model = YOLO(build(tmp_path, "segment"))
    with hazardlens.attach(model, PIPELINE, vlm=FunctionVlm(answer)):
        (result,) = model.predict(number_image(3, (96, 64)), imgsz=64, max_det=3, verbose=False)
    found = interchange.to_supervision(result)
    assert found.mask is not None
    assert found.mask.shape[0] == len(result) == len(found.data["severity"])
    assert np.array_equal(found.xyxy, result.boxes.xyxy.numpy())


@pytest.mark.parametrize(
    ("name", "call"), [("supervision", interchange.to_supervision), ("pandas", interchange.to_pandas)]
)
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, name: str, call: Callable) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"{name} is not installed\n.*pip install {name}"):
        call(record() if name == "supervision" else [record()])


def test_a_plain_result_is_refused() -> None:
    from ultralytics.engine.results import Results

    plain = Results(np.zeros((8, 8, 3), np.uint8), "x.jpg", {0: "person"})
    with pytest.raises(InputError, match=r"result of an attached model, got Results"):
        interchange.to_coco([plain])
