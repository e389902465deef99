"""What is written: one record per frame, as defined by `schemas/record.json`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal[
    "ok",
    "carried",
    "stale",
    "pending",
    "skipped",
    "source_lost",
    "truncated",
    "invalid",
    "refused",
    "timeout",
    "error",
]
"""How a frame's fields came about; only `ok` and `carried` have fields."""

Fields = dict[str, Any]
"""Field values by name, as the schema defines them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectionRecord:
    """One detection of a frame, with the fields that the VLM gave it.

    Attributes:
        id: Index of the detection in its frame, 0-based.
        track_id: The tracker's id, or None.
        class_name: Name of the detector's class, written as `class`.
        class_id: Index of the detector's class.
        confidence: Detector confidence, 0..1.
        box_xyxy: Corners (x1, y1, x2, y2) in pixels.
        asked: Whether the VLM was asked about this detection in this frame.
        fields: The VLM's fields for it, or None where there are none.
    """

    id: int
    track_id: int | None
    class_name: str
    class_id: int
    confidence: float
    box_xyxy: tuple[float, float, float, float]
    asked: bool
    fields: Fields | None

    def to_dict(self) -> dict[str, Any]:
        """The detection as `schemas/record.json` spells it."""
        return {
            "id": self.id,
            "track_id": self.track_id,
            "class": self.class_name,
            "class_id": self.class_id,
            "confidence": self.confidence,
            "box_xyxy": list(self.box_xyxy),
            "asked": self.asked,
            "fields": self.fields,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class VlmState:
    """Where a frame's fields come from, or why it has none.

    Attributes:
        status: See `Status`.
        reason: Why the status is not `ok`, or None.
        trigger: Why this frame was asked (`every`, `new_track`, `zone:NAME`); empty where it was not.
        frame: Index of the frame that the VLM saw, or None.
        age_s: Video time since that frame in seconds, or None.
        model: Name of the model that answered or was asked, or None.
        enforced: How the form was held: `mask`, `server` or `checked`; None where nothing was asked.
        latency_s: Wall time of the answer in seconds, or None.
        attempts: Tries that the answer took; 0 where this frame was not asked.
        input_tokens: Tokens of prompt and picture, or None where unknown.
        output_tokens: Tokens of the answer, or None where unknown.
        raw: The answer's text as the model gave it, on asked frames; None elsewhere.
    """

    status: Status
    reason: str | None = None
    trigger: tuple[str, ...] = ()
    frame: int | None = None
    age_s: float | None = None
    model: str | None = None
    enforced: Literal["mask", "server", "checked"] | None = None
    latency_s: float | None = None
    attempts: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    raw: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleTrace:
    """One change that a rule made, or refused to make, to an answer.

    Attributes:
        name: Name of the rule in the pipeline.
        field: JSON pointer of the value in the record: `/fields/severity` for the frame's field,
            `/detections/2/fields/severity` for an object's.
        before: The value as it stood before.
        after: The value as it stands now; equal to `before` where the change would have broken the schema.
        why: The reason in plain words.
    """

    name: str
    field: str
    before: Any
    after: Any
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """A statement of the VLM that the frame's own detections speak against.

    Attributes:
        name: Name of the rule in the pipeline.
        field: JSON pointer of the statement in the record, for instance `/fields/notes`.
        why: The reason in plain words.
    """

    name: str
    field: str
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameRecord:
    """One frame, whole: what was detected and what the VLM said.

    Attributes:
        source: Name of the source.
        frame: 0-based index of the frame in its source.
        time_s: Presentation time in seconds.
        size_wh: Width and height in pixels.
        detections: All detections, those asked about first.
        fields: The VLM's fields for the frame; None where there are none.
        confidence: Per field, how sure the answer is; None where that is unknown.
        vlm: Where the fields come from, or why there are none.
        rules: Changes that rules made, in order.
        contradictions: What the detections speak against.
        alerts: Alerts that became true or ended on this frame.
    """

    source: str
    frame: int
    time_s: float
    size_wh: tuple[int, int]
    detections: tuple[DetectionRecord, ...]
    fields: Fields | None
    vlm: VlmState
    confidence: dict[str, Any] | None = None
    rules: tuple[RuleTrace, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    alerts: tuple[dict[str, Any], ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """The record as `schemas/record.json` spells it, of plain JSON types."""
        return {
            "source": self.source,
            "frame": self.frame,
            "time_s": self.time_s,
            "size_wh": list(self.size_wh),
            "detections": [detection.to_dict() for detection in self.detections],
            "fields": self.fields,
            "confidence": self.confidence,
            "vlm": {**asdict(self.vlm), "trigger": list(self.vlm.trigger)},
            "rules": [asdict(trace) for trace in self.rules],
            "contradictions": [asdict(item) for item in self.contradictions],
            "alerts": list(self.alerts),
        }

    def to_json(self) -> str:
        """The record as one line of JSON without a line break."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
