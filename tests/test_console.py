"""What is printed of a finished run."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from hazardlens import process
from hazardlens.console import print_run
from hazardlens.outputs.folder import VideoFolder
from hazardlens.outputs.summary import Stretch, Summary
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeDetector, FunctionVlm
from hazardlens.testing.video import draw_video


@pytest.mark.parametrize("demo", [True, False])
def test_the_closing_lines_say_what_demo_models_made_and_where_results_are(tmp_path: Path, demo: bool) -> None:
    folder = VideoFolder(video=tmp_path / "a.mp4", path=tmp_path / "[bold]")
    folder.clear()
    (folder.path / "records.jsonl").write_text("")
    console = Console(file=io.StringIO(), width=40)
    print_run(console, Summary(source="a.mp4", schema=FieldSchema.load("hazard"), setup={}, demo=demo), folder)
    *_, said, where = console.file.getvalue().splitlines()
    assert ("demo models, which know drawn scenes only" in said) == demo
    assert where == f"  {folder.path}: records.jsonl"


def timeline(stretches: list[Stretch], vlm: str | None = "m") -> list[str]:
    console, folder = Console(file=io.StringIO(), width=40), VideoFolder(video=Path("a.mp4"), path=Path("absent"))
    summary = Summary(source="a.mp4", schema=FieldSchema.load("hazard"), setup={"vlm": vlm}, timeline=stretches)
    print_run(console, summary, folder)
    return [line.strip() for line in console.file.getvalue().splitlines() if " s to " in line]


CALM = {"hazard": "none", "severity": "none"}


@pytest.mark.parametrize(
    ("sure", "words"),
    [
        ({}, "none, none"),
        ({"p_least": 0.61, "p_median": 0.84}, "none, none  84% (least 61%)"),
        ({"p_least": 0.84, "p_median": 0.84}, "none, none  84%"),
        ({"p_least": 0.41, "p_median": 0.84, "unsure": 2}, "none, none  84% (least 41%, 2 unsure)"),
        ({"p_least": 0.99, "p_median": 0.99, "unsure": 1}, "none, none  99% (1 unsure)"),
    ],
)
def test_the_timeline_tells_how_sure_its_answers_were(sure: dict, words: str) -> None:
    stretch = Stretch(fields=CALM, status="ok", from_s=0.0, to_s=3.9, frames=40, **sure)
    assert timeline([stretch]) == [f"0.00 s to     3.90 s  {words}"]


def stretches(*told: tuple[str, int]) -> list[Stretch]:
    """Stretches one behind the other at ten frames a second, by status and frames; `ok` and `carried` say none."""
    made: list[Stretch] = []
    at = 0
    for status, frames in told:
        fields = CALM if status in ("ok", "carried") else None
        end = at + frames - 1
        made.append(Stretch(fields=fields, status=status, from_s=at / 10, to_s=end / 10, frames=frames))
        at = end + 1
    return made


@pytest.mark.parametrize(
    ("told", "vlm", "lines"),
    [
        ([("error", 1), ("skipped", 39)], "m", ["0.00 3.90 unknown (error, skipped)"]),
        ([("error", 1), ("skipped", 9)] * 4, "m", ["0.00 3.90 unknown (4 x error, skipped)"]),
        (
            [("skipped", 1), ("ok", 2), ("timeout", 1), ("error", 2), ("skipped", 4), ("ok", 1), ("stale", 5)],
            "m",
            [
                "0.00 0.00 unknown (skipped)",
                "0.10 0.20 none, none",
                "0.30 0.90 unknown (timeout, 2 x error, skipped)",
                "1.00 1.00 none, none",
                "1.10 1.50 unknown (stale)",
            ],
        ),
        ([("skipped", 40)], None, ["0.00 3.90 no VLM"]),
        ([("skipped", 30), ("source_lost", 10)], None, ["0.00 3.90 unknown (no VLM, source_lost)"]),
        ([("skipped", 40)], "m", ["0.00 3.90 unknown (skipped)"]),
    ],
)
def test_neighbours_about_which_nothing_is_known_share_a_line(told: list, vlm: str | None, lines: list) -> None:
    said = [line.replace(" s to ", " ").replace(" s ", " ") for line in timeline(stretches(*told), vlm)]
    assert [" ".join(line.split()) for line in said] == lines


def test_a_failure_that_lasts_does_not_push_verdicts_out() -> None:
    told = stretches(*[("error", 1), ("skipped", 9)] * 100, ("ok", 1))
    assert [line.split("  ")[-1] for line in timeline(told)] == ["unknown (100 x error, skipped)", "none, none"]


@pytest.mark.parametrize(
    ("vlm", "words"),
    [
        (FunctionVlm(lambda question: 1 / 0), "unknown (4 x error, skipped)"),
        ("none", "no VLM"),
    ],
)
def test_a_run_without_answers_has_one_line_that_says_so(tmp_path: Path, vlm: FunctionVlm | str, words: str) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=40, rate=10)
    run = process(clip, pipeline={"schema": "hazard", "ask": {"every_s": 1.0}}, detector=FakeDetector(), vlm=vlm)
    for _ in run:
        pass
    console = Console(file=io.StringIO(), width=40)
    print_run(console, run.summary, VideoFolder(video=clip, path=tmp_path / "out"))
    (line,) = [line.strip() for line in console.file.getvalue().splitlines() if " s to " in line]
    assert line == f"0.00 s to     3.90 s  {words}"
