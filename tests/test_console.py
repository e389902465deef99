"""What is printed of a finished run."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from hazardlens.console import print_run
from hazardlens.outputs.folder import VideoFolder
from hazardlens.outputs.summary import Stretch, Summary
from hazardlens.schema import FieldSchema


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
