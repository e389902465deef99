"""records.jsonl: whole lines, whatever happens."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hazardlens.errors import OutputError
from hazardlens.frames.base import Frame
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.records import RecordsFile
from hazardlens.record import FrameRecord, VlmState


def outcome(index: int, source: str = "x") -> Outcome:
    frame = Frame(image=np.zeros((2, 2, 3), np.uint8), index=index, time_s=index / 10, source=source)
    record = FrameRecord(
        source=source,
        frame=index,
        time_s=index / 10,
        size_wh=(2, 2),
        detections=(),
        fields=None,
        vlm=VlmState(status="skipped", reason="no VLM"),
    )
    return Outcome(record=record, frame=frame)


def test_every_line_is_on_disk_as_soon_as_it_is_written(tmp_path: Path) -> None:
    records = RecordsFile(tmp_path / "records.jsonl")
    for index in range(3):
        records.write(outcome(index, source="bücher \u2028 \n.mp4"))
        lines = (tmp_path / "records.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        assert [json.loads(line)["frame"] for line in lines] == list(range(index + 1))
    records.close(complete=True)


def test_what_is_not_unicode_is_escaped(tmp_path: Path) -> None:
    records = RecordsFile(tmp_path / "records.jsonl")
    records.write(outcome(0, source="caf\udce9 \ud83d \\ é.mp4"))
    records.close(complete=True)
    data = (tmp_path / "records.jsonl").read_bytes()
    assert data.count(b"\n") == 1
    assert json.loads(data)["source"] == "caf\udce9 \ud83d \\ é.mp4"


LIMITED = """
import resource, signal, sys
from pathlib import Path
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from tests.outputs.test_records import outcome
from hazardlens.errors import OutputError
from hazardlens.outputs.records import RecordsFile
records = RecordsFile(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    for index in range(1000):
        records.write(outcome(index))
except OutputError as error:
    print(error)
    records.close(complete=False)
    sys.exit(7)
"""


def test_a_full_disk_leaves_whole_lines_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    root = Path(__file__).parent.parent.parent
    run = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, cwd=root)
    assert run.returncode == 7, run.stderr
    assert str(path) in run.stdout
    assert "--resume" in run.stdout
    text = path.read_text()
    assert text.endswith("\n")
    assert [json.loads(line)["frame"] for line in text.splitlines()] == list(range(text.count("\n")))
    assert text.count("\n") > 3


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="no/such"):
        RecordsFile(tmp_path / "no/such/records.jsonl")
