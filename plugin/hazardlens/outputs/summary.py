"""`summary.json`: the account of a run, so that what did not happen can be seen as well as what did."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hazardlens.errors import OutputError
from hazardlens.frames.base import FrameAccount
from hazardlens.merge.outcome import Outcome, Stages
from hazardlens.record import Fields, FrameRecord
from hazardlens.schema import FieldSchema

_REASON_CHARACTERS = 200
_MOST_REASONS = 100


@dataclass(kw_only=True, slots=True)
class Stretch:
    """Consecutive frames with the same verdict.

    Attributes:
        fields: The frame's choice fields, or None where nothing is known.
        status: The status of the first frame.
        from_s: Time of the first frame in seconds.
        to_s: Time of the last frame in seconds.
        frames: How many frames.
        p_least: The least probability that an answer gave to its hazard, or None where none is known.
        p_median: The median of these, rounded down to a hundredth, but never below the least; of an even number, the
            lower of the two in the middle.
        unsure: How many answers were unsure of their hazard (`Confidence.is_unsure`).
    """

    fields: Fields | None
    status: str
    from_s: float
    to_s: float
    frames: int = 1
    p_least: float | None = None
    p_median: float | None = None
    unsure: int = 0


@dataclass(kw_only=True)
class Summary:
    """Counts what passes by.

    Attributes:
        source: Name of the source.
        schema: The schema of the fields.
        setup: What the run was made of (detector, VLM, schema, pipeline), as plain JSON types.
        demo: Whether demo models took part, which know drawn scenes only.
    """

    source: str
    schema: FieldSchema
    setup: dict[str, Any]
    demo: bool = False
    account: FrameAccount | None = None
    records: int = 0
    records_by_status: Counter[str] = field(default_factory=Counter)
    detections_by_class: Counter[str] = field(default_factory=Counter)
    questions_by_status: Counter[str] = field(default_factory=Counter)
    questions_by_trigger: Counter[str] = field(default_factory=Counter)
    questions_by_enforced: Counter[str] = field(default_factory=Counter)
    questions_by_model: Counter[str] = field(default_factory=Counter)
    reused: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    contradictions: Counter[str] = field(default_factory=Counter)
    alerts: Counter[str] = field(default_factory=Counter)
    timeline: list[Stretch] = field(default_factory=list)
    stages: Stages = field(default_factory=Stages)
    _started: float = field(default_factory=time.perf_counter)
    _percents: Counter[int] = field(default_factory=Counter)
    _weighed: int | None = None

    @property
    def questions(self) -> int:
        """Questions that came back, answered or not."""
        return self.questions_by_status.total()

    @property
    def answered(self) -> int:
        """Questions that were answered."""
        return self.questions_by_status["ok"]

    def add(self, outcome: Outcome) -> None:
        """Count one finished frame."""
        record = outcome.record
        self.records += 1
        self.records_by_status[record.vlm.status] += 1
        self.detections_by_class.update(detection.class_name for detection in record.detections)
        self.rules.update(trace.name for trace in record.rules if trace.before != trace.after)
        self.contradictions.update(item.name for item in record.contradictions)
        self.alerts.update(alert["rule"] for alert in record.alerts if alert["state"] == "began")
        self._lengthen(record)
        if outcome.answer is not None:
            self._count_answer(outcome)

    def verdict(self, fields: Fields) -> Fields:
        """The choice fields among a frame's `fields`."""
        return verdict(self.schema, fields)

    def _count_answer(self, outcome: Outcome) -> None:
        answer = outcome.answer
        if answer is None:
            return
        self.questions_by_status[answer.status] += 1
        self.questions_by_trigger.update(outcome.record.vlm.trigger)
        state = outcome.record.vlm
        self.questions_by_enforced.update([state.enforced] if state.enforced else [])
        self.questions_by_model.update([state.model] if state.model else [])
        self.reused += state.reused
        self.latencies_s.append(answer.latency_s)
        if answer.reason:
            self._count_reason(answer.status, answer.reason)
        if answer.reply is not None:
            self.tokens["input"] += answer.reply.input_tokens or 0
            self.tokens["output"] += answer.reply.output_tokens or 0

    def _count_reason(self, status: str, reason: str) -> None:
        """Count a reason by its beginning; distinct ones are bounded, since a model's own words may stand in them."""
        key = f"{status}: {reason[:_REASON_CHARACTERS]}"
        if key not in self.reasons and len(self.reasons) >= _MOST_REASONS:
            key = f"{status}: other reasons"
        self.reasons[key] += 1

    def _lengthen(self, record: FrameRecord) -> None:
        fields = record.fields
        if fields is not None:
            fields = self.verdict(fields)
        last = self.timeline[-1] if self.timeline else None
        known = fields is not None
        if last is not None and last.fields == fields and (known or last.status == record.vlm.status):
            last.to_s = record.time_s
            last.frames += 1
        else:
            self._percents.clear()
            self._weighed = None
            last = Stretch(fields=fields, status=record.vlm.status, from_s=record.time_s, to_s=record.time_s)
            self.timeline.append(last)
        if fields is not None and record.vlm.frame != self._weighed:
            self._weighed = record.vlm.frame
            self._weigh(last, record, hazard_field(fields))

    def _weigh(self, stretch: Stretch, record: FrameRecord, hazard: str | None) -> None:
        """Take an answer's confidence into the last stretch; percents are counted, so memory is bounded."""
        p = None if hazard is None else record.confidence_of(hazard)
        if hazard is None or p is None:
            return
        stretch.unsure += record.is_unsure(hazard)
        self._percents[int(100 * p + 1e-9)] += 1
        least = p if stretch.p_least is None else min(p, stretch.p_least)
        stretch.p_least = round(least, 4)
        stretch.p_median = max(_median_percent(self._percents) / 100, stretch.p_least)

    def to_dict(self, *, complete: bool, reason: str | None = None) -> dict[str, Any]:
        """The summary as plain JSON types.

        Args:
            complete: Whether the source was processed to its end.
            reason: Why not, or None.
        """
        wall_s = time.perf_counter() - self._started
        return {
            "source": self.source,
            "complete": complete,
            "reason": reason,
            **self.setup,
            "demo": self.demo,
            "frames": {**(asdict(self.account) if self.account else {}), "records": self.records},
            "records_by_status": dict(self.records_by_status),
            "detections_by_class": dict(self.detections_by_class.most_common()),
            "questions": {
                "asked": self.questions,
                "by_status": dict(self.questions_by_status),
                "by_trigger": dict(self.questions_by_trigger),
                "by_enforced": dict(self.questions_by_enforced),
                "by_model": dict(self.questions_by_model),
                "reused": self.reused,
                "reasons": dict(self.reasons.most_common(20)),
                "latency_s": _spread(self.latencies_s),
                "input_tokens": self.tokens["input"],
                "output_tokens": self.tokens["output"],
            },
            "rules": dict(self.rules),
            "contradictions": dict(self.contradictions),
            "alerts": dict(self.alerts),
            "timeline": [asdict(stretch) for stretch in self.timeline],
            "stages_s": {name: round(seconds, 3) for name, seconds in self.stages.seconds.items()},
            "wall_s": round(wall_s, 3),
            "frames_per_s": round(self.records / wall_s, 2) if wall_s > 0 else None,
        }


