import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.merge.join import Joiner
from hazardlens.pipeline import Pipeline
from hazardlens.record import Confidence
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, Reply

SEVERITY = {"enum": ["low", "high"]}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "severity": SEVERITY,
        "detections": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "severity": SEVERITY},
                "required": ["id", "severity"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["severity", "detections"],
    "additionalProperties": False,
}
IMAGE = np.zeros((48, 64, 3), np.uint8)
MODEL = {"model": "tiny", "enforced": "mask"}
RAISE = {"name": "up", "kind": "escalate", "when": {"severity": "low"}, "raise": {"severity": 1}}
ALONE = {"name": "alone", "kind": "contradiction", "classes": ["car"], "when": {"severity": "high"}}


def _joiner(rules=(), max_age_s=2.0):
    pipeline = Pipeline.load({"rules": list(rules)})
    schema = FieldSchema.load(copy.deepcopy(SCHEMA))
    return Joiner(schema=schema, rules=pipeline.rules, zones={}, max_age_s=max_age_s)


def _frame(index, time_s):
    return Frame(image=IMAGE, index=index, time_s=time_s, source="clip.mp4")


def _detections(*tracks):
    n = len(tracks)
    return Detections(
        boxes_xyxy_px=np.asarray([[1 / 3, 2 / 3, 10, 20 + i] for i in range(n)], np.float32).reshape(n, 4),
        confidence=np.full(n, 1 / 3, np.float32),
        class_id=np.zeros(n, np.int64),
        track_id=tracks,
        class_names={0: "person"},
    )


def _ok(frame, *objects):
    fields = {"severity": frame, "detections": [{"id": i, "severity": value} for i, value in enumerate(objects)]}
    reply = Reply(text=json.dumps(fields), input_tokens=100, output_tokens=20)
    return Answer(status="ok", reason=None, fields=fields, reply=reply, latency_s=0.51239, attempts=1, shown=None)


def _sure(value, p):
    return Confidence(p=p, choices={value: p}, mask_mass=0.9)


def test_confidences_go_by_frame_and_object_and_are_carried_by_track():
    told = {"/severity": _sure("low", 0.8), "/detections/0/severity": _sure("high", 0.6)}
    told |= {"/detections/1/severity": _sure("low", 0.7)}
    answer = _ok("low", "high", "low")
    answer = replace(answer, reply=replace(answer.reply, confidence=told))
    joiner = _joiner(rules=[RAISE])
    asked = _ask(joiner, 0, 0.0, (5, 6), answer)
    assert {name: own.p for name, own in asked.confidence.items()} == {
        "severity": 0.8,
        "/detections/0/fields/severity": 0.6,
        "/detections/1/fields/severity": 0.7,
    }
    assert asked.confidence_of("severity", detection=0) == 0.6
    assert asked.confidence_of("severity", detection=1) == 0.7
    assert asked.confidence_of("severity") is None, "the rule changed it"
    carried = _pass(joiner, 1, 0.5, 6, None, 5)
    assert {name: own.p for name, own in carried.confidence.items()} == {
        "severity": 0.8,
        "/detections/0/fields/severity": 0.7,
        "/detections/2/fields/severity": 0.6,
    }
    assert _pass(joiner, 2, 9.0, 5).confidence is None


def _failed(status="timeout", reason="no answer in 5 s", reply=None):
    return Answer(status=status, reason=reason, fields=None, reply=reply, latency_s=5.0, attempts=2, shown=None)


def _ask(joiner, index, time_s, tracks, answer, asked=None):
    asked = len(tracks) if asked is None else asked
    return joiner.join(
        _frame(index, time_s), _detections(*tracks), asked=asked, trigger=("every",), answer=answer, **MODEL
    )


def _pass(joiner, index, time_s, *tracks):
    return joiner.join(_frame(index, time_s), _detections(*tracks), **MODEL)


def _severities(record):
    return [item.fields and item.fields["severity"] for item in record.detections]


