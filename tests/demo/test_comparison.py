"""What was reported, held against what is true: a few frames written by hand."""

import pytest

from hazardlens.demo.comparison import Comparison, EventRow, FalseAlarm, compare
from hazardlens.record import Confidence

SEVERITIES = ("none", "low", "medium", "high", "critical")
TIMES = [round(k / 12, 4) for k in range(37)]


def truth(*events: tuple[str, str, int, int]) -> dict:
    """Three seconds of 12 frames; each event has a hazard, a severity, its first frame, and the first one after it."""
    hazards = ["none"] * len(TIMES)
    for hazard, _, start, end in events:
        hazards[start:end] = [hazard] * (end - start)
    return {
        "events": [
            {"hazard": hazard, "severity": severity, "start_s": TIMES[start], "end_s": TIMES[end]}
            for hazard, severity, start, end in events
        ],
        "frames": [{"frame": k, "time_s": TIMES[k], "hazard": hazard} for k, hazard in enumerate(hazards)],
    }


def sureness(frame: int, hazard: str) -> Confidence:
    return Confidence(p=frame / 100, choices={hazard: frame / 100}, mask_mass=0.75)


def record(frame: int, hazard: str, severity: str = "low", status: str = "ok") -> dict:
    fields = {"notes": "A note.", "hazard": hazard, "severity": severity}
    # A container's times are not rounded as the truth's are.
    sure = {"hazard": sureness(frame, hazard).to_dict()}
    return {
        "frame": frame,
        "time_s": frame / 12 - 1e-6,
        "vlm": {"status": status},
        "fields": fields,
        "confidence": sure if frame % 2 else None,
    }


def failed(frame: int, status: str = "timeout") -> dict:
    return {"frame": frame, "time_s": frame / 12, "vlm": {"status": status}, "fields": None, "confidence": None}


FIRE = ("fire", "critical", 8, 20)


@pytest.mark.parametrize(
    ("records", "after_frames", "first", "severity", "instead"),
    [
        ([record(8, "fire", "high"), record(14, "fire", "critical"), record(19, "fire")], 0, "high", "critical", ()),
        ([record(8, "smoke"), record(11, "fire", "medium")], 3, "medium", "medium", ("smoke",)),
        ([record(19, "fire", "none")], 11, "none", "none", ()),
        ([record(14, "fire", "high"), record(11, "fire", "low")], 3, "low", "high", ()),
        ([record(7, "fire"), record(20, "fire")], None, None, None, ()),
        ([record(8, "smoke"), record(12, "none"), record(13, "none")], None, None, None, ("none", "smoke")),
        ([record(9, "fire", status="carried"), failed(10), failed(11, "skipped")], None, None, None, ()),
        ([record(99, "fire")], None, None, None, ()),
        ([], None, None, None, ()),
    ],
)
def test_the_row_of_an_event(
    records: list[dict], after_frames: int | None, first: str | None, severity: str | None, instead: tuple[str, ...]
) -> None:
    (row,) = compare(records, truth(FIRE), severities=SEVERITIES).rows
    after_s = None if after_frames is None else pytest.approx(TIMES[8 + after_frames] - TIMES[8])
    assert row == EventRow(
        hazard="fire",
        severity="critical",
        start_s=TIMES[8],
        end_s=TIMES[20],
        after_s=after_s,
        first_severity=first,
        worst_severity=severity,
        sure=sureness(8 + after_frames, "fire") if after_frames is not None and after_frames % 2 else None,
        instead=instead,
    )


def test_events_that_touch_and_events_of_the_same_hazard_are_kept_apart() -> None:
    told = truth(("smoke", "medium", 0, 8), FIRE, ("smoke", "high", 24, 30))
    records = [record(4, "smoke"), record(8, "smoke"), record(9, "fire"), record(25, "smoke", "high")]
    rows = compare(records, told, severities=SEVERITIES).rows
    assert [(row.hazard, row.after_s, row.worst_severity) for row in rows] == [
        ("smoke", pytest.approx(4 / 12, abs=1e-3), "low"),
        ("fire", pytest.approx(1 / 12, abs=1e-3), "low"),
        ("smoke", pytest.approx(1 / 12, abs=1e-3), "high"),
    ]


def test_only_answers_about_calm_frames_count_as_calm() -> None:
    records = [
        record(0, "none", "none"),
        record(7, "fire"),
        record(8, "none", "none"),
        record(20, "none", "none"),
        record(21, "none", "none", status="carried"),
        failed(22),
    ]
    comparison = compare(records, truth(FIRE), severities=SEVERITIES)
    assert (comparison.calm_asked, comparison.calm_right) == (3, 2)
    assert comparison.false_alarms == (FalseAlarm(time_s=TIMES[7], hazard="fire", severity="low"),)


def test_nothing_true_and_nothing_asked() -> None:
    assert compare([], truth(), severities=SEVERITIES) == Comparison(rows=(), calm_asked=0)
