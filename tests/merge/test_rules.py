import copy

import numpy as np
import pytest

from hazardlens.detect.base import Detections
from hazardlens.merge.rules import RuleContext, apply_rules
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema

HAZARD = {"enum": ["none", "missing_ppe", "fall", "fire"]}
SEVERITY = {"enum": ["none", "low", "medium", "high"]}
NONE_MEANS_NONE = [
    {"properties": {"hazard": {"const": "none"}, "severity": {"const": "none"}}},
    {"properties": {"hazard": {"enum": HAZARD["enum"][1:]}, "severity": {"enum": SEVERITY["enum"][1:]}}},
]
VERDICT = {"hazard": HAZARD, "severity": SEVERITY}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "notes": {"type": "string", "maxLength": 200},
        **VERDICT,
        "tags": {"type": "array", "items": {"enum": ["smoke", "night"]}, "maxItems": 2},
        "detections": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, **VERDICT},
                "required": ["id", "hazard", "severity"],
                "additionalProperties": False,
                "anyOf": NONE_MEANS_NONE,
            },
        },
    },
    "required": ["notes", "hazard", "severity", "tags", "detections"],
    "additionalProperties": False,
    "anyOf": NONE_MEANS_NONE,
}
NAMES = {0: "person", 7: "truck", 9: "fire hydrant"}
ZONES = {"gate": {"polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}}
# Two people, a truck that was asked about, a person that was not: (class, confidence, x, height).
SEEN = [(0, 0.9, 20, 60), (0, 0.4, 80, 30), (7, 0.8, 40, 50), (0, 0.9, 90, 50)]


def _answer(hazard="none", severity="none", objects=(), notes="", tags=()):
    objects = [*objects, *[("none", "none")] * (3 - len(objects))]
    items = [{"id": i, "hazard": h, "severity": s} for i, (h, s) in enumerate(objects)]
    return {"notes": notes, "hazard": hazard, "severity": severity, "tags": list(tags), "detections": items}


def _context(seen=SEEN, asked=3):
    n = len(seen)
    detections = Detections(
        boxes_xyxy_px=np.asarray([[x - 5, 90 - h, x + 5, 90] for _, _, x, h in seen], np.float32).reshape(n, 4),
        confidence=np.asarray([item[1] for item in seen], np.float32),
        class_id=np.asarray([item[0] for item in seen], np.int64),
        track_id=(None,) * n,
        class_names=NAMES,
    )
    schema = FieldSchema.load(copy.deepcopy(SCHEMA))
    zones = Pipeline.load({"zones": ZONES}).zones
    return RuleContext(
        detections=detections,
        size_wh=(100, 100),
        zones=zones,
        schema=schema,
        grounded=schema.ground(asked),
    )


def _run(rules, answer, context=None):
    named = [{"name": f"r{i}", **rule} for i, rule in enumerate(rules)]
    pipeline = Pipeline.load({"zones": ZONES, "rules": named})
    context = context or _context()
    pipeline.check(context.schema, NAMES.values())
    assert context.grounded.validate(answer) == [], "the test's own answer is valid"
    before = copy.deepcopy(answer)
    outcome = apply_rules(pipeline.rules, answer, context)
    assert answer == before, "the answer that came in is not changed"
    assert outcome.fields["detections"] is not answer["detections"], "nor shared"
    assert context.grounded.validate(outcome.fields) == []
    return outcome


def _changes(outcome):
    return {trace.field: (trace.before, trace.after) for trace in outcome.traces}


CLEAR = {"hazard": "none", "severity": "none"}
FALL = ("fall", "medium")
ESC = {"kind": "escalate"}
FIRE = {"hazard": "fire", "severity": "medium"}


@pytest.mark.parametrize(
    ("rule", "answer", "changes"),
    [
        (
            {"kind": "threshold", "min_confidence": 0.5, "set": CLEAR},
            _answer(objects=[FALL, FALL, FALL]),
            {"/detections/1/fields/hazard": ("fall", "none"), "/detections/1/fields/severity": ("medium", "none")},
        ),
        (
            {"kind": "threshold", "min_height_px": 55, "classes": ["truck"], "set": CLEAR},
            _answer(objects=[FALL, FALL, FALL]),
            {"/detections/2/fields/hazard": ("fall", "none"), "/detections/2/fields/severity": ("medium", "none")},
        ),
        (
            {"kind": "threshold", "min_height_px": 30, "min_confidence": 0.4, "set": CLEAR},
            _answer(objects=[FALL, FALL, FALL]),
            {},
        ),
        (
            {"kind": "threshold", "min_confidence": 0.5, "set": {"severity": "high"}},
            _answer(objects=[FALL, ("fire", "high"), FALL]),
            {},
        ),
        (
            {**ESC, "when": {"hazard": "fall"}, "raise": {"severity": 1}},
            _answer(*FALL),
            {"/fields/severity": ("medium", "high")},
        ),
        (
            {**ESC, "when": {"hazard": "fall"}, "raise": {"severity": 9}},
            _answer(*FALL),
            {"/fields/severity": ("medium", "high")},
        ),
        (
            {**ESC, "when": {"hazard": "fall"}, "lower": {"severity": 1}},
            _answer(*FALL),
            {"/fields/severity": ("medium", "low")},
        ),
        ({**ESC, "when": {"hazard": ["fire", "missing_ppe"]}, "raise": {"severity": 1}}, _answer(*FALL), {}),
        (
            {**ESC, "when": {"hazard": "fall", "severity": ["low", "medium"]}, "set": {"hazard": "fire"}},
            _answer(*FALL),
            {"/fields/hazard": ("fall", "fire")},
        ),
        ({**ESC, "when": {"hazard": "fall", "severity": "low"}, "set": {"hazard": "fire"}}, _answer(*FALL), {}),
        ({**ESC, "when": {"tags": "smoke"}, "set": FIRE}, _answer(tags=["night"]), {}),
        (
            {**ESC, "when": {"tags": "smoke"}, "set": FIRE},
            _answer(tags=["night", "smoke"]),
            {"/fields/hazard": ("none", "fire"), "/fields/severity": ("none", "medium")},
        ),
        (
            {**ESC, "classes": ["person"], "min_objects": 3, "raise": {"severity": 1}},
            _answer(*FALL),
            {"/fields/severity": ("medium", "high")},
        ),
        ({**ESC, "classes": ["person"], "min_objects": 4, "raise": {"severity": 1}}, _answer(*FALL), {}),
        (
            {**ESC, "classes": ["truck"], "raise": {"severity": 1}},
            _answer(*FALL),
            {"/fields/severity": ("medium", "high")},
        ),
        ({**ESC, "classes": ["fire hydrant"], "raise": {"severity": 1}}, _answer(*FALL), {}),
        (
            {**ESC, "zone": "gate", "min_objects": 2, "raise": {"severity": 1}},
            _answer(*FALL),
            {"/fields/severity": ("medium", "high")},
        ),
        ({**ESC, "zone": "gate", "min_objects": 3, "raise": {"severity": 1}}, _answer(*FALL), {}),
        (
            {**ESC, "scope": "object", "when": {"hazard": "fall"}, "classes": ["person"], "raise": {"severity": 1}},
            _answer(objects=[("fire", "low"), FALL, FALL]),
            {"/detections/1/fields/severity": ("medium", "high")},
        ),
        (
            {**ESC, "scope": "object", "zone": "gate", "classes": ["person"], "set": FIRE},
            _answer(),
            {"/detections/0/fields/hazard": ("none", "fire"), "/detections/0/fields/severity": ("none", "medium")},
        ),
        (
            {**ESC, "scope": "object", "zone": "gate", "classes": ["person"], "min_objects": 2, "set": FIRE},
            _answer(),
            {},
        ),
        (
            {"kind": "worst_object", "fields": ["hazard", "severity"]},
            _answer("missing_ppe", "low", objects=[FALL, ("fire", "medium")]),
            {"/fields/hazard": ("missing_ppe", "fall"), "/fields/severity": ("low", "medium")},
        ),
        ({"kind": "worst_object", "fields": ["hazard", "severity"]}, _answer("fire", "medium", objects=[FALL]), {}),
        (
            {"kind": "worst_object", "by": "hazard", "fields": ["hazard", "severity"]},
            _answer("fall", "high", objects=[FALL, ("fire", "low")]),
            {"/fields/hazard": ("fall", "fire"), "/fields/severity": ("high", "low")},
        ),
    ],
)
def test_one_rule(rule, answer, changes):
    outcome = _run([rule], answer)
    assert _changes(outcome) == changes
    assert outcome.contradictions == ()
    changed = outcome.fields
    for pointer, (_, after) in changes.items():
        *place, _, key = pointer.strip("/").split("/")
        target = changed["detections"][int(place[1])] if place else changed
        assert target[key] == after
    if not changes:
        assert changed == answer


@pytest.mark.parametrize(
    ("rule", "answer", "why"),
    [
        (
            {"kind": "threshold", "min_confidence": 0.5, "min_height_px": 40, "set": CLEAR},
            _answer(objects=[FALL, FALL]),
            "person: detector confidence 0.4 is below 0.5 and box is 30.0 px high, less than 40",
        ),
        (
            {
                **ESC,
                "when": {"hazard": "fall"},
                "zone": "gate",
                "classes": ["person", "truck"],
                "raise": {"severity": 1},
            },
            _answer(*FALL),
            "hazard is fall and 2 of person or truck in zone gate seen",
        ),
        (
            {"kind": "worst_object", "fields": ["hazard", "severity"]},
            _answer(objects=[("none", "none"), FALL]),
            "detection 1 (person) has severity medium",
        ),
    ],
)
def test_the_reason_is_in_plain_words(rule, answer, why):
    assert {trace.why for trace in _run([rule], answer).traces} == {why}


@pytest.mark.parametrize(
    ("rule", "answer", "fields"),
    [
        ({**ESC, "when": {"hazard": "none"}, "raise": {"severity": 1}}, _answer(), {"/fields/severity": "none"}),
        (
            {**ESC, "when": {"hazard": "fall"}, "set": {"hazard": "none", "severity": "low"}},
            _answer(*FALL),
            {"/fields/hazard": "fall", "/fields/severity": "medium"},
        ),
        (
            {"kind": "threshold", "min_confidence": 0.5, "set": {"hazard": "none"}},
            _answer(objects=[FALL, FALL]),
            {"/detections/1/fields/hazard": "fall"},
        ),
    ],
)
def test_a_change_that_breaks_the_schema_is_refused_whole(rule, answer, fields):
    outcome = _run([rule], answer)
    assert outcome.fields == answer
    assert _changes(outcome) == {pointer: (value, value) for pointer, value in fields.items()}
    assert all("not changed, as the answer would break the schema: " in trace.why for trace in outcome.traces)


def test_one_refused_object_does_not_stop_the_others():
    rule = {**ESC, "scope": "object", "classes": ["person"], "raise": {"severity": 1}}
    outcome = _run([rule], _answer(objects=[("none", "none"), FALL]))
    assert _changes(outcome) == {
        "/detections/0/fields/severity": ("none", "none"),
        "/detections/1/fields/severity": ("medium", "high"),
    }


def test_rules_run_in_order_on_what_the_ones_before_left():
    worst = {"kind": "worst_object", "fields": ["hazard", "severity"]}
    clear = {"kind": "threshold", "min_confidence": 0.5, "set": CLEAR}
    answer = _answer(objects=[("none", "none"), FALL])
    assert [trace.name for trace in _run([worst, clear], answer).traces] == ["r0", "r0", "r1", "r1"]
    first_cleared = _run([clear, worst], answer)
    assert [trace.name for trace in first_cleared.traces] == ["r0", "r0"]
    assert first_cleared.fields["hazard"] == "none"


PERSON_WORDS = {"kind": "contradiction", "classes": ["person"], "words": ["worker", "person", "hard hat"]}


@pytest.mark.parametrize(
    ("rule", "answer", "seen", "found"),
    [
        (PERSON_WORDS, _answer(notes="A Worker lies there."), [], ("/fields/notes", "'Worker'")),
        (PERSON_WORDS, _answer(notes="A worker lies there."), SEEN, None),
        (PERSON_WORDS, _answer(notes="A worker lies there."), SEEN[2:3], ("/fields/notes", "no person")),
        (PERSON_WORDS, _answer(notes="Coworkers, workers."), [], None),
        (PERSON_WORDS, _answer(notes="(hard hat) left behind"), [], ("/fields/notes", "'hard hat'")),
        (PERSON_WORDS, _answer(notes="No worker, not a person, without any hard hat."), [], None),
        (PERSON_WORDS, _answer(notes="No worker; but one person."), [], ("/fields/notes", "'person'")),
        (PERSON_WORDS, _answer(notes=""), [], None),
        (
            {"kind": "contradiction", "classes": ["person"], "when": {"hazard": ["fall", "missing_ppe"]}},
            _answer(*FALL),
            [],
            ("/fields/hazard", "hazard is fall, but the detector sees no person"),
        ),
        (
            {"kind": "contradiction", "classes": ["person"], "when": {"hazard": ["fall"]}},
            _answer("fire", "low"),
            [],
            None,
        ),
        (
            {"kind": "contradiction", "classes": ["person", "truck"], "when": {"hazard": ["fall"]}},
            _answer(*FALL),
            SEEN[2:3],
            None,
        ),
    ],
)
def test_contradictions(rule, answer, seen, found):
    asked = min(len(seen), 3)
    answer = {**answer, "detections": answer["detections"][:asked]}
    outcome = _run([rule], answer, _context(seen, asked))
    assert outcome.fields == answer
    assert outcome.traces == ()
    if found is None:
        assert outcome.contradictions == ()
        return
    (contradiction,) = outcome.contradictions
    assert (contradiction.name, contradiction.field) == ("r0", found[0])
    assert found[1] in contradiction.why


def test_a_contradiction_may_set_fields():
    rule = {"kind": "contradiction", "classes": ["person"], "when": {"hazard": ["fall"]}, "set": CLEAR}
    outcome = _run([rule], {**_answer(*FALL), "detections": []}, _context([], 0))
    assert _changes(outcome) == {"/fields/hazard": ("fall", "none"), "/fields/severity": ("medium", "none")}
    assert outcome.contradictions[0].field == "/fields/hazard"


def test_true_is_not_one():
    flags = {"enum": [0, 1, True]}
    schema = {
        "type": "object",
        "properties": {"flag": flags, "level": {"enum": ["a", "b"]}},
        "required": ["flag", "level"],
        "additionalProperties": False,
    }
    loaded = FieldSchema.load(schema)
    pipeline = Pipeline.load({"rules": [{**ESC, "name": "r", "when": {"flag": True}, "raise": {"level": 1}}]})
    context = RuleContext(
        detections=Detections.empty(NAMES),
        size_wh=(10, 10),
        zones={},
        schema=loaded,
        grounded=loaded.ground(0),
    )
    assert apply_rules(pipeline.rules, {"flag": 1, "level": "a"}, context).fields["level"] == "a"
    assert apply_rules(pipeline.rules, {"flag": True, "level": "a"}, context).fields["level"] == "b"
