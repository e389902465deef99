"""`hazardlens live` as a user sees it: what is printed, what is refused."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from hazardlens.errors import InputError
from hazardlens.outputs.rotating import RotatingLines
from hazardlens.record import Confidence, FrameRecord, VlmState
from hazardlens.schema import FieldSchema
from hazardlens.testing.video import draw_video
from hazardlens.watching import Watch, _lines, watch
from tests.alerts.test_outputs import parts, pipeline


def watched(source: str, code: int = 0, **more: object) -> tuple[str, str]:
    """What is printed to standard output and error."""
    out, err = io.StringIO(), io.StringIO()
    job = Watch(
        sources=[source],
        **{"out": None, "parts": {"pipeline": pipeline(), **parts()}, "quiet": False, "as_json": False, **more},
    )
    assert watch(job, out=Console(file=out, width=200), err=Console(file=err, width=200)) == code
    return out.getvalue(), err.getvalue()


@pytest.fixture(autouse=True)
def _no_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hazardlens.watching.quiet_libraries", lambda: None)


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    return draw_video(tmp_path / "clip.mp4", frames=20, rate=20)


def test_events_answers_and_alerts_have_a_line_each(clip: Path, tmp_path: Path) -> None:
    said, told = watched(f"gate={clip}", out=tmp_path / "out")
    lines = said.splitlines()
    assert "gate: online: 64x48" in lines[0]
    assert any("gate, frame 0: none" in line for line in lines)
    assert any("ALERT worker began, person 1: person seen and severity is high" in line for line in lines)
    assert any("gate: ended" in line for line in lines)
    assert len(lines) < 20, "not each frame"
    assert "everything is written" in told


def test_records_as_lines_of_json_and_nothing_else(clip: Path) -> None:
    said, _ = watched(f"gate={clip}", as_json=True)
    records = [json.loads(line) for line in said.splitlines()]
    assert {record["source"] for record in records} == {"gate"}
    assert watched(f"gate={clip}", quiet=True)[0] == ""


def test_lines_that_could_not_be_written_are_told_and_are_the_exit_code(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RotatingLines, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RotatingLines, "_write", full)
    _, told = watched(f"gate={clip}", code=1, out=tmp_path / "out", quiet=True)
    assert "lines are missing in records.jsonl: No space left on device" in told
    assert "everything is written" not in told


def test_a_page_says_where_it_is(clip: Path) -> None:
    _, told = watched(f"gate={clip}", serve=0)
    assert "look at http://127.0.0.1:" in told


def test_a_window_without_a_screen_is_refused(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    with pytest.raises(InputError, match="no screen"):
        watched(f"gate={clip}", show=True)


@pytest.mark.parametrize(
    ("p", "mask_mass", "words"),
    [
        (None, 1.0, "none, none"),
        (0.84, 1.0, "none, none  84%"),
        (0.48, 1.0, "none, none  48%?"),
        (0.99, 0.1, "none, none  99%?"),
    ],
)
def test_an_answer_tells_how_sure_it_is(p: float | None, mask_mass: float, words: str) -> None:
    own = None if p is None else {"hazard": Confidence(p=p, choices={"none": p}, mask_mass=mask_mass)}
    record = FrameRecord(
        source="gate",
        frame=3,
        time_s=0.3,
        size_wh=(4, 4),
        detections=(),
        fields={"notes": "All is calm.", "hazard": "none", "severity": "none"},
        vlm=VlmState(status="ok", frame=3, age_s=0.0, attempts=1),
        confidence=own,
        at="2026-12-01T08:00:00Z",
    )
    assert list(_lines(record, FieldSchema.load("hazard"))) == [f"2026-12-01T08:00:00Z  gate, frame 3: {words}"]
