"""Results that carry fields: copied, chosen, changed, written and drawn."""

import copy
import csv
import io
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ultralytics.engine.results import Boxes, Results

from hazardlens.callback.results import FieldResults, Told, geometry
from hazardlens.record import Confidence, DetectionRecord, FrameRecord, VlmState
from hazardlens.schema import FieldSchema

SCHEMA = FieldSchema.load("hazard")
BOXES = [[1, 2, 20, 30, 0.9, 0], [30, 2, 50, 30, 0.8, 0], [60, 2, 80, 30, 0.7, 1], [1, 40, 20, 60, 0.6, 0]]
SEVERITIES = ["high", None, "low", "medium"]
"""Of each row."""
IDS = [2, 3, 0, 1]
"""Place of each row in the record, which puts other objects first."""


def record(status: str = "ok", **state: Any) -> FrameRecord:
    known = status in ("ok", "carried")
    detections = [
        DetectionRecord(
            id=number,
            track_id=None,
            class_name="person",
            class_id=int(BOXES[row][5]),
            confidence=BOXES[row][4],
            box_xyxy=tuple(map(float, BOXES[row][:4])),
            asked=True,
            fields={"hazard": "fire", "severity": SEVERITIES[row]} if known and SEVERITIES[row] else None,
        )
        for number, row in enumerate(IDS.index(i) for i in range(4))
    ]
    fields = {"notes": "Flames.", "hazard": "fire", "severity": "high"} if known else None
    state = VlmState(status=status, **state)
    return FrameRecord(
        source="x", frame=3, time_s=0.3, size_wh=(96, 64), detections=tuple(detections), fields=fields, vlm=state
    )


def carrying(of: FrameRecord | None = None, boxes: Any = BOXES, demo: bool = False) -> FieldResults:
    image = np.full((200, 96, 3), 90, np.uint8)
    plain = Results(image, "x.jpg", {0: "person", 1: "truck"}, boxes=torch.tensor(boxes).reshape(-1, 6))
    ids = np.array(IDS, np.int64)
    told = Told(record=of or record(), schema=SCHEMA, geometry=geometry(plain.boxes), ids=ids, demo=demo)
    return FieldResults.carrying(plain, told)


def severities(result: FieldResults) -> list[str | None]:
    assert len(result.detection_fields) == len(result)
    return [fields and fields["severity"] for fields in result.detection_fields]


def reordered(result: FieldResults) -> FieldResults:
    result.update(boxes=result.boxes.data[[3, 0]])
    return result


def replaced(result: FieldResults) -> FieldResults:
    result.boxes = Boxes(result.boxes.data[[2, 1, 0, 3]], result.orig_shape)
    return result


def refilled(result: FieldResults) -> FieldResults:
    fresh = result.new()
    fresh.update(boxes=result.boxes.data[1:3])
    return fresh


def moved(result: FieldResults) -> FieldResults:
    result.update(boxes=result.boxes.data + torch.tensor([5.0, 0, 0, 0, 0, 0]))
    return result


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        (lambda r: r, [0, 1, 2, 3]),
        (lambda r: r.cpu(), [0, 1, 2, 3]),
        (lambda r: r.numpy(), [0, 1, 2, 3]),
        (lambda r: r.to("cpu", torch.float16), [0, 1, 2, 3]),
        (lambda r: r.to(torch.float16)[1:], [1, 2, 3]),
        (lambda r: r[0], [0]),
        (lambda r: r[-1], [3]),
        (lambda r: r[1:3], [1, 2]),
        (lambda r: r[[3, 0]], [3, 0]),
        (lambda r: r[np.array([2, 2])], [2, 2]),
        (lambda r: r[torch.tensor([3, 1])], [3, 1]),
        (lambda r: r[r.boxes.conf > 0.75], [0, 1]),
        (lambda r: r[r.boxes.cls == 1], [2]),
        (lambda r: r[[True, False, False, True]], [0, 3]),
        (lambda r: r.numpy()[r.numpy().boxes.conf < 0.75], [2, 3]),
        (lambda r: r[1:][1:].cpu().numpy()[0], [2]),
        (lambda r: r[:0], []),
        (lambda r: r.new(), []),
        (lambda r: pickle.loads(pickle.dumps(r)), [0, 1, 2, 3]),  # noqa: S301 - our own
        (lambda r: pickle.loads(pickle.dumps(r[2:])), [2, 3]),  # noqa: S301 - our own
        (copy.copy, [0, 1, 2, 3]),
        (copy.deepcopy, [0, 1, 2, 3]),
        (reordered, [3, 0]),
        (replaced, [2, 1, 0, 3]),
        (refilled, [1, 2]),
        (lambda r: copy.deepcopy(replaced(r))[1:], [1, 0, 3]),
    ],
)
def test_copies_keep_the_fields_of_the_detections_that_remain(change: Callable, rows: list[int]) -> None:
    result = change(carrying())
    assert isinstance(result, FieldResults)
    assert severities(result) == [SEVERITIES[row] for row in rows]
    assert result.fields == {"notes": "Flames.", "hazard": "fire", "severity": "high"}
    assert (result.record.frame, len(result.record.detections)) == (3, 4)
    assert [row["severity"] for row in result.summary()] == [SEVERITIES[row] for row in rows]


