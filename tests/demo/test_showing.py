"""`hazardlens demo`, with stand-ins for its models on clips of three seconds."""

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from drawn_site.clip import write_clip
from drawn_site.seeds import CLIP
from drawn_site.story import tell
from hazardlens.cli import app
from hazardlens.demo.clips import Clip
from hazardlens.errors import InputError, OutputError, OutputExistsError
from hazardlens.record import Confidence
from hazardlens.testing import FakeDetector, FunctionVlm
from hazardlens.testing.video import draw_video
from hazardlens.vlm.base import Question, Reply, Shown

CLASSES = ("worker", "forklift", "truck", "ladder", "cone", "pallet")
Say = Callable[[int], tuple[str, str]]


@pytest.fixture
def clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clip:
    """A clip of three seconds: smoke in the second one, fire in the third."""
    hazards = ["none"] * 12 + ["smoke"] * 12 + ["fire"] * 12
    events = [
        {"hazard": "smoke", "severity": "medium", "start_s": 1.0, "end_s": 2.0},
        {"hazard": "fire", "severity": "critical", "start_s": 2.0, "end_s": 3.0},
    ]
    frames = [{"frame": k, "time_s": round(k / 12, 4), "hazard": hazard} for k, hazard in enumerate(hazards)]
    (tmp_path / "shipped").mkdir()
    made = Clip(
        video=draw_video(tmp_path / "shipped" / "site.mp4", frames=36, rate=12, size_wh=(320, 180)),
        truth_file=tmp_path / "shipped" / "site.truth.json",
    )
    made.truth_file.write_text(json.dumps({"events": events, "frames": frames}))
    monkeypatch.setattr("hazardlens.demo.showing.shipped_clip", lambda: made)
    return made


class SureVlm(FunctionVlm):
    """As sure of the picture's hazard as it is told to be."""

    p: float | None = None

    def ask(self, question: Question, shown: Shown, cancel: threading.Event) -> Reply:
        reply = super().ask(question, shown, cancel)
        if self.p is None:
            return reply
        hazard = json.loads(reply.text)["hazard"]
        return replace(reply, confidence={"/hazard": Confidence(p=self.p, choices={hazard: self.p}, mask_mass=1.0)})


def stand_in(monkeypatch: pytest.MonkeyPatch, say: Say, *, p: float | None = None) -> None:
    """Put a detector and a VLM in place of the models shipped; `say` gives hazard and severity by frame."""

    def answer(question: Question) -> dict[str, Any]:
        hazard, severity = say(question.frame.index)
        objects = [{"id": k, "hazard": hazard, "severity": severity} for k in range(question.asked)]
        return {"notes": "What is seen here.", "hazard": hazard, "severity": severity, "detections": objects}

    detector = FakeDetector(lambda frame: [("worker", 1, 10.0, 40.0, 60.0, 120.0)], class_names=CLASSES)
    vlm = SureVlm(answer, name="demo-vlm")
    vlm.p = p
    detector.demo = vlm.demo = True
    monkeypatch.setattr("hazardlens.parts._detector", lambda settings: detector)
    monkeypatch.setattr("hazardlens.parts._vlm", lambda settings: vlm)
    monkeypatch.setattr("hazardlens.demo.showing.shipped_model", lambda name: Path(name))
    # It would leave a handler on the runner's stream, which is closed behind it.
    monkeypatch.setattr("hazardlens.jobs.quiet_libraries", lambda: None)


def sees_fire_only(frame: int) -> tuple[str, str]:
    return ("fire", "high") if frame >= 20 else ("none", "none")


def run(*arguments: object) -> tuple[int, str]:
    """Exit code, and what was printed, with single spaces."""
    ran = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["demo", *map(str, arguments)])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return ran.exit_code, re.sub(r"[ \t]+", " ", ran.output)


def test_the_shipped_clip_end_to_end_twice(
    clip: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    stand_in(monkeypatch, sees_fire_only)
    for _ in range(2):
        caplog.clear()
        code, said = run()
        assert code == 0, said
        assert "site.mp4: 36 of 36 frames read, 36 records" in said
        assert "questions: 6 asked (6 ok)" in said  # every half second
        assert "1.0-2.0 s smoke medium missed said none" in said
        assert "2.0-3.0 s fire critical 0.0 s high" in said
        assert "Of 2 frames asked about in which there is no hazard, 2 were answered 'none' (100%)." in said
        assert "hazardlens-out/demo/site: records.jsonl, summary.json, annotated.mp4" in said
        assert "know drawn scenes only" in said
        assert "hazardlens process VIDEO --detector yolo26n.pt --vlm HuggingFaceTB/" in said
        assert [r.getMessage() for r in caplog.records if "demo models" in r.getMessage()]
    folder = tmp_path / "hazardlens-out" / "demo" / "site"
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["complete"], summary["demo"], summary["pipeline"]["vlm"]["model"]) == (True, True, "demo-vlm")
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    assert {record["vlm"]["model"] for record in records} == {"demo-vlm"}


