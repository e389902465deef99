"""Ultralytics' own results, with the fields: whatever is copied, chosen or written of them speaks of them as well."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from hazardlens.detect.ultralytics_setup import Annotator, Results
from hazardlens.record import DetectionRecord, Fields, FrameRecord
from hazardlens.schema import FieldSchema

_NOBODY = -1
_TAKEN = frozenset({"name", "class", "confidence", "box", "track_id", "segments", "keypoints"})
"""Keys that Ultralytics' summary may have."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Told:
    """What is known of the frame that a result is of.

    Attributes:
        record: The frame's record.
        schema: The schema of its fields.
        geometry: Box and class of each row of the result as it was first, shape (n, k), float32.
        ids: Of each of these rows, the id of the detection in the record, shape (n,).
        demo: Whether demo models took part; pictures say so.
    """

    record: FrameRecord
    schema: FieldSchema
    geometry: NDArray[np.float32]
    ids: NDArray[np.int64]
    demo: bool

    def recognise(self, geometry: NDArray[np.float32]) -> NDArray[np.int64]:
        """Ids of rows that were chosen or put in another order by others; -1 for what was not there before."""
        known: dict[bytes, list[int]] = {}
        for row, number in zip(self.geometry, self.ids, strict=True):
            known.setdefault(row.tobytes(), []).append(int(number))
        found = [known.get(row.tobytes()) for row in geometry]
        return np.array([ids.pop(0) if ids else _NOBODY for ids in found], np.int64)


class FieldResults(Results):  # type: ignore[misc]
    """A result of Ultralytics that carries the frame's record and the fields of each of its detections.

    Copies (`cpu`, `numpy`, `to`, indexing, `new`, pickling, `copy`) carry them for the detections that remain.
    `summary`, `to_df`, `to_csv` and `to_json` have them as columns, `verbose` and `plot` speak of them.
    """

    _told: Told
    _ids: NDArray[np.int64]
    _ids_of: object

    @classmethod
    def carrying(cls, result: Results, told: Told) -> Self:
        """The same result, carrying what is told about its frame."""
        carrier = cls.__new__(cls)
        carrier.__dict__.update(result.__dict__, _told=told)
        carrier._remember(told.ids)
        return carrier

    @property
    def record(self) -> FrameRecord:
        """The frame's record, whole, whichever detections remain."""
        return self._told.record

    @property
    def fields(self) -> Fields | None:
        """The frame's fields, or None where there is no answer to rely on; `record.vlm` says why."""
        return self._told.record.fields

    @property
    def detection_fields(self) -> list[Fields | None]:
        """The fields of each detection, in the order of `boxes`; None means not judged, which is not "no hazard"."""
        return [one.fields if one is not None else None for one in self.detection_records]

    @property
    def detection_records(self) -> list[DetectionRecord | None]:
        """The record of each detection, in the order of `boxes`; None for boxes that others put there."""
        records = self._told.record.detections
        return [records[number] if number != _NOBODY else None for number in self._current_ids()]

    def new(self) -> Self:
        """A result of the same frame without detections."""
        fresh = self.carrying(super().new(), self._told)
        fresh._remember(np.zeros(0, np.int64))
        return fresh

    def summary(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """Ultralytics' summary, each detection with its fields, `vlm_status` and `vlm_age_s`.

        A field whose name Ultralytics uses itself gets `vlm_` before it.
        """
        if self._rows() is None:  # older versions of Ultralytics fail there
            return []
        rows: list[dict[str, Any]] = super().summary(*args, **kwargs)
        state = self.record.vlm
        for row, fields in zip(rows, self.detection_fields, strict=True):
            for name in self._told.schema.object_properties:
                row[f"vlm_{name}" if name in _TAKEN else name] = (fields or {}).get(name)
            row.update(vlm_status=state.status, vlm_age_s=state.age_s)
        return rows

    def to_df(self, normalize: bool = False, decimals: int = 5) -> Any:
        """The summary as a polars frame, a row per detection."""
        import polars

        return polars.DataFrame(self.summary(normalize=normalize, decimals=decimals), infer_schema_length=None)

    def verbose(self) -> str:
        """Ultralytics' log line, then the frame's verdict, or why there is none."""
        return f"{super().verbose()}{_in_words(self._told)}, "

    def plot(self, *args: Any, **kwargs: Any) -> Any:
        """Ultralytics' picture, with verdicts at the boxes and below; arguments as `Results.plot` takes them."""
        chosen = inspect.signature(super().plot).bind(*args, **kwargs)
        chosen.apply_defaults()
        given = chosen.arguments
        show, save, pil = given["show"], given["save"], given["pil"]
        drawn = super().plot(**{**given, "show": False, "save": False, "pil": False})
        picture = Annotator(self._with_verdicts(drawn, of_objects=given["boxes"] and given["labels"]))
        if show:
            picture.show(self.path)
        if save:
            picture.save(given["filename"] or f"results_{Path(self.path).name}")
        return picture.result(pil)

    def _with_verdicts(self, image: NDArray[np.uint8], *, of_objects: bool) -> NDArray[np.uint8]:
        from hazardlens.outputs.draw import Painter

        if image.ndim != 3 or image.shape[2] != 3:
            image = np.repeat(image.reshape(*image.shape[:2], -1)[..., :1], 3, axis=2)
        painter = Painter(self._told.schema, (image.shape[1], image.shape[0]), {}, demo=self._told.demo)
        remaining = tuple(one for one in self.detection_records if one is not None)
        return painter.add_verdicts(image, replace(self.record, detections=remaining), of_objects=of_objects)

    def _apply(self, fn: str, *args: Any, **kwargs: Any) -> Self:
        result: Self = super()._apply(fn, *args, **kwargs)
        ids = self._current_ids()
        result._remember(_chosen(ids, *args) if fn == "__getitem__" else ids)
        return result

    def _rows(self) -> Any:
        return self.boxes if self.obb is None else self.obb

    def _remember(self, ids: NDArray[np.int64]) -> None:
        """Note whose rows the present ones are; who puts others in place is noticed by `_current_ids`."""
        self._ids, self._ids_of = ids, self._rows()

    def _current_ids(self) -> NDArray[np.int64]:
        rows = self._rows()
        if rows is not self._ids_of:
            self._remember(self._told.recognise(geometry(rows)))
        return self._ids


def geometry(rows: Any) -> NDArray[np.float32]:
    """Box and class of each of Ultralytics' boxes, shape (n, 5), or (n, 6) for oriented ones; none for None."""
    if rows is None:
        return np.zeros((0, 0), np.float32)
    data = rows.cpu().numpy().data
    coordinates = 5 if hasattr(rows, "xywhr") else 4
    return np.concatenate([data[:, :coordinates], data[:, -1:]], axis=1).astype(np.float32)


def _chosen(ids: NDArray[np.int64], index: Any) -> NDArray[np.int64]:
    """Ids of the rows that Ultralytics keeps for an index of any of the kinds that it takes."""
    index = index.cpu().numpy() if hasattr(index, "cpu") else index
    return np.atleast_1d(ids[index])


def _in_words(told: Told) -> str:
    """The verdict of a frame with its age, or why there is none."""
    state, fields = told.record.vlm, told.record.fields
    if fields is None:
        return f"no answer: {state.status}"
    ranked = [f"{name} {value}" for name, value in fields.items() if told.schema.rank(name, scope="frame") is not None]
    age = [f"{state.age_s:.1f} s old"] if state.status == "carried" else []
    return ", ".join([*ranked, *age]) or state.status