def verdict(schema: FieldSchema, fields: Fields) -> Fields:
    """The choice fields among a frame's `fields`."""
    return {name: value for name, value in fields.items() if schema.rank(name, scope="frame") is not None}


def hazard_field(verdict: Fields) -> str | None:
    """The field of a verdict whose confidence is told: `hazard`, or where there is none the first; None of nothing."""
    return "hazard" if "hazard" in verdict else next(iter(verdict), None)


def write_summary(path: Path, summary: dict[str, Any]) -> None:
    """Write the summary whole, or leave what was there.

    Raises:
        OutputError: If it cannot be written.
    """
    part = path.with_suffix(".json.part")
    try:
        text = json.dumps(summary, ensure_ascii=False, indent=2) + "\n"
        part.write_text(text, encoding="utf-8", errors="backslashreplace")  # \udce9 is valid inside JSON
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def _median_percent(counts: Counter[int]) -> int:
    """The median of counted percents; of an even number, the lower of the two in the middle."""
    middle, passed = (counts.total() + 1) // 2, 0
    for percent in sorted(counts):
        passed += counts[percent]
        if passed >= middle:
            break
    return percent


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    spread = {"median": statistics.median(values), "max": max(values), "total": sum(values)}
    return {name: round(value, 4) for name, value in spread.items()}
