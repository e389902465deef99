"""What is printed of a finished run."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from hazardlens.console import print_run
from hazardlens.outputs.folder import VideoFolder
from hazardlens.outputs.summary import Summary
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