def test_an_answered_frame_whole():
    answer = _ok("low", "high")
    record = _ask(_joiner(), 7, 0.28, (5, None), answer, asked=1)
    assert record.to_dict() == {
        "source": "clip.mp4",
        "frame": 7,
        "time_s": 0.28,
        "size_wh": [64, 48],
        "detections": [
            {
                "id": 0,
                "track_id": 5,
                "class": "person",
                "class_id": 0,
                "confidence": 0.3333,
                "box_xyxy": [0.33, 0.67, 10.0, 20.0],
                "asked": True,
                "fields": {"severity": "high"},
            },
            {
                "id": 1,
                "track_id": None,
                "class": "person",
                "class_id": 0,
                "confidence": 0.3333,
                "box_xyxy": [0.33, 0.67, 10.0, 21.0],
                "asked": False,
                "fields": None,
            },
        ],
        "fields": {"severity": "low"},
        "confidence": None,
        "vlm": {
            "status": "ok",
            "reason": None,
            "trigger": ["every"],
            "frame": 7,
            "age_s": 0.0,
            "model": "tiny",
            "enforced": "mask",
            "latency_s": 0.5124,
            "attempts": 1,
            "input_tokens": 100,
            "output_tokens": 20,
            "raw": answer.reply.text,
            "fallback": [],
            "reused": False,
            "reasoning": None,
        },
        "rules": [],
        "contradictions": [],
        "alerts": [],
        "at": None,
        "event": None,
        "damaged": False,
    }
    assert json.loads(record.to_json()) == record.to_dict()


def test_fields_are_carried_by_track_until_they_are_stale():
    joiner = _joiner(max_age_s=0.3)
    _ask(joiner, 0, 0.0, (4, 5, None), _ok("high", "low", "high", "low"))
    record = _pass(joiner, 1, 0.1, 5, 4, None, 6)
    assert record.fields == {"severity": "high"}
    assert _severities(record) == ["high", "low", None, None]
    assert [item.asked for item in record.detections] == [False] * 4
    state = record.vlm
    assert (state.status, state.frame, state.age_s, state.reason) == ("carried", 0, 0.1, None)
    assert (state.model, state.enforced, state.attempts) == ("tiny", "mask", 0)
    assert (state.latency_s, state.raw, state.trigger, state.output_tokens) == (None, None, (), None)
    # 0.1 + 0.2 is a little more than 0.3 in floating point.
    assert _pass(joiner, 3, 0.1 + 0.2, 4).vlm.status == "carried"
    stale = _pass(joiner, 4, 0.4, 4)
    assert (stale.vlm.status, stale.fields, _severities(stale)) == ("stale", None, [None])
    assert stale.vlm.reason == "the answer of frame 0 is 0.4 s old, more than 0.3 s"
    assert (stale.vlm.frame, stale.vlm.age_s) == (0, 0.4)


def test_a_newer_answer_takes_over_whole():
    joiner = _joiner()
    _ask(joiner, 0, 0.0, (1, 2), _ok("low", "low", "low"))
    _ask(joiner, 5, 0.5, (2, 3), _ok("high", "high", "high"))
    record = _pass(joiner, 6, 0.6, 1, 2, 3)
    assert (record.vlm.frame, record.vlm.age_s, record.fields) == (5, 0.1, {"severity": "high"})
    assert _severities(record) == [None, "high", "high"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (_failed(), "frame 0 failed: timeout: no answer in 5 s"),
        (_failed("refused", None), "frame 0 failed: refused"),
        (None, "not asked yet"),
    ],
)
def test_before_any_answer_frames_are_skipped(answer, reason):
    joiner = _joiner()
    if answer is not None:
        _ask(joiner, 0, 0.0, (1,), answer)
    record = _pass(joiner, 1, 0.1, 1)
    assert (record.vlm.status, record.vlm.reason, record.fields) == ("skipped", reason, None)
    assert (record.vlm.frame, record.vlm.age_s, record.vlm.model) == (None, None, None)
    assert _severities(record) == [None]


