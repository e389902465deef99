"""The account of a run."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hazardlens.errors import OutputError
from hazardlens.frames.base import Frame
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.summary import Summary, write_summary
from hazardlens.record import Confidence, Contradiction, FrameRecord, RuleTrace, VlmState
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, Reply

FIRE = {"notes": "Flames by the wall.", "hazard": "fire", "severity": "high"}
CALM = {"notes": "Nothing of note.", "hazard": "none", "severity": "none"}


def outcome(index: int, fields: dict | None, status: str, answer: Answer | None = None, **more) -> Outcome:
    asked = {"trigger": ("every",), "model": "tiny", "enforced": "mask", "reused": index == 4} if answer else {}
    record = FrameRecord(
        source="x",
        frame=index,
        time_s=index / 10,
        size_wh=(4, 4),
        detections=(),
        fields=fields,
        vlm=VlmState(status=status, **asked),
        **more,
    )
    frame = Frame(image=np.zeros((4, 4, 3), np.uint8), index=index, time_s=index / 10, source="x")
    return Outcome(record=record, frame=frame, answer=answer)


def answered(status: str, latency_s: float, reason: str | None = None) -> Answer:
    reply = Reply(text="", input_tokens=100, output_tokens=10)
    return Answer(status=status, reason=reason, fields=None, reply=reply, latency_s=latency_s, attempts=1, shown=None)


@pytest.fixture
def summary() -> Summary:
    made = Summary(source="x", schema=FieldSchema.load("hazard"), setup={"vlm": "m"})
    made.add(outcome(0, None, "skipped"))
    made.add(outcome(1, CALM, "ok", answered("ok", 0.2)))
    made.add(outcome(2, CALM, "carried"))
    made.add(outcome(3, {**CALM, "notes": "Other words."}, "carried"))
    trace = RuleTrace(name="up", field="/fields/severity", before="low", after="high", why="w")
    refused = RuleTrace(name="up", field="/fields/severity", before="low", after="low", why="refused")
    against = Contradiction(name="nobody", field="/fields/notes", why="w")
    made.add(outcome(4, FIRE, "ok", answered("ok", 0.4), rules=(trace, refused), contradictions=(against,)))
    made.add(outcome(5, None, "timeout", answered("timeout", 1.0, "late")))
    made.add(outcome(6, FIRE, "carried"))
    made.add(outcome(7, None, "stale"))
    return made


def test_verdicts_over_time_and_what_is_unknown(summary: Summary) -> None:
    told = [(s.fields, s.status, s.from_s, s.to_s, s.frames) for s in summary.timeline]
    calm, fire = ({"hazard": h, "severity": s} for h, s in (("none", "none"), ("fire", "high")))
    assert told == [
        (None, "skipped", 0.0, 0.0, 1),
        (calm, "ok", 0.1, 0.3, 3),
        (fire, "ok", 0.4, 0.4, 1),
        (None, "timeout", 0.5, 0.5, 1),
        (fire, "carried", 0.6, 0.6, 1),
        (None, "stale", 0.7, 0.7, 1),
    ]


def test_questions_and_their_fates_are_counted(summary: Summary) -> None:
    told = summary.to_dict(complete=True)
    assert told["questions"] == {
        "asked": 3,
        "by_status": {"ok": 2, "timeout": 1},
        "by_trigger": {"every": 3},
        "by_enforced": {"mask": 3},
        "by_model": {"tiny": 3},
        "reused": 1,
        "reasons": {"timeout: late": 1},
        "latency_s": {"median": 0.4, "max": 1.0, "total": 1.6},
        "input_tokens": 300,
        "output_tokens": 30,
    }
    assert told["records_by_status"] == {"skipped": 1, "ok": 2, "carried": 3, "timeout": 1, "stale": 1}
    assert (told["rules"], told["contradictions"]) == ({"up": 1}, {"nobody": 1})
    assert told["frames"]["records"] == 8
    assert told["vlm"] == "m"


def test_it_says_whether_demo_models_took_part(summary: Summary) -> None:
    assert summary.to_dict(complete=True)["demo"] is False
    summary.demo = True
    assert summary.to_dict(complete=False)["demo"] is True


def test_reasons_are_bounded() -> None:
    summary = Summary(source="x", schema=FieldSchema.load("hazard"), setup={})
    for index in range(250):
        summary.add(outcome(index, None, "invalid", answered("invalid", 1.0, f"{index} {'x' * 1000}")))
    summary.add(outcome(250, None, "invalid", answered("invalid", 1.0, f"7 {'x' * 500}")))
    summary.add(outcome(251, None, "timeout", answered("timeout", 1.0, "late")))
    assert len(summary.reasons) == 102
    assert max(map(len, summary.reasons)) == len("invalid: ") + 200
    assert summary.reasons["invalid: 7 " + "x" * 198] == 2
    assert (summary.reasons["invalid: other reasons"], summary.reasons["timeout: other reasons"]) == (150, 1)
    assert summary.questions == summary.reasons.total() == 252


def test_the_verdict_holds_choices_of_the_frame() -> None:
    item = {"type": "object", "properties": {"id": {"type": "integer"}, "count": {"enum": [1, 2]}}}
    item |= {"required": ["id", "count"], "additionalProperties": False}
    own = {"count": {"type": "integer"}, "level": {"enum": ["low", "high"]}}
    properties = {**own, "detections": {"type": "array", "items": item}}
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    summary = Summary(source="x", schema=FieldSchema.load(schema), setup={})
    assert summary.verdict({"count": 9, "level": "low"}) == {"level": "low"}


def test_what_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, {"source": "caf\udce9.mp4", "reason": "é \ud83d"})
    assert json.loads(path.read_bytes()) == {"source": "caf\udce9.mp4", "reason": "é \ud83d"}


def test_it_is_written_whole_or_not_at_all(summary: Summary, tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    write_summary(path, summary.to_dict(complete=True))
    assert json.loads(path.read_text())["complete"]
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(OutputError, match="absent"):
        write_summary(tmp_path / "absent" / "summary.json", {})


def weighed(index: int, p: float | None, *, of: int | None = None, mask_mass: float = 1.0, **fields: str) -> Outcome:
    made = outcome(index, CALM | fields, "ok" if of is None else "carried")
    own = None if p is None else {"hazard": Confidence(p=p, choices={"none": p}, mask_mass=mask_mass)}
    state = replace(made.record.vlm, frame=index if of is None else of)
    return replace(made, record=replace(made.record, vlm=state, confidence=own))


@pytest.mark.parametrize(
    ("sure", "told"),
    [
        ([0.99], (0.99, 0.99, 0)),
        ([0.6166], (0.6166, 0.6166, 0)),
        ([0.9, 0.618, 0.84], (0.618, 0.84, 0)),
        ([0.9, 0.618], (0.618, 0.618, 0)),
        ([0.9, 0.57, 0.5], (0.5, 0.57, 0)),
        ([0.49, 0.3, 1.0], (0.3, 0.49, 2)),
        ([None, 0.7, None], (0.7, 0.7, 0)),
        ([None], (None, None, 0)),
    ],
)
def test_a_stretch_tells_how_sure_its_answers_were(sure: list, told: tuple) -> None:
    summary = Summary(source="x", schema=FieldSchema.load("hazard"), setup={})
    for index, p in enumerate(sure):
        summary.add(weighed(2 * index, p))
        summary.add(weighed(2 * index + 1, p, of=2 * index))
    (stretch,) = summary.timeline
    assert (stretch.p_least, stretch.p_median, stretch.unsure) == told
    (written,) = json.loads(json.dumps(summary.to_dict(complete=True)))["timeline"]
    assert (written["p_least"], written["p_median"], written["unsure"]) == told


def test_the_median_of_many_answers_is_near_the_true_one_and_each_stretch_has_its_own() -> None:
    summary = Summary(source="x", schema=FieldSchema.load("hazard"), setup={})
    many = np.random.default_rng(0).uniform(0.2, 1.0, 999)
    for index, p in enumerate(many):
        summary.add(weighed(index, float(p)))
    summary.add(outcome(999, None, "error"))
    summary.add(weighed(1000, 0.9, of=998))
    summary.add(weighed(1001, 0.95, mask_mass=0.2))
    summary.add(weighed(1002, 0.97))
    first, lost, last = summary.timeline
    assert 0 <= np.median(many) - first.p_median <= 0.01
    assert (first.p_least, first.unsure) == (round(min(many), 4), (many < 0.5).sum())
    assert (lost.p_least, lost.p_median, lost.unsure) == (None, None, 0)
    assert (last.p_least, last.p_median, last.unsure) == (0.9, 0.95, 1)
    assert len(summary._percents) <= 101


def test_a_hazard_that_a_rule_changed_has_no_confidence() -> None:
    summary = Summary(source="x", schema=FieldSchema.load("hazard"), setup={})
    summary.add(weighed(0, 0.9, hazard="fire", severity="high"))
    assert summary.timeline[0].p_median is None
