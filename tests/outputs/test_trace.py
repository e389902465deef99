"""What the VLM was shown and what it said."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hazardlens.detect.base import Detections
from hazardlens.errors import OutputError
from hazardlens.frames.base import Frame
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.trace import Trace
from hazardlens.record import FrameRecord, VlmState
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, Question, Reply, Shown

HAZARD = FieldSchema.load("hazard")
CROPS = np.arange(5 * 5 * 3, dtype=np.uint8).reshape(5, 5, 3)


def outcome(index: int, *, prompt: str = "What is seen?", text: str = "{}", crops: bool = False) -> Outcome:
    image = np.zeros((4, 6, 3), np.uint8)
    frame = Frame(image=image, index=index, time_s=index / 10, source="x")
    question = Question(
        frame=frame,
        detections=Detections.empty({}),
        asked=0,
        fields=HAZARD,
        schema=HAZARD.ground(0),
        context="",
        trigger=("every",),
    )
    answer = Answer(
        status="invalid",
        reason=f"not JSON: {text}",
        fields=None,
        reply=Reply(text=text),
        latency_s=0.1,
        attempts=1,
        shown=Shown(image=image, prompt=prompt, crops=CROPS if crops else None),
    )
    record = FrameRecord(
        source="x",
        frame=index,
        time_s=index / 10,
        size_wh=(6, 4),
        detections=(),
        fields=None,
        vlm=VlmState(status="invalid"),
    )
    return Outcome(record=record, frame=frame, question=question, answer=answer)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_traces_of_an_earlier_run_are_removed_and_nothing_else(tmp_path: Path) -> None:
    mine = ["frame_000001.jpg", "frame_1.png", "frame_000001.png.bak", "my_frame_000001.png", "frame_00000x.prompt.txt"]
    mine += ["frame_000001.crops.jpg", "frame_000001_crops.png", "frame_1.crops.png"]
    old = ["png", "prompt.txt", "crops.png", "answer.json"]
    for name in [*mine, *(f"frame_000000.{end}" for end in old), "frame_000007.crops.png", "frame_1234567.png"]:
        (tmp_path / name).write_text("old")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "frame_000001.png").write_text("old")
    trace = Trace(tmp_path)
    assert names(tmp_path) == sorted([*mine, "other"])
    assert names(tmp_path / "other") == ["frame_000001.png"]
    trace.write(outcome(3))
    trace.write(outcome(5))
    trace.close(complete=True)
    new = [f"frame_00000{index}.{end}" for index in (3, 5) for end in ("png", "prompt.txt", "answer.json")]
    assert names(tmp_path) == sorted([*mine, "other", *new])
    assert {(tmp_path / name).read_text() for name in mine} == {"old"}


def test_a_second_picture_is_written_beside_the_first(tmp_path: Path) -> None:
    trace = Trace(tmp_path)
    trace.write(outcome(3, crops=True))
    trace.write(outcome(4))
    assert [name for name in names(tmp_path) if name.endswith(".png")] == [
        "frame_000003.crops.png",
        "frame_000003.png",
        "frame_000004.png",
    ]
    assert np.array_equal(np.asarray(Image.open(tmp_path / "frame_000003.crops.png")), CROPS)
    assert not np.asarray(Image.open(tmp_path / "frame_000003.png")).any()


def test_what_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    Trace(tmp_path).write(outcome(0, prompt="caf\udce9 é", text='{"notes": "\ud83d'))
    said = json.loads((tmp_path / "frame_000000.answer.json").read_bytes())
    assert (said["raw"], said["reason"]) == ('{"notes": "\ud83d', 'not JSON: {"notes": "\ud83d')
    assert (tmp_path / "frame_000000.prompt.txt").read_text(encoding="utf-8") == "caf\\udce9 é"


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file in the way")
    with pytest.raises(OutputError, match="a cannot be used"):
        Trace(tmp_path / "a")
