"""What is written: one record per frame, as defined by `schemas/record.json`."""

from __future__ import annotations

import contextlib
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

CameraState = Literal["online", "offline", "reconnecting", "ended"]
"""States of a camera."""

Fields = dict[str, Any]
"""Field values by name, as the schema defines them."""

UNSURE_BELOW = 0.5
"""A verdict is unsure where its `p` is below this, for something else is more likely than not, or its `mask_mass`, for
the model would rather have said what the schema does not allow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Confidence:
    """How sure a model was of one verdict: probabilities among the tokens that it chose from, under the mask.

    Attributes:
        p: Probability of the value that was chosen.
        choices: Probability of each value, by its text; by its JSON where it is no text or reads like another value.
        mask_mass: Probability that the model, unmasked, gave to the tokens that the mask allowed where the choice
            began; what is missing to 1 is how much it wanted to say something else.
        unresolved: Probability of beginnings that were not taken and that several values share.
        exact: The model's own probability of each value as a whole, given that it is one of them, or None where it was
            not asked for.
    """

    p: float
    choices: dict[str, float]
    mask_mass: float
    unresolved: float = 0.0
    exact: dict[str, float] | None = None

    @property
    def is_unsure(self) -> bool:
        """Whether `p` or `mask_mass` is below `UNSURE_BELOW`."""
        return min(self.p, self.mask_mass) < UNSURE_BELOW

    def to_dict(self) -> dict[str, Any]:
        """The confidence as `schemas/record.json` spells it, rounded to four digits."""
        return {
            "p": round(self.p, 4),
            "choices": _rounded(self.choices),
            "mask_mass": round(self.mask_mass, 4),
            "unresolved": round(self.unresolved, 4),
            "exact": None if self.exact is None else _rounded(self.exact),
        }


def _rounded(choices: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in choices.items()}


def choice_name(value: Any) -> str:
    """A value as a key of `Confidence.choices`: text as it is, unless it reads like another value; all else as JSON."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            json.loads(value)
            return json.dumps(value, ensure_ascii=False)
        return value
    return json.dumps(value, ensure_ascii=False)


def _field_key(field: str, detection: int | None) -> str:
    return confidence_key("/" + field.replace("~", "~0").replace("/", "~1"), detection=detection)


def confidence_key(pointer: str, *, detection: int | None = None) -> str:
    """Key in a record's `confidence`: the name of a frame's own field, else the JSON pointer in the record.

    Args:
        pointer: JSON pointer in the fields of the frame or the detection, such as `/hazard`.
        detection: Id of the detection, or None for the frame's own fields.
    """
    if detection is not None:
        return f"/detections/{detection}/fields{pointer}"
    name = pointer[1:]
    return f"/fields{pointer}" if "/" in name or "~" in name else name


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
        raw: The answer's text as the model gave it, on asked frames; None elsewhere. It is cut, with a mark,
            beyond 64 KiB.
        fallback: What was asked before `model` in vain, and why, in order.
        reused: Whether the answer is that of an earlier question of exactly the same bytes.
        reasoning: What the model said freely ahead of it, where that is kept; None elsewhere.
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
    fallback: tuple[str, ...] = ()
    reused: bool = False
    reasoning: str | None = None


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
class CameraEvent:
    """Something that happened to a camera.

    Attributes:
        state: The state that it is in from now on.
        reason: Why, or what is to be said of it, or None.
        attempt: Tries to connect that have failed in a row; 0 unless `reconnecting`.
        wait_s: Seconds until the next try, or None unless `reconnecting`.
    """

    state: CameraState
    reason: str | None = None
    attempt: int = 0
    wait_s: float | None = None


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
        confidence: How sure the model was of each verdict; None where that is unknown. The frame's own fields go by
            their names, all others by their JSON pointer in the record, such as `/detections/2/fields/hazard`.
        vlm: Where the fields come from, or why there are none.
        rules: Changes that rules made, in order.
        contradictions: What the detections speak against.
        alerts: Alerts that became true or ended on this frame.
        at: Date and time at which the frame came, ISO 8601 in UTC; None for files and where nobody looked.
        event: What happened to the camera; None in the record of a frame.
        damaged: Whether the picture is known not to be as it was taken: its decoder marked it as corrupt, or it comes
            behind such damage and ahead of the next key frame.
    """

    source: str
    frame: int
    time_s: float
    size_wh: tuple[int, int]
    detections: tuple[DetectionRecord, ...]
    fields: Fields | None
    vlm: VlmState
    confidence: dict[str, Confidence] | None = None
    rules: tuple[RuleTrace, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    alerts: tuple[dict[str, Any], ...] = field(default=())
    at: str | None = None
    event: CameraEvent | None = None
    damaged: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The record as `schemas/record.json` spells it, of plain JSON types."""
        return {
            "source": self.source,
            "frame": self.frame,
            "time_s": self.time_s,
            "size_wh": list(self.size_wh),
            "detections": [detection.to_dict() for detection in self.detections],
            "fields": self.fields,
            "confidence": None
            if self.confidence is None
            else {name: own.to_dict() for name, own in self.confidence.items()},
            "vlm": {**asdict(self.vlm), "trigger": list(self.vlm.trigger), "fallback": list(self.vlm.fallback)},
            "rules": [asdict(trace) for trace in self.rules],
            "contradictions": [asdict(item) for item in self.contradictions],
            "alerts": list(self.alerts),
            "at": self.at,
            "event": None if self.event is None else asdict(self.event),
            "damaged": self.damaged,
        }

    def confidence_of(self, field: str, *, detection: int | None = None) -> float | None:
        """Probability that the model gave to the value that a field has now; None where it is unknown.

        It is unknown too where a rule changed the value, for the model chose another.

        Args:
            field: Name of a field.
            detection: Id of the detection, or None for the frame's own field.
        """
        own = self._confidence_in(field, detection)
        return None if own is None else own.p

    def is_unsure(self, field: str, *, detection: int | None = None) -> bool:
        """Whether the model was unsure of the value that a field has now, as far as is known; arguments as above."""
        own = self._confidence_in(field, detection)
        return own is not None and own.is_unsure

    def _confidence_in(self, field: str, detection: int | None) -> Confidence | None:
        """The confidence in the value that a field has now."""
        own = (self.confidence or {}).get(_field_key(field, detection))
        if own is None:
            return None
        fields = self.fields
        if detection is not None:
            fields = next((one.fields for one in self.detections if one.id == detection), None)
        if fields is None or field not in fields:
            return None
        return own if own.choices.get(choice_name(fields[field])) == own.p else None

    def had_choice(self, field: str, *, detection: int | None = None) -> bool:
        """Whether the model could have given a field another value, as far as is known; arguments as above."""
        return not self.confidence or _field_key(field, detection) in self.confidence

    def to_json(self) -> str:
        """The record as one line of JSON without a line break."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)
