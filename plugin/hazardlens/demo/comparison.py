"""What was reported of a drawn clip, held against what is true of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hazardlens.record import Confidence

_CALM = "none"


@dataclass(frozen=True, kw_only=True, slots=True)
class EventRow:
    """A true event, and what was reported of it while it lasted.

    Attributes:
        hazard: The hazard.
        severity: The worst severity that it truly reaches.
        start_s: When it begins, in seconds.
        end_s: When it is over, in seconds.
        after_s: Seconds from its beginning to the first answer that names it, or None where none does.
        first_severity: The severity in that answer, or None.
        worst_severity: The worst severity in the answers that name it, or None.
        sure: How sure the first of them was of the hazard, or None where there is none or it is unknown.
        instead: The other hazards that were named meanwhile, `none` among them, the most frequent first.
    """

    hazard: str
    severity: str
    start_s: float
    end_s: float
    after_s: float | None
    first_severity: str | None
    worst_severity: str | None
    sure: Confidence | None = None
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FalseAlarm:
    """An answer that names a hazard in a frame without any.

    Attributes:
        time_s: The frame's time in seconds.
        hazard: The hazard that it names.
        severity: How bad it says that is.
    """

    time_s: float
    hazard: str
    severity: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """All events of a clip, and the calm between them.

    Attributes:
        rows: One row for each true event, in order.
        calm_asked: Frames without any hazard that were asked about and answered.
        false_alarms: Those of these answers that were not `none`, in order.
    """

    rows: tuple[EventRow, ...]
    calm_asked: int
    false_alarms: tuple[FalseAlarm, ...] = ()

    @property
    def calm_right(self) -> int:
        """How many of the answers about frames without a hazard were `none`."""
        return self.calm_asked - len(self.false_alarms)


def compare(records: Iterable[Mapping[str, Any]], truth: Mapping[str, Any], *, severities: Sequence[str]) -> Comparison:
    """Hold the answers in records against the truth.

    Only frames that were asked about and answered count. A frame's time is the truth's own, so that a container which
    rounds times moves nothing across the edge of an event.

    Args:
        records: Records as `schemas/record.json` spells them, with the field `hazard` and the field `severity`.
        truth: `events` and `frames`, as in `site.truth.json`.
        severities: All severities, from the least to the worst.
    """
    frames = {frame["frame"]: frame for frame in truth["frames"]}
    answers = [
        (frames[record["frame"]], record["fields"], record["confidence"] or {})
        for record in records
        if record["vlm"]["status"] == "ok" and record["frame"] in frames
    ]
    calm = [(frame["time_s"], fields) for frame, fields, _ in answers if frame["hazard"] == _CALM]
    return Comparison(
        rows=tuple(_row(event, answers, severities) for event in truth["events"]),
        calm_asked=len(calm),
        false_alarms=tuple(
            FalseAlarm(time_s=time_s, hazard=fields["hazard"], severity=fields["severity"])
            for time_s, fields in calm
            if fields["hazard"] != _CALM
        ),
    )


def _row(
    event: Mapping[str, Any],
    answers: Sequence[tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]],
    severities: Sequence[str],
) -> EventRow:
    meanwhile = [answer for answer in answers if event["start_s"] <= answer[0]["time_s"] < event["end_s"]]
    named = [
        (frame["time_s"], fields["severity"], confidence.get("hazard"))
        for frame, fields, confidence in meanwhile
        if fields["hazard"] == event["hazard"]
    ]
    others = Counter(fields["hazard"] for _, fields, _ in meanwhile if fields["hazard"] != event["hazard"])
    first_s, first_severity, sure = min(named, key=lambda answer: answer[0], default=(None, None, None))
    return EventRow(
        hazard=event["hazard"],
        severity=event["severity"],
        start_s=event["start_s"],
        end_s=event["end_s"],
        after_s=None if first_s is None else first_s - event["start_s"],
        first_severity=first_severity,
        worst_severity=max((severity for _, severity, _ in named), key=severities.index, default=None),
        sure=sure and Confidence(**sure),
        instead=tuple(hazard for hazard, _ in others.most_common()),
    )
