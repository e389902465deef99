"""What docs/live.md shows, run as it stands, and what it says, held against the code."""

import re
import shlex
from pathlib import Path

import pytest

import hazardlens
from hazardlens.cli import app
from hazardlens.pipeline import Pipeline
from hazardlens.testing import FakeDetector, FunctionVlm
from hazardlens.testing.cameras import FakeCamera
from tests.monitor.test_run import verdict

PAGE = (Path(__file__).parents[2] / "docs" / "live.md").read_text(encoding="utf-8")


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    monkeypatch.setattr("hazardlens.parts._vlm", lambda settings: FunctionVlm(verdict))
    monkeypatch.setattr("hazardlens.parts._detector", lambda settings: FakeDetector())
    names = {"hazardlens": hazardlens, "camera": FakeCamera(sessions=[5], fps=50.0), "pipeline": Pipeline.load("site")}
    exec(example, names)  # noqa: S102 - the page's own code
    said = capsys.readouterr().out.splitlines()
    assert "gate online" in said
    assert any(re.fullmatch(r"gate \d+ spill", line) for line in said)
    assert "gate ended" in said


def options(command: str) -> set[str]:
    return {word for word in shlex.split(command) if word.startswith("--")}


def test_the_commands_have_options_that_there_are() -> None:
    import typer

    live = typer.main.get_command(app).commands["live"]
    known = {name for parameter in live.params for name in parameter.opts}
    (shell,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (unit,) = re.findall(r"^ExecStart=(.*)$", PAGE, re.MULTILINE)
    told = set(re.findall(r"`(--[a-z]+)", PAGE))
    assert {"--out", "--show", "--serve"} <= told
    assert options(shell) | options(unit) | told <= known
    assert int(re.findall(r"TimeoutStopSec=(\d+)", PAGE)[0]) > 3


def test_the_events_are_those_of_the_page() -> None:
    from typing import get_args

    from hazardlens.record import CameraState

    assert all(f"`{state}`" in PAGE for state in get_args(CameraState))
