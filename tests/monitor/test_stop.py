"""Stopping from outside: SIGTERM and Ctrl-C end a run cleanly, whatever hangs."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hazardlens.resources import data_path

HANGING = """
import sys, threading, time
from pathlib import Path
from hazardlens import cli, watching
from hazardlens.testing import FakeDetector
from hazardlens.testing.cameras import FakeCamera
from hazardlens.vlm.base import Vlm

class HangingCamera(FakeCamera):
    def _pictures(self, *given):
        yield from super()._pictures(*given)
        threading.Event().wait()

class HangingVlm(Vlm):
    name, enforced = "hangs", "checked"
    def ask(self, question, shown, stop):
        threading.Event().wait()

def found(sources, settings):
    return [FakeCamera("busy", sessions=[10**6], fps=50.0), HangingCamera("hangs", sessions=[3], fps=50.0)]

watching.cameras = found
watching.quiet_libraries = lambda: None
real = watching.settle
watching.settle = lambda **given: real(**{**given, "detector": FakeDetector(), "vlm": HangingVlm()})
sys.argv = ["hazardlens", "live", "0", "--json", "--out", sys.argv[1]]
cli.main()
"""


def stopped(
    command: list, number: signal.Signals, *, lines_before: int, printed: list[str] | None = None
) -> tuple[subprocess.Popen, str, float]:
    """Run a command until it has printed some lines, send a signal, and wait for its end."""
    lines = [] if printed is None else printed
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for _ in range(lines_before):
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        process.send_signal(number)
        began = time.monotonic()
        rest, err = process.communicate(timeout=60)
        lines.extend(rest.splitlines(keepends=True))
        return process, err, time.monotonic() - began


def check(folder: Path) -> list[dict]:
    """Every line is whole, and the status says that the run is over."""
    status = json.loads((folder / "status.json").read_text())
    assert (status["running"], status["complete"]) == (False, False)
    text = (folder / "records.jsonl").read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_whose_camera_and_vlm_hang_stops_with_everything_written(number: signal.Signals, tmp_path: Path) -> None:
    printed: list[str] = []
    process, err, _ = stopped([sys.executable, "-c", HANGING, tmp_path], number, lines_before=30, printed=printed)
    assert process.returncode == 0, err
    records = check(tmp_path)
    assert [json.loads(line) for line in printed] == records, "what is written at the stop is printed too"
    (unanswered,) = [one for one in records if "stopped before the answer came" in (one["vlm"]["reason"] or "")][:1]
    assert unanswered["vlm"]["status"] == "error"
    asked = {(one["source"], one["frame"]) for one in records if one["vlm"]["trigger"]}
    told = {
        (one["source"], one["frame"])
        for one in records
        if one["vlm"]["trigger"] and one["vlm"]["status"] in ("error", "skipped")
    }
    assert told == asked


@pytest.mark.full
def test_it_stops_within_three_seconds(tmp_path: Path) -> None:
    for place, number in enumerate((signal.SIGTERM, signal.SIGINT)):
        _, err, seconds = stopped([sys.executable, "-c", HANGING, tmp_path / str(place)], number, lines_before=100)
        assert seconds < 3.0, err


@pytest.mark.full
def test_the_command_with_the_models_shipped_stops_within_three_seconds(tmp_path: Path) -> None:
    clip = data_path("assets", "demo/site.mp4")
    command = [sys.executable, "-c", "from hazardlens.cli import main; main()", "live", f"site={clip}", "--json"]
    settings = ["--pipeline", "demo", "--vlm", "none", "--out", tmp_path]
    process, err, seconds = stopped([*command, *settings], signal.SIGTERM, lines_before=10)
    assert process.returncode == 0, err
    assert seconds < 3.0
    assert {one["source"] for one in check(tmp_path)} == {"site"}
