"""One source's part of the merge: whether a frame is asked about, and its record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hazardlens.alerts.watch import AlertWatch
from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.merge.join import Joiner
from hazardlens.merge.policy import AskPolicy
from hazardlens.pipeline import Pipeline
from hazardlens.record import FrameRecord
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, Question, Vlm


class SourceMerge:
    """What is remembered of one source: when it was asked about, and the newest answer that still holds.

    Keep one per source and give it every frame, in order. Threads take turns outside of it.

    Args:
        pipeline: When to ask, rules, limits.
        schema: The field schema.
        vlm: The VLM, or None where nothing is ever asked.
    """

    def __init__(self, pipeline: Pipeline, schema: FieldSchema, vlm: Vlm | None) -> None:
        self._pipeline = pipeline
        self._schema = schema
        self._vlm = vlm
        self._policy = AskPolicy(pipeline.ask, pipeline.zones)
        self._joiner = Joiner(schema=schema, rules=pipeline.rules, zones=pipeline.zones, max_age_s=pipeline.max_age_s)
        self._alerts = AlertWatch(pipeline, schema)
        self._damaged_since_s: float | None = None

    @property
    def max_age_s(self) -> float:
        """Video time for which an answer is carried on."""
        return self._pipeline.max_age_s

    def question(
        self, frame: Frame, detections: Detections, *, may_ask: bool = True
    ) -> tuple[Detections, Question | None]:
        """Decide whether to ask about a frame.

        A damaged one waits for one that is whole as one within `min_gap_s` waits, but not for longer than `max_age_s`.

        Args:
            frame: The frame.
            detections: What the detector found on it.
            may_ask: Whether a question could be taken now; if not, what would have asked waits.

        Returns:
            The detections, those asked about first, and the question, or None where the frame is not asked about.
        """
        may_ask = may_ask and not self._waits_for_a_whole_one(frame)
        trigger = self._policy.decide(frame, detections, may_ask=may_ask) if self._vlm is not None else ()
        if not trigger:
            return detections, None
        asked = 0
        if self._schema.has_detections:
            detections, asked = self._policy.select(detections, self._pipeline.max_objects)
        question = Question(
            frame=frame,
            detections=detections,
            asked=asked,
            fields=self._schema,
            schema=self._schema.ground(asked),
            context=self._pipeline.context,
            trigger=trigger,
        )
        return detections, question

    def record(
        self,
        frame: Frame,
        detections: Detections,
        question: Question | None = None,
        answer: Answer | None = None,
        *,
        late: bool = False,
    ) -> FrameRecord:
        """Make a frame's record.

        Args:
            frame: The frame.
            detections: Its detections, as `question` gave them.
            question: What was asked about it, or None.
            answer: What came of that, or None.
            late: Whether frames behind this one have their records already.
        """
        if question is not None and answer is not None:
            self._policy.settled(question.frame, ok=answer.status == "ok")
        record = self._joiner.join(
            frame,
            detections,
            asked=question.asked if question else 0,
            trigger=question.trigger if question else (),
            answer=answer,
            model=self._vlm.name if self._vlm else None,
            enforced=self._vlm.enforced if self._vlm else None,
            late=late,
        )
        return self._alerts.see(record, late=late)

    def record_meanwhile(self, frame: Frame, detections: Detections, under_way: Question) -> FrameRecord:
        """Make the record of a frame while an answer is being waited for: that of an earlier one is carried on.

        Args:
            frame: The frame.
            detections: Its detections, as `question` gave them.
            under_way: The question whose answer has not come yet, about this frame or one before.
        """
        record = self.record(frame, detections)
        state = record.vlm
        if state.status == "skipped":
            reason = f"the answer about frame {under_way.frame.index} has not come yet"
            state = replace(state, status="pending", reason=reason)
        if under_way.frame.index != frame.index:
            return replace(record, vlm=state)
        asked = tuple(replace(one, asked=one.id < under_way.asked) for one in record.detections)
        return replace(record, detections=asked, vlm=replace(state, trigger=under_way.trigger))

    def dropped(self, question: Question) -> None:
        """A question will never be asked, for a newer one took its place."""
        self._policy.dropped(question.frame)

    def lost(self, frame: Frame, detections: Detections, reason: str) -> FrameRecord:
        """Make the record of a frame that shows nothing of its source; nothing is asked about it."""
        return self._joiner.lost(frame, detections, reason)

    def _waits_for_a_whole_one(self, frame: Frame) -> bool:
        """Whether a frame is damaged, and a whole one may still come in time."""
        if not frame.damaged:
            self._damaged_since_s = None
            return False
        if self._damaged_since_s is None or frame.time_s < self._damaged_since_s:
            self._damaged_since_s = frame.time_s
        return frame.time_s - self._damaged_since_s <= self._pipeline.max_age_s

    def end_alerts(self, why: str) -> tuple[dict[str, Any], ...]:
        """End the alerts that are under way, for nothing more will come, and tell them."""
        return self._alerts.end(why)
