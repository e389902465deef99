"""The command line, run as a user runs it, with a detector and a VLM of random weights."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hazardlens.cli import app
from hazardlens.jobs import Job
from hazardlens.parts import settle
from hazardlens.testing.video import draw_video, truncate
from hazardlens.watching import Watch
from tests.warm import hazardlens

HAZARDLENS = Path(sys.executable).parent / "hazardlens"
ENVIRONMENT = {**os.environ, "COLUMNS": "120", "HF_HUB_OFFLINE": "1", "YOLO_OFFLINE": "true"}


@pytest.fixture(scope="module")
def models(random_yolo: Path, random_vlm_folder: Path) -> list[object]:
    return ["--detector", random_yolo, "--vlm", random_vlm_folder, "--set", "detector.image_size=64"]


def test_several_videos_in_one_call_one_of_them_bad(models: list[object], tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        draw_video(tmp_path / name, frames=12, rate=10)
    (tmp_path / "c.mp4").write_text("not a video")
    first = hazardlens("process", "*.mp4", *models, "--out", "out", "--json", cwd=tmp_path)
    assert first.returncode == 2
    assert "c.mp4" in first.stderr
    summaries = [json.loads(line) for line in first.stdout.splitlines()]
    assert [summary["source"] for summary in summaries] == ["a.mp4", "b.mp4"]
    assert [summary["questions"]["by_status"] for summary in summaries] == [{"ok": 2}, {"ok": 2}]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a", "b"}

    draw_video(tmp_path / "d.mp4", frames=3, rate=10)
    again = hazardlens("process", "a.mp4", "d.mp4", *models, "--out", "out", cwd=tmp_path)
    assert again.returncode == 2
    assert "--overwrite" in again.stderr
    assert "d.mp4: 3 of 3 frames read" in again.stdout

    os.remove(tmp_path / "out" / "b" / "summary.json")  # noqa: PTH107
    resumed = hazardlens("process", "a.mp4", "b.mp4", *models, "--out", "out", "--resume", cwd=tmp_path)
    assert resumed.returncode == 0
    assert "a.mp4: finished before" in resumed.stderr
    assert "b.mp4: 12 of 12 frames read" in resumed.stdout

    quiet = hazardlens("process", "a.mp4", *models, "--out", "out", "--overwrite", "--quiet", cwd=tmp_path)
    assert (quiet.returncode, quiet.stdout) == (0, "")


@pytest.mark.parametrize(
    ("schema", "field", "form"),
    [
        ("own.lark", "text", "[0-9]{1,3}: (fire|none)"),
        pytest.param("own.gbnf", "text", "[0-9]{1,3}; (fire|none)", marks=pytest.mark.full),
        ('{"regex": "[A-C]{1,2}-[0-9]{1,3}"}', "text", "[A-C]{1,2}-[0-9]{1,3}"),
        pytest.param('{"choices": ["none", "smoke", "fire"]}', "label", "none|smoke|fire", marks=pytest.mark.full),
    ],
)
def test_a_constraint_of_any_kind_goes_from_the_command_line_into_the_records(
    models: list[object], tmp_path: Path, schema: str, field: str, form: str
) -> None:
    draw_video(tmp_path / "a.mp4", frames=6, rate=10)
    (tmp_path / "own.lark").write_text('start: /[0-9]{1,3}/ ": " ("fire" | "none")')
    (tmp_path / "own.gbnf").write_text('root ::= [0-9]{1,3} "; " ("fire" | "none")')
    run = hazardlens("process", "a.mp4", *models, "--schema", schema, "--set", "rules=[]", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    lines = (tmp_path / "hazardlens-out" / "a" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    fields = [record["fields"] for record in map(json.loads, lines) if record.get("fields")]
    assert fields
    for own in fields:
        assert list(own) == [field]
        assert re.fullmatch(form, own[field]), own


def test_a_file_that_ends_early_is_exit_code_3_and_is_said(models: list[object], tmp_path: Path) -> None:
    clip = draw_video(
        tmp_path / "cut.mp4", frames=60, rate=10, size_wh=(320, 240), container_options={"movflags": "faststart"}
    )
    truncate(clip, 0.6)
    run = hazardlens("process", clip, *models, cwd=tmp_path)
    assert run.returncode == 3
    assert "ENDED EARLY" in run.stdout


def test_no_answer_at_all_is_exit_code_3(models: list[object], tmp_path: Path) -> None:
    draw_video(tmp_path / "a.mp4", frames=3, rate=10)
    run = hazardlens("process", "a.mp4", *models, "--set", "vlm.timeout_s=0.000001", cwd=tmp_path)
    assert run.returncode == 3
    assert "1 timeout" in run.stdout


def test_a_token_budget_that_no_answer_fits_is_refused_with_both_numbers(models: list[object], tmp_path: Path) -> None:
    draw_video(tmp_path / "a.mp4", frames=3, rate=10)
    run = hazardlens("process", "a.mp4", *models, "--set", "vlm.max_new_tokens=5", cwd=tmp_path)
    assert run.returncode == 2
    assert re.search(r"max_new_tokens is 5, but an answer about 0 detections may\s+need \d+", run.stderr), run.stderr
    assert not (tmp_path / "hazardlens-out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.mp4"], "nothing.mp4"),
        (["nothing*.mp4"], "nothing matches"),
        (["a.mp4", "--pipeline", "sit"], "site"),
        (["a.mp4", "--pipeline", "broken.yaml"], "broken.yaml"),
        (["a.mp4", "--schema", "hazzard"], "hazard"),
        (["a.mp4", "--schema", "endless.json"], "/properties/x"),
        (["a.mp4", "--every", "soon"], "soon"),
        (["a.mp4", "--set", "vlm.devise=cpu"], "devise"),
        (["a.mp4", "--set", "vlm.device"], "PLACE=VALUE"),
        (["a.mp4", "--detector", "none.pt"], "none.pt"),
        (["a.mp4", "--vlm", "empty-folder"], "empty-folder"),
        (["a.mp4", "--overwrite", "--resume"], "exclude"),
        (["a.mp4", "--set", "detector.classes=[persn]"], "person"),
        (["a.mp4", "--no-such-option"], "no-such-option"),
        (["a.mp4", "--vlm", "/no/such/folder"], "no such folder"),
        (["a.mp4", "--schema", "plant"], "use a pipeline that does"),
        (["rtsp://camera/1"], "not supported yet"),
    ],
)
def test_bad_input_is_exit_code_2_names_the_thing_and_writes_nothing(
    models: list[object], tmp_path: Path, arguments: list[str], message: str
) -> None:
    draw_video(tmp_path / "a.mp4", frames=3, rate=10)
    (tmp_path / "broken.yaml").write_text("ask: {evry_s: 1}\n")
    (tmp_path / "endless.json").write_text('{"type": "object", "properties": {"x": {"$ref": "#"}}, "required": ["x"]}')
    (tmp_path / "empty-folder").mkdir()
    run = hazardlens("process", *models, *arguments, cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert message in run.stderr
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "hazardlens-out").exists()


def test_check_of_a_model_that_is_on_no_server_and_not_here_says_both(tmp_path: Path) -> None:
    run = hazardlens("check", "--vlm", "/no/such/folder", cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    first, advice = run.stderr.splitlines()[-2:]
    assert first.startswith("error: the pipeline names no server for this VLM")
    assert "/no/such/folder cannot be loaded: no such folder" in first
    assert "--vlm NAME --base-url URL" in advice


@pytest.mark.parametrize("ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.full)])
def test_an_interruption_is_exit_code_130_and_resume_goes_on(
    models: list[object], tmp_path: Path, ending: signal.Signals
) -> None:
    draw_video(tmp_path / "long.mp4", frames=1500, rate=10)
    command = [HAZARDLENS, "process", "long.mp4", *map(str, models), "--set", "ask.new_track=[]"]
    child = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    records = tmp_path / "hazardlens-out" / "long" / "records.jsonl"
    while child.poll() is None and not (records.exists() and records.stat().st_size > 5000):
        time.sleep(0.05)
    child.send_signal(ending)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert "--resume" in errors
    assert [json.loads(line)["frame"] for line in records.read_text().splitlines()][:3] == [0, 1, 2]
    summary = json.loads((records.parent / "summary.json").read_text())
    assert not summary["complete"]


HANGING = """
import sys, time
import hazardlens.parts, hazardlens.merge.lane
from hazardlens.cli import main
from hazardlens.testing import FakeDetector, FunctionVlm
hazardlens.merge.lane._CLOSE_WAITS_S = 0.2
hazardlens.parts._detector = lambda settings: FakeDetector(class_names=["person", "truck"])
hazardlens.parts._vlm = lambda settings: FunctionVlm(lambda question: print("asked", flush=True) or time.sleep(120))
sys.argv = ["hazardlens", "process", "long.mp4"]
main()
"""


def test_a_vlm_that_hangs_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    draw_video(tmp_path / "long.mp4", frames=1500, rate=10)
    child = subprocess.Popen(
        [sys.executable, "-c", HANGING], cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"asked\n"
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 130, errors
    assert b"does not stop" in errors
    summary = json.loads((tmp_path / "hazardlens-out" / "long" / "summary.json").read_text())
    assert summary["reason"] == "interrupted"


def test_schema_check_tells_what_is_held_what_is_checked_and_how_long(random_vlm_folder: Path, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {
            "labels": {
                "type": "array",
                "items": {"type": "string", "maxLength": 3},
                "maxItems": 3,
                "uniqueItems": True,
            },
            "hazard": {"enum": ["none", "fire"]},
        },
        "required": ["labels", "hazard"],
        "additionalProperties": False,
    }
    (tmp_path / "own.json").write_text(json.dumps(schema))
    run = hazardlens("schema", "check", "own.json", cwd=tmp_path)
    assert run.returncode == 0
    held, checked = run.stdout.split("checked afterwards")
    assert "/properties/hazard" in held
    assert "uniqueItems" in checked
    assert "uniqueItems" not in held
    assert "\n  /properties/labels: type, items, maxItems\n" in held
    assert checked.startswith(
        ": 1\n  /properties/labels: uniqueItems\n    /properties/labels/uniqueItems: uniqueItems is"
    )
    assert "longest answer" in run.stdout
    assert "least vlm.max_new_tokens: 32 tokens, one per byte" in run.stdout
    negative = hazardlens("schema", "check", "own.json", "--objects", "-1", cwd=tmp_path)
    assert (negative.returncode, "Traceback" in negative.stderr) == (2, False)
    with_model = hazardlens("schema", "check", "own.json", "--vlm", random_vlm_folder, cwd=tmp_path)
    assert with_model.returncode == 0
    assert "tokens of" in with_model.stdout


def test_schema_check_of_a_grammar_tells_the_least_budget(tmp_path: Path) -> None:
    (tmp_path / "own.gbnf").write_text('root ::= [a-z]* ": " ("fire" | "none")')
    run = hazardlens("schema", "check", "own.gbnf", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "held by the mask while the answer is written: 1\n  /gbnf" in run.stdout
    assert "longest answer: without end" in run.stdout
    assert "least vlm.max_new_tokens: 6 tokens, one per byte" in run.stdout
    (tmp_path / "own.gbnf").write_text('root ::= "a" root')
    run = hazardlens("schema", "check", "own.gbnf", cwd=tmp_path)
    assert run.returncode == 2
    assert "/gbnf: an answer can never end: start" in run.stderr


def test_results_are_not_taken_as_input_and_a_question_may_never_come(models: list[object], tmp_path: Path) -> None:
    draw_video(tmp_path / "a.mp4", frames=3, rate=10)
    for more in ([], ["--overwrite", "--every", "never", "--set", "detector.classes=person"]):
        run = hazardlens("process", "**/*.mp4", *models, "--out", "out", *more, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"a"}
    assert "none asked" in run.stdout


@pytest.mark.parametrize(
    ("command", "runs"), [("process", "hazardlens.jobs.run_jobs"), ("live", "hazardlens.watching.watch")]
)
def test_files_and_cameras_alike_ask_a_model_on_a_server(
    command: str, runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip = tmp_path / "a.mp4"
    clip.touch()
    jobs: list[Job | Watch] = []
    monkeypatch.setattr("hazardlens.cli._hasty", threading.Event())
    monkeypatch.setattr(runs, lambda job, **_: jobs.append(job) or 0)
    address = "http://127.0.0.1:9/v1"
    options = ["--vlm", "there", "--base-url", address, "--api", "responses", "--concurrency", "3"]
    run = CliRunner().invoke(app, [command, str(clip), *options, "--set", "vlm.tries=2"])
    assert run.exit_code == 0, run.output
    vlm = settle(**jobs[0].parts).pipeline.vlm
    assert vlm is not None
    assert (vlm.model, vlm.base_url, vlm.api) == ("there", address, "responses")
    assert (vlm.concurrency, vlm.tries) == (3, 2)


@pytest.mark.parametrize("command", [["process"], ["live"], ["schema", "check"]])
def test_help_names_every_kind_of_schema_file(command: list[str]) -> None:
    told = CliRunner().invoke(app, [*command, "--help"]).stdout
    assert ".json, .lark or .gbnf" in " ".join(told.replace("│", " ").split())


def test_help_and_version() -> None:
    told = hazardlens("--help", cwd=Path.cwd()).stdout
    assert "process" in told
    assert "demo" in told
    assert hazardlens("--version", cwd=Path.cwd()).stdout.startswith("hazardlens 0.")
