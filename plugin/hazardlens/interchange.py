"""Records and results in the forms of other tools: supervision, polars, pandas, COCO.

`supervision` and `pandas` are optional: `pip install "hazardlens[interchange]"`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hazardlens.errors import InputError
from hazardlens.record import DetectionRecord, Fields, FrameRecord

if TYPE_CHECKING:
    from hazardlens.callback.results import FieldResults

Told: TypeAlias = "FrameRecord | FieldResults"
"""A record, as `hazardlens.process` gives it, or a result of an attached model."""

_OWN = (
    *("source", "frame", "time_s", "id", "track_id", "class", "class_id", "confidence"),
    *("x1", "y1", "x2", "y2", "asked"),
)
_STATE = ("vlm_status", "vlm_age_s")
_EXTRA = "interchange"


def to_supervision(told: Told) -> Any:
    """A `supervision.Detections` of one frame.

    Each field of the detections is an array in `data`, None where nothing is known. `metadata` has the frame's
    `source`, `frame`, `time_s`, `fields` and `vlm`. Masks and oriented boxes of a result are kept.

    Raises:
        InputError: If supervision is not installed, or it is neither a record nor a result of an attached model.
    """
    supervision = _optional("supervision")
    record, detections, fields = _frame(told)
    if isinstance(told, FrameRecord):
        found = _plain_detections(supervision, detections)
    else:
        found = supervision.Detections.from_ultralytics(told)
    for name in _field_names(fields):
        found.data[_column(name, found.data)] = np.array([(one or {}).get(name) for one in fields], dtype=object)
    state = {"source": record.source, "frame": record.frame, "time_s": record.time_s, "fields": record.fields}
    found.metadata.update(state, vlm=asdict(record.vlm))
    return found


def to_polars(told: Iterable[Told]) -> Any:
    """A polars frame with a row per detection of all frames, one column per field, None where nothing is known.

    Raises:
        InputError: If one of them is neither a record nor a result of an attached model.
    """
    rows, columns = _table(told)
    polars = _optional("polars")
    if not rows:
        return polars.DataFrame({name: [] for name in columns})
    return polars.DataFrame(rows, infer_schema_length=None).select(columns)


def to_pandas(told: Iterable[Told]) -> Any:
    """The same as a pandas frame, with pandas' missing values where nothing is known.

    Raises:
        InputError: If pandas is not installed, or one is neither a record nor a result of an attached model.
    """
    rows, columns = _table(told)
    return _optional("pandas").DataFrame(rows, columns=columns)


def to_coco(told: Iterable[Told]) -> dict[str, Any]:
    """The frames as the content of a COCO JSON file.

    Images have the frame's number, time, fields and status beside COCO's keys, annotations a detection's confidence as
    `score`, its `track_id`, and its fields as `attributes`. Category ids are the detector's class ids.

    Raises:
        InputError: If one of them is neither a record nor a result of an attached model.
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    categories: dict[int, str] = {}
    for number, one in enumerate(told, 1):
        record, detections, fields = _frame(one)
        images.append(_coco_image(number, record))
        for detection, own in zip(detections, fields, strict=True):
            if detection is not None:
                categories[detection.class_id] = detection.class_name
                annotations.append(_coco_annotation(len(annotations) + 1, number, detection, own))
    named = [{"id": number, "name": name} for number, name in sorted(categories.items())]
    return {"images": images, "annotations": annotations, "categories": named}


def _coco_image(number: int, record: FrameRecord) -> dict[str, Any]:
    width, height = record.size_wh
    return {
        "id": number,
        "file_name": record.source,
        "width": width,
        "height": height,
        "frame": record.frame,
        "time_s": record.time_s,
        "attributes": record.fields,
        "vlm_status": record.vlm.status,
    }


def _coco_annotation(number: int, image: int, detection: DetectionRecord, fields: Fields | None) -> dict[str, Any]:
    x1, y1, x2, y2 = detection.box_xyxy
    width, height = round(x2 - x1, 2), round(y2 - y1, 2)
    return {
        "id": number,
        "image_id": image,
        "category_id": detection.class_id,
        "bbox": [x1, y1, width, height],
        "area": round(width * height, 2),
        "iscrowd": 0,
        "score": detection.confidence,
        "track_id": detection.track_id,
        "attributes": fields,
    }


def _frame(told: Told) -> tuple[FrameRecord, list[DetectionRecord | None], list[Fields | None]]:
    """The record, the detections that remain, and the fields of each."""
    if isinstance(told, FrameRecord):
        return told, list(told.detections), [one.fields for one in told.detections]
    if not hasattr(told, "detection_records"):
        raise InputError(
            f"expected a record or a result of an attached model, got {type(told).__name__}",
            help="Attach the model first: hazardlens.attach(model).",
        )
    return told.record, told.detection_records, told.detection_fields


def _table(told: Iterable[Told]) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows, and the names of their columns in order."""
    frames = [_frame(one) for one in told]
    names = _field_names([own for _, _, fields in frames for own in fields])
    rows = [
        _row(record, detection, own, names)
        for record, detections, fields in frames
        for detection, own in zip(detections, fields, strict=True)
        if detection is not None
    ]
    return rows, [*_OWN, *(_column(name, _OWN) for name in names), *_STATE]


def _row(record: FrameRecord, detection: DetectionRecord, fields: Fields | None, names: list[str]) -> dict[str, Any]:
    whole = detection.to_dict()
    row = {"source": record.source, "frame": record.frame, "time_s": record.time_s}
    row.update((key, whole[key]) for key in ("id", "track_id", "class", "class_id", "confidence"))
    row.update(zip(("x1", "y1", "x2", "y2"), detection.box_xyxy, strict=True))
    row["asked"] = detection.asked
    row.update((_column(name, _OWN), (fields or {}).get(name)) for name in names)
    return {**row, "vlm_status": record.vlm.status, "vlm_age_s": record.vlm.age_s}


def _field_names(fields: Iterable[Fields | None]) -> list[str]:
    return list(dict.fromkeys(name for own in fields for name in own or ()))


def _column(name: str, taken: Iterable[str]) -> str:
    return f"vlm_{name}" if name in (*taken, *_STATE) else name


def _plain_detections(supervision: Any, detections: list[DetectionRecord | None]) -> Any:
    known = [one for one in detections if one is not None]
    tracks = [one.track_id for one in known]
    return supervision.Detections(
        xyxy=np.array([one.box_xyxy for one in known], np.float32).reshape(len(known), 4),
        confidence=np.array([one.confidence for one in known], np.float32),
        class_id=np.array([one.class_id for one in known], int),
        tracker_id=np.array(tracks, int) if known and None not in tracks else None,
        data={"class_name": np.array([one.class_name for one in known])},
    )


def _optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{error.name} is not installed", help=f"pip install {error.name}, or hazardlens[{_EXTRA}]"
        ) from error
