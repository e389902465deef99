"""The account of a run."""

import json
from pathlib import Path

import numpy as np
import pytest

from hazardlens.errors import OutputError
from hazardlens.frames.base import Frame
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.summary import Summary, write_summary
from hazardlens.record import Contradiction, FrameRecord, RuleTrace, VlmState
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
