"""The join: one record per frame, of its detections and of the newest answer that still holds."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.merge.clock import RESTART_S
from hazardlens.merge.rules import RuleContext, RuleOutcome, apply_rules
from hazardlens.merge.sureness import Own, put_together, take_apart
from hazardlens.pipeline import Rule, Zone
from hazardlens.record import Confidence, DetectionRecord, Fields, FrameRecord, VlmState
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer
from hazardlens.vlm.keeping import kept

Enforced = Literal["mask", "server", "checked"]

_TOLERANCE_S = 1e-6
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """A usable answer after the rules, kept for the frames that follow.

    Attributes:
        fields: The frame's fields.
        by_id: Fields of the detections asked about, by id.
        by_track: The same by track id, for those that have one.
        frame: Index of the answered frame.
        time_s: Its presentation time.
        model: Who answered.
        enforced: How the form was held.
        sure: Confidences of the frame's fields, or None where unknown.
        sure_by_id: Confidences of the detections asked about, by id.
        sure_by_track: The same by track id.
    """

    fields: Fields
    by_id: dict[int, Fields]
    by_track: dict[int, Fields]
    frame: int
    time_s: float
    model: str | None
    enforced: Enforced | None
    sure: Own | None
    sure_by_id: dict[int, Own]
    sure_by_track: dict[int, Own]


class Joiner:
    """Makes the records of one source; keep one per source and give it every frame, in order.

    Args:
        schema: The field schema.
        rules: The pipeline's rules.
        zones: The pipeline's zones by name.
        max_age_s: Video time for which an answer is carried on.
    """

    def __init__(
        self, *, schema: FieldSchema, rules: Sequence[Rule], zones: Mapping[str, Zone], max_age_s: float
    ) -> None:
        self._schema = schema
        self._rules = rules
        self._zones = zones
        self._max_age_s = max_age_s
        self._held: _Held | None = None
        self._failure: str | None = None
        self._last_s: float | None = None

    def join(
        self,
        frame: Frame,
        detections: Detections,
        *,
        asked: int = 0,
        trigger: tuple[str, ...] = (),
        answer: Answer | None = None,
        model: str | None,
        enforced: Enforced | None,
        late: bool = False,
    ) -> FrameRecord:
        """Make a frame's record.

        Args:
            frame: The frame.
            detections: Its detections, those asked about first.
            asked: How many of them were asked about; 0 where the frame was not asked.
            trigger: Why the frame was asked; empty where it was not.
            answer: The answer about this frame, or None where it was not asked.
            model: Name of the VLM, or None where there is none.
            enforced: How the VLM holds its form, or None where there is none.
            late: Whether frames behind this one have their records already, for nobody waited for the answer. It is
                carried on all the same, unless the source has started again since.
        """
        if not late:
            self._notice_restart(frame.time_s)
        if answer is None:
            return self._unasked(frame, detections, model)
        if answer.reply is not None:
            model, enforced = answer.reply.model or model, answer.reply.enforced or enforced
        state = _answered_state(frame, answer, trigger, model, enforced)
        if answer.status != "ok" or answer.fields is None:
            what = "was not asked" if answer.status == "skipped" else f"failed: {answer.status}"
            self._failure = f"frame {frame.index} {what}" + (f": {answer.reason}" if answer.reason else "")
            return frame_record(frame, detections, state, asked=asked)
        outcome = self._judge(frame, detections, asked, answer.fields)
        confidence = answer.reply.confidence if answer.reply else None
        held = _hold(outcome, frame, detections, model, enforced, confidence)
        if self._last_s is None or frame.time_s <= self._last_s:
            self._held, self._failure = held, None
        sure = put_together(held.sure, held.sure_by_id)
        record = frame_record(frame, detections, state, fields=held.fields, by_id=held.by_id, asked=asked, sure=sure)
        return replace(record, rules=outcome.traces, contradictions=outcome.contradictions)

    def lost(self, frame: Frame, detections: Detections, reason: str) -> FrameRecord:
        """Make the record of a frame that shows nothing of its source, for the reason given."""
        self._notice_restart(frame.time_s)
        return frame_record(frame, detections, VlmState(status="source_lost", reason=reason))

    def _notice_restart(self, time_s: float) -> None:
        """Drop what is known about another pass over the source, or too far ahead of it to be carried."""
        most_back_s = min(RESTART_S, self._max_age_s) + _TOLERANCE_S
        if self._last_s is not None and time_s < self._last_s - most_back_s:
            self._held = self._failure = None
        self._last_s = time_s

    def _judge(self, frame: Frame, detections: Detections, asked: int, fields: Fields) -> RuleOutcome:
        context = RuleContext(
            detections=detections,
            size_wh=frame.size_wh,
            zones=self._zones,
            schema=self._schema,
            grounded=self._schema.ground(asked),
        )
        return apply_rules(self._rules, fields, context)

    def _unasked(self, frame: Frame, detections: Detections, model: str | None) -> FrameRecord:
        held = self._held
        if model is None or held is None:
            reason = "no VLM" if model is None else self._failure or "not asked yet"
            return frame_record(frame, detections, VlmState(status="skipped", reason=reason))
        age_s = round(max(0.0, frame.time_s - held.time_s), 6)
        state = VlmState(
            status="carried",
            reason=self._failure,
            frame=held.frame,
            age_s=age_s,
            model=held.model,
            enforced=held.enforced,
        )
        if age_s > self._max_age_s:
            reason = f"the answer of frame {held.frame} is {age_s:g} s old, more than {self._max_age_s:g} s"
            reason += f"; {self._failure}" if self._failure else ""
            return frame_record(frame, detections, replace(state, status="stale", reason=reason))
        by_id = _by_index(held.by_track, detections)
        sure = put_together(held.sure, _by_index(held.sure_by_track, detections))
        return frame_record(frame, detections, state, fields=held.fields, by_id=by_id, sure=sure)


def _by_index(by_track: Mapping[int, _T], detections: Detections) -> dict[int, _T]:
    """What is known of tracks, for the detections of a frame."""
    return {
        index: by_track[track]
        for index, track in enumerate(detections.track_id)
        if track is not None and track in by_track
    }


def _by_track(by_id: Mapping[int, _T], detections: Detections) -> dict[int, _T]:
    """What is known of detections, for those that have a track."""
    tracks = ((detections.track_id[index], own) for index, own in by_id.items())
    return {track: own for track, own in tracks if track is not None}


def _hold(
    outcome: RuleOutcome,
    frame: Frame,
    detections: Detections,
    model: str | None,
    enforced: Enforced | None,
    confidence: Mapping[str, Confidence] | None,
) -> _Held:
    """Take an answer apart into fields of the frame and of each detection."""
    fields = {key: value for key, value in outcome.fields.items() if key != "detections"}
    by_id = {
        int(item["id"]): {key: value for key, value in item.items() if key != "id"}
        for item in outcome.fields.get("detections", ())
    }
    sure, sure_by_id = take_apart(confidence)
    return _Held(
        fields=fields,
        by_id=by_id,
        by_track=_by_track(by_id, detections),
        frame=frame.index,
        time_s=frame.time_s,
        model=model,
        enforced=enforced,
        sure=sure,
        sure_by_id=sure_by_id,
        sure_by_track=_by_track(sure_by_id, detections),
    )


def _answered_state(
    frame: Frame, answer: Answer, trigger: tuple[str, ...], model: str | None, enforced: Enforced | None
) -> VlmState:
    reply = answer.reply
    return VlmState(
        status=answer.status,
        reason=answer.reason,
        trigger=trigger,
        frame=frame.index,
        age_s=0.0,
        model=model,
        enforced=enforced,
        latency_s=round(answer.latency_s, 4),
        attempts=answer.attempts,
        input_tokens=reply.input_tokens if reply else None,
        output_tokens=reply.output_tokens if reply else None,
        raw=None if reply is None or reply.told is None else kept(reply.told),
        fallback=reply.fallback if reply else (),
        reused=reply.reused if reply else False,
        reasoning=reply.reasoning if reply else None,
    )


def frame_record(
    frame: Frame,
    detections: Detections,
    state: VlmState,
    *,
    fields: Fields | None = None,
    by_id: Mapping[int, Fields] | None = None,
    asked: int = 0,
    sure: Own | None = None,
) -> FrameRecord:
    """Put a record together; fields are copied, so that changing one record changes no other.

    Args:
        frame: The frame.
        detections: Its detections.
        state: Where its fields come from, or why it has none.
        fields: The frame's fields, or None.
        by_id: Fields of detections by id.
        asked: How many detections were asked about, from the first.
        sure: How sure the model was of the fields, or None.
    """
    return FrameRecord(
        source=frame.source,
        frame=frame.index,
        time_s=frame.time_s,
        size_wh=frame.size_wh,
        detections=tuple(_detection(detections, index, asked, by_id or {}) for index in range(len(detections))),
        fields=copy.deepcopy(fields),
        confidence=sure,
        vlm=state,
        damaged=frame.damaged,
    )


def _detection(detections: Detections, index: int, asked: int, by_id: Mapping[int, Fields]) -> DetectionRecord:
    x1, y1, x2, y2 = (round(float(value), 2) for value in detections.boxes_xyxy_px[index])
    return DetectionRecord(
        id=index,
        track_id=detections.track_id[index],
        class_name=detections.class_name(index),
        class_id=int(detections.class_id[index]),
        confidence=round(float(detections.confidence[index]), 4),
        box_xyxy=(x1, y1, x2, y2),
        asked=index < asked,
        fields=copy.deepcopy(by_id.get(index)),
    )
