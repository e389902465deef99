"""Lines for runs of days: whole whatever happens, put aside at a size, patient with a full disk."""

import json
import subprocess
import sys
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from hazardlens.errors import OutputError
from hazardlens.outputs.rotating import RotatingLines


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


def line(number: int) -> str:
    return json.dumps({"n": number, "text": "x" * 80})


def test_files_are_put_aside_whole_and_the_oldest_are_deleted(tmp_path: Path) -> None:
    out = RotatingLines(tmp_path / "records.jsonl", rotate_bytes=1000, keep=3)
    for number in range(100):
        out.write(line(number))
    out.close()
    aside = sorted(tmp_path.glob("records.*.jsonl"))
    assert len(aside) == 2
    kept = [number for path in [*aside, tmp_path / "records.jsonl"] for number in numbers(path)]
    assert kept == list(range(kept[0], 100))
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())


class FakeDate(datetime):
    """The machine's date, an hour earlier each time that somebody looks."""

    hours = 0

    @classmethod
    def now(cls, zone: tzinfo | None = None) -> datetime:
        cls.hours += 1
        return datetime(2026, 6, 1, tzinfo=zone) - timedelta(hours=cls.hours)


def test_a_date_that_goes_back_deletes_nothing_that_was_just_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hazardlens.outputs.rotating.datetime", FakeDate)
    (tmp_path / "records.noteZ.jsonl").write_text("somebody's")
    for run in range(2):
        out = RotatingLines(tmp_path / "records.jsonl", rotate_bytes=1000, keep=3)
        for number in range(50 * run, 50 * run + 50):
            out.write(line(number))
        out.close()
    aside = sorted(tmp_path.glob("records.2*.jsonl"))
    assert len(aside) == 2
    kept = [number for path in [*aside, tmp_path / "records.jsonl"] for number in numbers(path)]
    assert kept == list(range(kept[0], 100))
    assert len(kept) > 18, "two whole files and the one being written"
    assert (tmp_path / "records.noteZ.jsonl").exists()


def test_a_new_run_goes_on_and_cuts_off_half_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(line(0) + "\n" + line(1)[:20])
    out = RotatingLines(path)
    out.write(line(2))
    out.close()
    assert numbers(path) == [0, 2]
    assert "half a line" in caplog.text
    (tmp_path / "half.jsonl").write_text("x" * 100_000)
    RotatingLines(tmp_path / "half.jsonl").close()
    assert (tmp_path / "half.jsonl").read_bytes() == b""


def test_what_waits_is_bounded_and_what_falls_out_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hazardlens.outputs.rotating._WAITING_BYTES", 1000)
    out = RotatingLines(tmp_path / "records.jsonl")
    whole = RotatingLines._write
    monkeypatch.setattr(RotatingLines, "_write", lambda self, data: (_ for _ in ()).throw(OSError(28, "full")))
    for number in range(50):
        out.write(line(number))
    assert out.failure == "full"
    assert out.lost + out.waiting == 50
    assert 5 <= out.waiting <= 10
    monkeypatch.setattr(RotatingLines, "_write", whole)
    out.write(line(50))
    out.close()
    assert numbers(tmp_path / "records.jsonl") == list(range(out.lost, 51))
    assert out.failure is None


FULL = """
import json, resource, sys
from pathlib import Path
from hazardlens.outputs.rotating import RotatingLines
out = RotatingLines(Path(sys.argv[1]))
def write(number): out.write(json.dumps({"n": number, "text": "x" * 80}))
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for number in range(10): write(number)
resource.setrlimit(resource.RLIMIT_FSIZE, (1234, hard))
for number in range(10, 30): write(number)
print(out.waiting, out.failure)
whole = Path(sys.argv[1]).read_bytes()
assert whole.endswith(b"\\n"), whole[-50:]
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
for number in range(30, 40): write(number)
print(out.waiting, out.failure, out.lost)
out.close()
"""


def test_a_file_that_may_not_grow_leaves_whole_lines_and_loses_none(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    run = subprocess.run([sys.executable, "-c", FULL, path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.splitlines()
    assert int(first.split()[0]) > 10
    assert "no space left" in first
    assert second == "0 None 0"
    assert numbers(path) == list(range(40))


def test_a_place_that_cannot_be_written_to_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be written"):
        RotatingLines(tmp_path / "file" / "records.jsonl")