def test_a_box_that_was_not_judged_has_no_fields() -> None:
    assert severities(moved(carrying())) == [None] * 4


def test_summary_frame_csv_and_json_speak_of_the_fields() -> None:
    result = carrying(record("carried", frame=1, age_s=0.2))
    assert [list(row)[-4:] for row in result.summary()] == [["hazard", "severity", "vlm_status", "vlm_age_s"]] * 4
    assert result.to_df()["severity"].to_list() == SEVERITIES
    assert [row["severity"] for row in json.loads(result.to_json())] == SEVERITIES
    rows = list(csv.DictReader(io.StringIO(result.to_csv())))
    assert [row["severity"] for row in rows] == ["high", "", "low", "medium"]
    assert {(row["vlm_status"], row["vlm_age_s"]) for row in rows} == {("carried", "0.2")}


def test_many_detections_that_are_unknown_at_first_make_a_frame() -> None:
    boxes = [[k % 90, 1, k % 90 + 5, 9, 0.5, 0] for k in range(150)]
    result = carrying(boxes=boxes)
    ids = np.full(150, -1, np.int64)
    ids[149] = 2
    result._remember(ids)
    assert result.to_df()["severity"].to_list() == [None] * 149 + ["high"]


def test_a_field_that_has_a_name_of_ultralytics_steps_aside() -> None:
    entry = {"id": {"type": "integer"}, "name": {"enum": ["a", "b"]}}
    item = {"type": "object", "properties": entry, "required": ["id", "name"], "additionalProperties": False}
    document = {
        "type": "object",
        "properties": {"detections": {"type": "array", "items": item}},
        "required": ["detections"],
        "additionalProperties": False,
    }
    result = carrying()
    told = result._told
    result._told = Told(
        record=told.record, schema=FieldSchema.load(document), geometry=told.geometry, ids=told.ids, demo=False
    )
    assert result.summary()[0]["name"] == "person"
    assert result.summary()[0]["vlm_name"] is None


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (record(), "3 persons, 1 truck, hazard fire, severity high, "),
        (record("carried", frame=1, age_s=0.25), "3 persons, 1 truck, hazard fire, severity high, 0.2 s old, "),
        (record("timeout", reason="no answer in 5 s"), "3 persons, 1 truck, no answer: timeout, "),
        (record("source_lost", reason="black"), "3 persons, 1 truck, no answer: source_lost, "),
    ],
)
def test_the_log_line_tells_the_verdict_or_why_there_is_none(of: FrameRecord, words: str) -> None:
    assert carrying(of).verbose() == words


def test_the_picture_shows_verdicts_where_ultralytics_shows_labels() -> None:
    result, plain = carrying(), Results(orig_img=carrying().orig_img, path="x", names={})
    plain.names, plain.boxes = result.names, result.boxes
    drawn, without = result.plot(), plain.plot()
    assert drawn.shape == without.shape == (200, 96, 3)
    assert (drawn != without).any()
    tagged = result.plot(boxes=True)[:100] != result.plot(labels=False)[:100]
    assert tagged.any()
    assert (result.plot(boxes=False)[:100] == plain.plot(boxes=False)[:100]).all(), "nothing but the footer is added"
    assert (result.orig_img == 90).all()


def test_the_picture_of_chosen_detections_tells_the_confidence_of_each() -> None:
    sure = {f"/detections/{number}/fields/severity": 0.3 + 0.1 * number for number in IDS}
    told = replace(
        record(),
        confidence={key: Confidence(p=p, choices={"medium": p, "low": 0.0}, mask_mass=1.0) for key, p in sure.items()},
    )
    chosen, without = carrying(told)[[3]], carrying(record())[[3]]
    assert chosen.detection_records[0].id == 1
    assert told.is_unsure("severity", detection=1)
    assert (chosen.plot() != without.plot())[:100].any()


def test_the_picture_of_a_demo_model_is_marked() -> None:
    corner = carrying(demo=True).plot()[:8, -8:].astype(int)
    assert (corner[..., 0] > corner[..., 2] + 60).mean() > 0.5


def test_the_picture_can_be_had_as_pil_and_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = carrying()
    assert (np.asarray(result.plot(pil=True))[..., ::-1] == result.plot()).all()
    shown = []
    monkeypatch.setattr("PIL.Image.Image.show", lambda self, title=None: shown.append(np.asarray(self)))
    result.show()
    assert (shown[0][..., ::-1] == result.plot()).all()
    result.save(str(tmp_path / "a.png"))
    result.plot(True, None, None, "Arial.ttf", False, None, save=True, filename=str(tmp_path / "b.png"))
    from PIL import Image

    for name in ("a.png", "b.png"):
        assert (np.asarray(Image.open(tmp_path / name))[..., ::-1] == result.plot()).all()


def test_a_grey_picture_is_drawn_on() -> None:
    result = carrying()
    result.orig_img = result.orig_img[..., :1]
    assert result.plot().shape == (200, 96, 3)


def test_what_it_is_can_be_printed() -> None:
    assert "record: FrameRecord(" in str(carrying())
    with pytest.raises(AttributeError, match="no attribute 'severity'"):
        carrying().severity  # noqa: B018 - raises