@pytest.mark.parametrize(("p", "told"), [(0.84, "84%"), (0.48, "48%?")])
def test_how_sure_the_first_answer_was(
    clip: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, p: float, told: str
) -> None:
    stand_in(monkeypatch, sees_fire_only, p=p)
    code, said = run("--out", tmp_path / "out")
    assert code == 0, said
    assert f"2.0-3.0 s fire critical 0.0 s {told} high" in said


def test_another_clip_is_drawn_from_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def short(seed: int) -> Any:
        drawn.append(seed)
        return replace(tell(seed), duration_s=1.0)

    monkeypatch.setattr("drawn_site.clip.tell", short)
    stand_in(monkeypatch, lambda frame: ("none", "none"))
    out = tmp_path / "out"
    code, said = run("--out", out, "--seed", 3)
    assert code == 0, said
    assert drawn == [CLIP + 4]
    assert f"drew the clip of seed 3: {out}/drawn-site-3.mp4" in said.replace("\n", "")
    assert "drawn-site-3.mp4: 12 of 12 frames read" in said
    assert "(100%)" in said
    records = [json.loads(line) for line in (out / "drawn-site-3" / "records.jsonl").read_text().splitlines()]
    assert records[0]["size_wh"] == [640, 360]


def test_what_was_said_where_nothing_is_wrong_is_told(
    clip: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, lambda frame: ("spill", "low") if frame == 0 else ("none", "none"))
    code, said = run("--out", tmp_path / "out")
    assert code == 0, said
    assert "2 frames asked about in which there is no hazard, 1 were answered 'none' (50%)" in said.replace("\n", " ")
    assert "false alarms: spill (low) at 0.0 s." in said.replace("\n", " ")


def test_nothing_is_drawn_where_results_of_others_are_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, sees_fire_only)
    folder = tmp_path / "out" / "drawn-site-0"
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text("mine")
    with pytest.raises(OutputExistsError, match="not the demo's"):
        run("--out", tmp_path / "out", "--seed", 0)
    assert not list((tmp_path / "out").glob("*.mp4"))


def test_drawing_into_a_folder_that_cannot_be_is_an_output_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, sees_fire_only)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"drawn-site-0\.mp4 cannot be written"):
        run("--out", tmp_path / "file" / "out", "--seed", 0)


def test_no_answer_at_all_is_exit_code_3_and_no_calm(
    clip: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, lambda frame: ("none", "no such severity"))
    code, said = run("--out", tmp_path / "out")
    assert code == 3
    assert said.count("missed") == 2
    assert "6 invalid" in said
    assert "No frame without a hazard was asked about." in said


@pytest.mark.parametrize("found", ["records", "summary of a real run", "summary of another video"])
def test_results_of_others_are_not_replaced(
    clip: Clip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    stand_in(monkeypatch, sees_fire_only)
    folder = tmp_path / "out" / "site"
    folder.mkdir(parents=True)
    (folder / "records.jsonl").write_text("mine")
    if found != "records":
        told = {"demo": False, "source": "site.mp4"} if "real" in found else {"demo": True, "source": "yard.mp4"}
        (folder / "summary.json").write_text(json.dumps(told))
    with pytest.raises(OutputExistsError, match="not the demo's"):
        run("--out", tmp_path / "out")
    assert (folder / "records.jsonl").read_text() == "mine"


@pytest.mark.parametrize("missing", ["demo-yolo26n.pt", "demo-vlm"])
def test_without_its_models_it_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(
        "hazardlens.demo.showing.shipped_model", lambda name: None if name == missing else tmp_path / name
    )
    with pytest.raises(InputError, match=f"the demo's model '{missing}' is not in this copy") as caught:
        run("--out", tmp_path / "out")
    assert "train the model" in caught.value.help
    assert not (tmp_path / "out").exists()


def test_help_and_a_seed_below_zero() -> None:
    code, said = run("--help")
    assert code == 0
    assert all(option in said for option in ("--out", "--seed", "drawn scenes only"))
    assert run("--seed", -1)[0] == 2


def test_a_clip_is_drawn_with_its_truth_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drawn_site.clip.tell", lambda seed: replace(tell(seed), duration_s=0.5))
    truth_file = write_clip(tmp_path / "a.mp4", CLIP + 1, (64, 36), oversample=1)
    told = Clip(video=tmp_path / "a.mp4", truth_file=truth_file).truth()
    assert [frame["frame"] for frame in told["frames"]] == list(range(6))
