"""Alert rules watched over the records of one source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hazardlens.alerts.judging import Judge, Judgement, Verdict
from hazardlens.alerts.subject import Subject
from hazardlens.merge.clock import RESTART_S
from hazardlens.pipeline import AlertRule, Pipeline, Zone
from hazardlens.record import DetectionRecord, FrameRecord
from hazardlens.schema import FieldSchema

_GONE = Judgement(verdict=Verdict.CLEAR)


class AlertWatch:
    """Raises and ends the alerts of one source; keep one per source and give it every record.

    A rule on fields is judged by the records of answered frames alone, at the times of those frames, whenever the
    answers come; so what comes of it is the same for a file and a camera. A rule on detections alone is judged by every
    frame. A frame without an answer says nothing: it neither raises an alert nor ends one.

    Args:
        pipeline: Its alerts and zones.
        schema: The schema of the fields.
    """

    def __init__(self, pipeline: Pipeline, schema: FieldSchema) -> None:
        seen_s = pipeline.max_age_s
        answered_s = max(seen_s, pipeline.live.question_timeout_s + (pipeline.ask.every_s or 0.0))
        self._rules = [
            _Watched(rule, schema, pipeline.zones, answered_s if rule.reads_answers else seen_s)
            for rule in pipeline.alerts.rules
        ]
        self._newest: FrameRecord | None = None

    def see(self, record: FrameRecord, *, late: bool = False) -> FrameRecord:
        """Take in a record; the same with the alerts that begin and end with it.

        Args:
            record: The record.
            late: Whether it tells only now of an answer, and its frame had a record before.
        """
        if not self._rules or record.vlm.status == "source_lost":
            return record
        if not late:
            self._newest = record
        alerts: list[dict[str, Any]] = []
        for watched in self._rules:
            answered = record.vlm.status == "ok"
            if answered if watched.rule.reads_answers else not late:
                alerts += watched.see(record)
        return replace(record, alerts=(*record.alerts, *alerts)) if alerts else record

    def end(self, why: str) -> tuple[dict[str, Any], ...]:
        """End what is under way, at the newest frame, for nothing more will come.

        Args:
            why: Why nothing more comes.
        """
        if self._newest is None:
            return ()
        return tuple(alert for watched in self._rules for alert in watched.end(self._newest, why))


class _Watched:
    """One rule on one source."""

    def __init__(self, rule: AlertRule, schema: FieldSchema, zones: Mapping[str, Zone], gap_s: float) -> None:
        self.rule = rule
        self._judge = Judge(rule, schema, zones)
        self._gap_s = gap_s
        self._subjects: dict[int | None, Subject] = {}
        self._classes: dict[int | None, str | None] = {}
        self._alerts = 0
        self._last: FrameRecord | None = None

    def see(self, record: FrameRecord) -> Iterator[dict[str, Any]]:
        if self._last is not None and record.time_s < self._last.time_s - RESTART_S:
            yield from self.end(self._last, "the source started again")
            self._subjects.clear()
        self._last = record
        for track, judgement in self._judgements(record).items():
            if judgement is None:
                continue
            subject = self._subjects.get(track)
            if subject is None:
                if judgement.verdict is not Verdict.HOLDS:
                    continue
                subject = self._subjects[track] = Subject(rule=self.rule, gap_s=self._gap_s)
            yield from self._take(subject, track, judgement, record)
        for track in [key for key, one in self._subjects.items() if one.is_idle(record.time_s)]:
            del self._subjects[track]
            self._classes.pop(track, None)

    def end(self, record: FrameRecord, why: str) -> Iterator[dict[str, Any]]:
        for track, subject in self._subjects.items():
            if subject.alert is not None:
                yield self._told("ended", subject, track, record, why, None)
                subject.alert = None

    def _judgements(self, record: FrameRecord) -> dict[int | None, Judgement | None]:
        if self.rule.scope == "frame":
            return {None: self._judge.of_frame(record)}
        return dict.fromkeys(self._subjects, _GONE) | {**self._judge.of_objects(record)}

    def _take(
        self, subject: Subject, track: int | None, judgement: Judgement, record: FrameRecord
    ) -> Iterator[dict[str, Any]]:
        change = subject.take(judgement.verdict, record.time_s)
        if change == "began":
            self._alerts += 1
            subject.alert, subject.began_s = self._alerts, record.time_s
            self._classes[track] = judgement.detection.class_name if judgement.detection else None
            yield self._told("began", subject, track, record, judgement.why, judgement.detection)
        elif change == "ended":
            why = "no longer so" if judgement is not _GONE else "no longer seen"
            told = f"{why} for {self.rule.clear_s:g} s"
            yield self._told("ended", subject, track, record, told, judgement.detection)
            subject.alert, subject.ended_s = None, record.time_s

    def _told(
        self,
        state: str,
        subject: Subject,
        track: int | None,
        record: FrameRecord,
        why: str,
        detection: DetectionRecord | None,
    ) -> dict[str, Any]:
        fields = detection.fields if detection is not None else record.fields if track is None else None
        since_s = subject.since_s if state == "began" else subject.began_s
        return {
            "id": f"{self.rule.name}-{subject.alert}",
            "rule": self.rule.name,
            "state": state,
            "source": record.source,
            "track_id": track,
            "class": self._classes.get(track),
            "frame": record.frame,
            "time_s": record.time_s,
            "since_s": record.time_s if since_s is None else since_s,
            "at": record.at,
            "why": why,
            "fields": fields,
            "box_xyxy": list(detection.box_xyxy) if detection is not None else None,
        }
