"""What docs/ultralytics.md shows, run as it stands, and what it says, held against the code."""

import inspect
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import hazardlens.interchange
from hazardlens.testing.video import draw_video
from tests.callback.sights import vlm

PAGE = (Path(__file__).parents[2] / "docs" / "ultralytics.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def place(tmp_path: Path, sighted: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the page names, where the pipeline's VLM is a fake."""
    shutil.copy(sighted("detect"), tmp_path / "yolo26n.pt")
    draw_video(tmp_path / "site.mp4", frames=25, rate=10, size_wh=(96, 64))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ultralytics.cfg.TESTS_RUNNING", False)  # or it saves beside the installed package
    monkeypatch.setattr("ultralytics.cfg.SETTINGS", {"runs_dir": str(tmp_path / "runs")})
    monkeypatch.setattr("hazardlens.parts._vlm", lambda settings: vlm())
    return tmp_path


@pytest.mark.full
def test_every_example_runs_one_after_the_other(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    said = []
    for example in EXAMPLES:
        exec(example, names)  # noqa: S102 - the page's own code
        said.append(capsys.readouterr().out)
    first, rows, later, called, tables = said
    assert first.count("'hazard': 'spill'") == 25
    assert "carried" in first
    assert set(rows.split()) <= {"low", "medium", "high", "critical", "unknown"}
    assert "frames=25" in later
    assert "0 ok" in later
    assert '"frame": 0' in called
    assert "'severity'" in tables
    assert "['images', 'annotations', 'categories']" in tables
    assert (next((place / "runs").rglob("site.avi"))).stat().st_size > 0


def test_the_page_names_what_there_is() -> None:
    told = set(re.findall(r"`(?:result\.)?(\w+)(?:\(\))?`", "".join(re.findall(r"^\| `.*$", PAGE, re.MULTILINE))))
    assert {"fields", "record", "detection_fields", "summary", "to_df", "to_csv", "to_json", "verbose", "plot"} <= told
    assert all(hasattr(hazardlens.FieldResults, name) for name in ("fields", "record", "detection_fields"))
    named = set(re.findall(r"`(\w+)=", PAGE))
    taken = set(inspect.signature(hazardlens.attach).parameters)
    ultralytics = {"stream", "save", "show", "persist"}
    assert {"to_pandas", "to_supervision"} <= set(re.findall(r"`(to_\w+)`", PAGE)) & set(dir(hazardlens.interchange))
    assert named <= taken | ultralytics
    assert all(hasattr(hazardlens.Plugin, name) for name in re.findall(r"`plugin\.(\w+)", PAGE))


def test_the_seconds_that_close_waits_are_those_of_the_page() -> None:
    (seconds,) = re.findall(r"(\d+) s at most", PAGE)
    assert inspect.signature(hazardlens.Plugin.close).parameters["wait_s"].default == float(seconds)


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / target).exists(), target
