"""Alert rules over records: when they begin, when they end, what says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hazardlens.alerts.watch import AlertWatch
from hazardlens.errors import PipelineError
from hazardlens.pipeline import Pipeline
from hazardlens.record import Confidence, DetectionRecord, FrameRecord, VlmState
from hazardlens.schema import FieldSchema

SCHEMA = FieldSchema.load("hazard")
ZONES = {"gate": {"polygon": [[0.0, 0.0], [0.5, 0.0], [0.5, 1.0], [0.0, 1.0]]}}


def watch(**rule: Any) -> AlertWatch:
    name = {"name": "rule", **rule}
    pipeline = Pipeline.load({"zones": ZONES, "alerts": {"rules": [name]}})
    pipeline.check(SCHEMA, ["person", "truck"])
    return AlertWatch(pipeline, SCHEMA)


def person(track: int | None = 1, *, x: float = 20, sure: float = 0.9, severity: str | None = None, **more: Any) -> Any:
    fields = None if severity is None else {"hazard": "none" if severity == "none" else "fire", "severity": severity}
    chosen = {"class_name": "person", "class_id": 0, **more}
    return DetectionRecord(
        id=0, track_id=track, confidence=sure, box_xyxy=(x - 5, 10.0, x + 5, 40.0), asked=True, fields=fields, **chosen
    )


def record(
    time_s: float, severity: str | None = None, *found: Any, status: str | None = None, sure: float | None = None
) -> FrameRecord:
    """A frame: answered with a severity, or without an answer."""
    fields = None if severity is None else {"hazard": "none" if severity == "none" else "fire", "severity": severity}
    confidence = None
    if sure is not None and severity is not None:
        confidence = {"severity": Confidence(p=sure, choices={severity: sure}, mask_mass=1.0)}
    return FrameRecord(
        source="gate",
        frame=round(time_s * 10),
        time_s=time_s,
        size_wh=(100, 50),
        detections=found,
        fields=fields,
        confidence=confidence,
        vlm=VlmState(status=status or ("ok" if severity else "carried")),
    )


def told(one: AlertWatch, records: Sequence[FrameRecord]) -> list[tuple[str, int | None, float]]:
    """What begins and ends, of whom, and when."""
    return [(alert["state"], alert["track_id"], alert["time_s"]) for each in records for alert in one.see(each).alerts]


def levels(text: str, step_s: float = 1.0) -> list[FrameRecord]:
    """Answers, a second apart: n, l, m, h, c for severities, `.` for a frame that was not asked, `!` for a failure."""
    names = {"n": "none", "l": "low", "m": "medium", "h": "high", "c": "critical"}
    status = {"!": "timeout", ".": "carried"}
    return [record(round(k * step_s, 3), names.get(letter), status=status.get(letter)) for k, letter in enumerate(text)]


HIGH = {"at_least": {"severity": "high"}}


@pytest.mark.parametrize(
    ("rule", "answers", "expected"),
    [
        ({**HIGH}, "nnhhn", [("began", 2)]),
        ({**HIGH}, "nc", [("began", 1)]),
        ({**HIGH, "for_s": 2}, "hhmhhh", [("began", 5)]),
        ({**HIGH, "for_answers": 3}, "hhnhhh", [("began", 5)]),
        ({**HIGH, "for_answers": 3}, "hh.h", [("began", 3)]),
        ({**HIGH, "for_s": 2, "for_answers": 3}, "h.h.h", [("began", 4)]),
        ({**HIGH, "clear_s": 2}, "hnnn", [("began", 0), ("ended", 3)]),
        ({**HIGH, "clear_s": 2}, "hnnhnnn", [("began", 0), ("ended", 6)]),
        ({**HIGH, "clear_s": 0}, "hnhn", [("began", 0), ("ended", 1)]),
        ({**HIGH, "clear_s": 0, "cooldown_s": 3}, "hnhhhn", [("began", 0), ("ended", 1), ("began", 4), ("ended", 5)]),
        ({**HIGH, "clear_s": 0, "cooldown_s": 0}, "hnhn", [("began", 0), ("ended", 1), ("began", 2), ("ended", 3)]),
        ({**HIGH, "clear_s": 1, "clear_below": {"severity": "medium"}}, "hmmmmll", [("began", 0), ("ended", 6)]),
        ({**HIGH, "for_s": 3, "clear_below": {"severity": "medium"}}, "hmmmh", [("began", 4)]),
        ({"when": {"hazard": "fire"}, "clear_s": 1}, "nlnn", [("began", 1), ("ended", 3)]),
        ({**HIGH, "clear_s": 1}, "h!!!!!....", [("began", 0)]),
        ({**HIGH, "clear_s": 1}, "hn!!nn", [("began", 0), ("ended", 4)]),
        ({**HIGH}, "!!!", []),
    ],
)
def test_levels_over_time(rule: dict, answers: str, expected: list) -> None:
    assert [(state, time_s) for state, _, time_s in told(watch(**rule), levels(answers))] == expected


def test_fifteen_seconds_of_flicker_are_one_alert() -> None:
    """Severity and detector confidence cross their thresholds back and forth, five times a second."""
    flicker = []
    for k in range(75):
        up = k % 2 == 0
        flicker.append(record(k / 5, "high" if up else "low", person(sure=0.52 if up else 0.48)))
    rules = [
        {**HIGH},
        {"classes": ["person"], "min_confidence": 0.5},
        {**HIGH, "classes": ["person"], "min_confidence": 0.5},
        {"classes": ["person"], "min_confidence": 0.5, "scope": "object"},
    ]
    for rule in rules:
        assert [state for state, _, _ in told(watch(**rule), flicker)] == ["began"], rule
    calm = [record(15 + k / 5, "none") for k in range(40)]
    one = watch(**rules[2])
    assert [(state, time_s) for state, _, time_s in told(one, [*flicker, *calm])] == [("began", 0.0), ("ended", 18.0)]


def test_confidence_between_the_thresholds_neither_begins_nor_ends() -> None:
    rule = {"classes": ["person"], "min_confidence": 0.6, "clear_confidence": 0.4, "clear_s": 1}
    sure = [0.5, 0.5, 0.7, 0.5, 0.5, 0.5, 0.3, 0.3]
    frames = [record(float(k), None, person(sure=one)) for k, one in enumerate(sure)]
    assert [(state, time_s) for state, _, time_s in told(watch(**rule), frames)] == [("began", 2), ("ended", 7)]


def test_an_unsure_answer_neither_begins_nor_ends_and_an_unknown_sureness_counts() -> None:
    rule = {**HIGH, "min_sure": 0.8, "clear_s": 0}
    frames = [record(0, "high", sure=0.5), record(1, "high", sure=0.9), record(2, "high", sure=0.5), record(3, "none")]
    assert [(state, time_s) for state, _, time_s in told(watch(**rule), frames)] == [("began", 1), ("ended", 3)]
    assert told(watch(**rule), [record(0, "high")]) == [("began", None, 0)]
    unsure_calm = [record(0, "high", sure=0.9), record(1, "none", sure=0.2)]
    assert told(watch(**rule), unsure_calm) == [("began", None, 0)]


def test_answers_that_are_slow_begin_and_end_an_alert_as_well() -> None:
    slow = [record(6.0 * k, "high" if k < 3 else "none") for k in range(8)]
    alerts = told(watch(**HIGH, for_answers=2, clear_s=3), slow)
    assert [(state, time_s) for state, _, time_s in alerts] == [("began", 6), ("ended", 24)]


def test_each_track_has_its_own_alert_and_one_that_is_gone_ends() -> None:
    rule = {"scope": "object", "classes": ["person"], "zone": "gate", "for_s": 1, "clear_s": 1}
    frames = [
        record(k / 2, None, person(1), *([person(2)] if 2 <= k < 6 else []), person(3, x=80), person(None))
        for k in range(12)
    ]
    assert told(watch(**rule), frames) == [("began", 1, 1.0), ("began", 2, 2.0), ("ended", 2, 4.0)]


def test_an_object_that_nobody_answered_for_says_nothing() -> None:
    rule = {"scope": "object", **HIGH, "clear_s": 1}
    frames = [
        record(0, "high", person(1, severity="high")),
        *(record(k, "none", person(1)) for k in range(1, 5)),
        *(record(k, "none", person(1, severity="none")) for k in range(5, 8)),
    ]
    one = watch(**rule)
    assert told(one, frames) == [("began", 1, 0), ("ended", 1, 6)]


def test_number_of_objects_counts() -> None:
    rule = {"classes": ["person"], "min_objects": 3, "clear_s": 0, "cooldown_s": 0}
    frames = [record(float(k), None, *(person(n) for n in range(count))) for k, count in enumerate([2, 3, 4, 2, 3])]
    assert [(state, time_s) for state, _, time_s in told(watch(**rule), frames)] == [
        ("began", 1),
        ("ended", 3),
        ("began", 4),
    ]


def test_what_was_before_a_long_gap_does_not_count() -> None:
    answers = [record(0, "high"), record(1, "high"), record(300, "high"), record(301, "high"), record(302, "high")]
    assert told(watch(**HIGH, for_s=2), answers) == [("began", None, 302)]


def test_a_source_that_starts_again_ends_what_was_under_way() -> None:
    one = watch(**HIGH)
    first = told(one, [record(0, "high"), record(60, "high")])
    assert first == [("began", None, 0)]
    assert told(one, [record(0, "high")]) == [("ended", None, 60), ("began", None, 0)]


def test_an_alert_says_what_why_and_when() -> None:
    one = watch(scope="object", **HIGH, for_s=1, classes=["person"], zone="gate", clear_s=1)
    frames = [record(float(k), "high", person(7, severity="high")) for k in range(2)]
    (begun,) = [alert for each in frames for alert in one.see(each).alerts]
    assert begun == {
        "id": "rule-1",
        "rule": "rule",
        "state": "began",
        "source": "gate",
        "track_id": 7,
        "class": "person",
        "frame": 10,
        "time_s": 1.0,
        "since_s": 0.0,
        "at": None,
        "why": "person in zone gate seen and severity is high",
        "fields": {"hazard": "fire", "severity": "high"},
        "box_xyxy": [15.0, 10.0, 25.0, 40.0],
    }
    (ended,) = [alert for k in (2, 3) for alert in one.see(record(float(k), "none")).alerts]
    assert (ended["id"], ended["state"], ended["since_s"], ended["time_s"]) == ("rule-1", "ended", 1.0, 3.0)
    assert ended["why"] == "no longer seen for 1 s"


def test_what_is_under_way_ends_with_the_source() -> None:
    one = watch(**HIGH)
    one.see(record(2, "high"))
    one.see(record(3))
    (alert,) = one.end("the source ended")
    assert (alert["state"], alert["time_s"], alert["why"]) == ("ended", 3, "the source ended")
    assert one.end("again") == ()


def test_answers_that_come_late_give_the_same_alerts() -> None:
    answers = levels("nhhhhnnnnnhhhh")
    rule = {**HIGH, "for_s": 2, "clear_s": 2, "cooldown_s": 4}
    at_once = told(watch(**rule), answers)
    one = watch(**rule)
    late = []
    for behind, answer in zip([*answers[2:], answers[-1], answers[-1]], answers, strict=True):
        late += one.see(record(behind.time_s, None, status="pending")).alerts
        late += one.see(answer, late=True).alerts
    assert [(alert["state"], alert["track_id"], alert["time_s"]) for alert in late] == at_once
    assert len(at_once) == 3


@given(st.text("nlmhc.!", max_size=80), st.floats(0, 5), st.integers(1, 4), st.floats(0, 5), st.floats(0, 10))
def test_whatever_comes_alerts_alternate_and_keep_their_times(
    answers: str, for_s: float, count: int, clear_s: float, cooldown_s: float
) -> None:
    rule = {**HIGH, "for_s": for_s, "for_answers": count, "clear_s": clear_s, "cooldown_s": cooldown_s}
    frames = levels(answers, step_s=0.5)
    changes = [(state, time_s) for state, _, time_s in told(watch(**rule), frames)]
    assert [state for state, _ in changes] == ["began", "ended"] * (len(changes) // 2) + ["began"] * (len(changes) % 2)
    severity = {one.time_s: (one.fields or {}).get("severity") for one in frames}
    for state, time_s in changes:
        assert (severity[time_s] in ("high", "critical")) == (state == "began")
    for (_, ended_s), (_, began_s) in zip(changes[1::2], changes[2::2], strict=False):
        assert began_s - ended_s >= cooldown_s - 0.01


def test_memory_stays_flat_over_ten_thousand_tracks() -> None:
    one = watch(scope="object", classes=["person"], clear_s=0.5, cooldown_s=5)
    for k in range(10_000):
        one.see(record(k / 10, None, person(k)))
    (watched,) = one._rules
    assert len(watched._subjects) < 100
    assert len(watched._classes) < 100


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"name": "a"}, "at least one condition"),
        ({"name": "a", "zone": "yard"}, "no zone 'yard'"),
        ({"name": "a", "classes": ["persn"]}, "no class 'persn'"),
        ({"name": "a", "at_least": {"severity": "hgh"}}, "never 'hgh'"),
        ({"name": "a", "at_least": {"notes": "x"}}, "no rank"),
        ({"name": "a", "at_least": {"sevrity": "high"}}, "'severity'"),
        ({"name": "a", **HIGH, "clear_below": {"severity": "critical"}}, "must not be above"),
        ({"name": "a", **HIGH, "clear_below": {"hazard": "fire"}}, "not in at_least"),
        ({"name": "a", "classes": ["person"], "clear_confidence": 0.5}, "min_confidence"),
        ({"name": "a", "classes": ["person"], "for_answers": 3}, "for_s"),
        ({"name": "a", "scope": "object", "min_objects": 2}, "scope: frame"),
        ({"name": "a", "scope": "objects"}, "scope"),
    ],
)
def test_rules_that_cannot_work_are_refused(rule: dict, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        Pipeline.load({"alerts": {"rules": [rule]}}).check(SCHEMA, ["person", "truck"])


def test_names_must_differ_and_tracks_are_needed() -> None:
    rule = {"name": "a", "classes": ["person"], "scope": "object"}
    with pytest.raises(PipelineError, match="stands twice"):
        Pipeline.load({"alerts": {"rules": [rule, rule]}})
    with pytest.raises(PipelineError, match=r"needs detector\.track"):
        Pipeline.load({"alerts": {"rules": [rule]}, "detector": {"track": False}})