def test_without_a_vlm_all_frames_are_skipped():
    record = _joiner().join(_frame(0, 0.0), _detections(1), model=None, enforced=None)
    assert (record.vlm.status, record.vlm.reason) == ("skipped", "no VLM")
    assert len(record.detections) == 1


@pytest.mark.parametrize("status", ["truncated", "invalid", "refused", "timeout", "error"])
def test_a_failed_frame_has_no_fields_but_keeps_the_words(status):
    joiner = _joiner()
    _ask(joiner, 0, 0.0, (1,), _ok("low", "low"))
    reply = Reply(text='{"severity": "hi', end="truncated", input_tokens=3, output_tokens=4)
    record = _ask(joiner, 1, 1.0, (1,), _failed(status, "because", reply))
    state = record.vlm
    assert (state.status, state.reason, state.raw, state.trigger) == (status, "because", reply.text, ("every",))
    assert (state.frame, state.age_s, state.attempts, state.latency_s, state.model) == (1, 0.0, 2, 5.0, "tiny")
    assert (record.fields, _severities(record), record.detections[0].asked) == (None, [None], True)


def test_words_without_end_are_kept_in_part():
    most = 64 * 2**10
    for text in ("x" * most, "ü" * (most // 2)):
        state = _ask(_joiner(), 0, 0.0, (1,), _failed("invalid", "because", Reply(text=text))).vlm
        assert state.raw == text
    for text in ("x" * (most + 1), "xü" * most):
        kept = _ask(_joiner(), 0, 0.0, (1,), _failed("invalid", "because", Reply(text=text))).vlm.raw
        assert len(kept.encode()) in (most - 1, most)
        assert kept.endswith(f"... [cut, {len(text.encode()):,} bytes in all]")
        assert text.startswith(kept.partition("...")[0])


def test_a_failure_does_not_erase_an_older_answer():
    joiner = _joiner(max_age_s=2.0)
    _ask(joiner, 0, 0.0, (1,), _ok("high", "low"))
    _ask(joiner, 1, 1.0, (1,), _failed())
    carried = _pass(joiner, 2, 1.5, 1)
    assert (carried.vlm.status, carried.vlm.frame, carried.fields) == ("carried", 0, {"severity": "high"})
    assert carried.vlm.reason == "frame 1 failed: timeout: no answer in 5 s"
    assert _pass(joiner, 3, 2.5, 1).vlm.reason.endswith("; frame 1 failed: timeout: no answer in 5 s")
    _ask(joiner, 4, 3.0, (1,), _ok("low", "low"))
    assert _pass(joiner, 5, 3.1, 1).vlm.reason is None


def test_carried_fields_are_those_after_the_rules():
    joiner = _joiner([RAISE, ALONE])
    answer = _ok("low", "low")
    record = _ask(joiner, 0, 0.0, (1,), answer)
    assert record.fields == {"severity": "high"}
    assert [(trace.name, trace.field, trace.after) for trace in record.rules] == [("up", "/fields/severity", "high")]
    assert [item.name for item in record.contradictions] == ["alone"]
    assert json.loads(record.vlm.raw)["severity"] == "low"
    assert answer.fields["severity"] == "low"
    carried = _pass(joiner, 1, 0.1, 1)
    assert (carried.fields, carried.rules, carried.contradictions) == ({"severity": "high"}, (), ())


def test_traces_and_contradictions_point_into_the_record():
    odd = {"a/b~c": SEVERITY, "severity": SEVERITY}
    objects = {"type": "object", "properties": {"id": {"type": "integer"}, **odd}, "required": ["id", *odd]}
    objects["additionalProperties"] = False
    schema = {"type": "object", "properties": {**odd, "detections": {"type": "array", "items": objects}}}
    schema |= {"required": [*odd, "detections"], "additionalProperties": False}
    each = {**RAISE, "name": "each", "scope": "object", "set": {"a/b~c": "high"}}
    alone = {**ALONE, "when": {"a/b~c": "low"}, "set": {"a/b~c": "high"}}
    rules = Pipeline.load({"rules": [RAISE, each, alone]}).rules
    joiner = Joiner(schema=FieldSchema.load(schema), rules=rules, zones={}, max_age_s=1.0)
    answer = _ok("low", "high", "low")
    for fields in (answer.fields, *answer.fields["detections"]):
        fields["a/b~c"] = "low"
    record = _ask(joiner, 0, 0.0, (1, None, 2), answer, asked=2).to_dict()
    assert {trace["field"]: trace["after"] for trace in record["rules"]} == {
        "/fields/severity": "high",
        "/detections/1/fields/severity": "high",
        "/detections/1/fields/a~1b~0c": "high",
        "/fields/a~1b~0c": "high",
    }
    assert [item["field"] for item in record["contradictions"]] == ["/fields/a~1b~0c"]
    for trace in record["rules"]:
        assert _at(record, trace["field"]) == trace["after"]


def _at(document, pointer):
    """The value that a JSON pointer (RFC 6901) leads to."""
    for key in pointer.split("/")[1:]:
        document = document[int(key) if isinstance(document, list) else key.replace("~1", "/").replace("~0", "~")]
    return document


@pytest.mark.parametrize(
    ("max_age_s", "time_s", "status", "age_s"),
    [
        (60.0, 9.1, "carried", 0.0),
        (60.0, 9.0, "carried", 0.0),
        (60.0, 8.9, "skipped", None),
        (60.0, 0.0, "skipped", None),
        (0.5, 9.5, "carried", 0.0),
        (0.5, 9.4, "skipped", None),
    ],
)
def test_a_restart_of_the_source_drops_the_memory(max_age_s, time_s, status, age_s):
    joiner = _joiner(max_age_s=max_age_s)
    _ask(joiner, 0, 10.0, (1,), _ok("low", "low"))
    record = _pass(joiner, 1, time_s, 1)
    assert (record.vlm.status, record.vlm.age_s) == (status, age_s)


def test_a_restart_also_forgets_a_failure():
    joiner = _joiner()
    _ask(joiner, 0, 10.0, (1,), _failed())
    assert _pass(joiner, 0, 0.0).vlm.reason == "not asked yet"


def test_records_share_nothing_that_can_change():
    joiner = _joiner()
    first = _ask(joiner, 0, 0.0, (1,), _ok("low", "low"))
    first.fields["severity"] = "spoilt"
    first.detections[0].fields["severity"] = "spoilt"
    record = _pass(joiner, 1, 0.1, 1)
    assert (record.fields, _severities(record)) == ({"severity": "low"}, ["low"])


def test_an_answer_without_detections():
    schema = {"type": "object", "properties": {"severity": SEVERITY}, "required": ["severity"]}
    schema["additionalProperties"] = False
    joiner = Joiner(schema=FieldSchema.load(schema), rules=(), zones={}, max_age_s=1.0)
    answer = _ok("low")
    del answer.fields["detections"]
    record = _ask(joiner, 0, 0.0, (1,), answer, asked=0)
    assert (record.fields, _severities(record)) == ({"severity": "low"}, [None])


def test_a_frame_of_a_lost_source_has_no_fields_and_the_next_one_carries_on():
    joiner = _joiner(max_age_s=2.0)
    _ask(joiner, 0, 0.0, (7,), _ok("high", "low"))
    lost = joiner.lost(_frame(1, 0.1), _detections(7), "black")
    assert (lost.vlm.status, lost.vlm.reason, lost.fields) == ("source_lost", "black", None)
    assert [(one.track_id, one.fields) for one in lost.detections] == [(7, None)]
    after = _pass(joiner, 2, 0.2, 7)
    assert (after.vlm.status, after.vlm.frame, _severities(after)) == ("carried", 0, ["low"])
