"""What one record says to one alert rule: it holds, it does not, or neither can be said."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from hazardlens.merge.statements import matches, place_in, spell
from hazardlens.merge.zones import in_zone
from hazardlens.pipeline import AlertRule, Zone
from hazardlens.record import DetectionRecord, Fields, FrameRecord
from hazardlens.schema import FieldSchema


class Verdict(enum.IntEnum):
    """What is said of a rule's conditions together: the least of what is said of each."""

    CLEAR = 0
    """They do not hold."""
    BETWEEN = 1
    """They do not hold well enough to begin an alert, nor badly enough to end one."""
    HOLDS = 2
    """They hold."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What a record says of a source or a track.

    Attributes:
        verdict: The verdict.
        why: Why it holds, in plain words; empty where it does not.
        detection: The detection that it is about, or None.
    """

    verdict: Verdict
    why: str = ""
    detection: DetectionRecord | None = None


class Judge:
    """Judges records by one rule.

    Args:
        rule: The rule.
        schema: The schema of the fields, for ranks.
        zones: The pipeline's zones by name.
    """

    def __init__(self, rule: AlertRule, schema: FieldSchema, zones: Mapping[str, Zone]) -> None:
        self._rule = rule
        self._zone = zones[rule.zone] if rule.zone is not None else None
        self._orders = {field: schema.rank(field, scope=rule.scope) or [] for field in rule.at_least}

    def of_frame(self, record: FrameRecord) -> Judgement:
        """What a record says of its source."""
        said = [self._fields(record, record.fields or {}, None)] if self._rule.reads_answers else []
        if self._rule.counts_objects:
            said.append(self._count(record))
        return Judgement(verdict=min(verdict for verdict, _ in said), why=" and ".join(why for _, why in said if why))

    def of_objects(self, record: FrameRecord) -> dict[int, Judgement | None]:
        """What a record says of each track; None where nothing can be said of it, since nobody answered for it."""
        told: dict[int, Judgement | None] = {}
        for detection in record.detections:
            if detection.track_id is None:
                continue
            said = [self._seen(record, detection)]
            if self._rule.reads_answers and detection.fields is None:
                told[detection.track_id] = None
                continue
            if self._rule.reads_answers:
                said.append(self._fields(record, detection.fields or {}, detection.id))
            why = " and ".join(why for _, why in said if why)
            verdict = min(verdict for verdict, _ in said)
            told[detection.track_id] = Judgement(verdict=verdict, why=why, detection=detection)
        return told

    def _fields(self, record: FrameRecord, fields: Fields, detection: int | None) -> tuple[Verdict, str]:
        verdict, why = self._said(fields)
        return (Verdict.BETWEEN, "") if self._unsure(record, detection) else (verdict, why)

    def _said(self, fields: Fields) -> tuple[Verdict, str]:
        rule = self._rule
        if not matches(rule.when, fields):
            return Verdict.CLEAR, ""
        verdict = Verdict.HOLDS
        for field, least in rule.at_least.items():
            order = self._orders[field]
            place, wanted = place_in(order, fields.get(field)), place_in(order, least)
            cleared = place_in(order, rule.clear_below.get(field, least))
            if place is None or wanted is None or cleared is None or place < cleared:
                return Verdict.CLEAR, ""
            verdict = min(verdict, Verdict.HOLDS if place >= wanted else Verdict.BETWEEN)
        named = dict.fromkeys([*rule.when, *rule.at_least])
        return verdict, " and ".join(f"{field} is {spell(fields.get(field))}" for field in named)

    def _unsure(self, record: FrameRecord, detection: int | None) -> bool:
        """Whether the model was less sure of one of the values than the rule asks for."""
        least = self._rule.min_sure
        if least is None:
            return False
        named = dict.fromkeys([*self._rule.when, *self._rule.at_least])
        sure = (record.confidence_of(field, detection=detection) for field in named)
        return any(one is not None and one < least for one in sure)

    def _count(self, record: FrameRecord) -> tuple[Verdict, str]:
        verdicts = [self._seen(record, one)[0] for one in record.detections]
        least = self._rule.min_objects or 1
        sure = verdicts.count(Verdict.HOLDS)
        if sure >= least:
            return Verdict.HOLDS, f"{sure} of {self._what()} seen"
        return (Verdict.BETWEEN if sure + verdicts.count(Verdict.BETWEEN) >= least else Verdict.CLEAR), ""

    def _seen(self, record: FrameRecord, detection: DetectionRecord) -> tuple[Verdict, str]:
        rule = self._rule
        if rule.classes is not None and detection.class_name not in rule.classes:
            return Verdict.CLEAR, ""
        if self._zone is not None and not _inside(self._zone, record, detection):
            return Verdict.CLEAR, ""
        if rule.min_confidence is not None and detection.confidence < rule.min_confidence:
            kept = rule.clear_confidence is not None and detection.confidence >= rule.clear_confidence
            return (Verdict.BETWEEN if kept else Verdict.CLEAR), ""
        return Verdict.HOLDS, f"{detection.class_name}{self._where()} seen"

    def _what(self) -> str:
        return " or ".join(self._rule.classes or ("any class",)) + self._where()

    def _where(self) -> str:
        return f" in zone {self._rule.zone}" if self._rule.zone is not None else ""


def _inside(zone: Zone, record: FrameRecord, detection: DetectionRecord) -> bool:
    """Whether the middle of the box's bottom edge is in the zone."""
    if zone.classes is not None and detection.class_name not in zone.classes:
        return False
    x1, _, x2, y2 = detection.box_xyxy
    width, height = record.size_wh
    x, y = ((x1 + x2) / 2 / max(width, 1), y2 / max(height, 1))
    return in_zone(zone.polygon, (min(max(x, 0.0), 1.0), min(max(y, 0.0), 1.0)))
