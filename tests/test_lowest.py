"""The oldest Ultralytics that is allowed, run through what depends on it most."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LOWEST = re.findall(r'"ultralytics>=([\d.]+)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))[0]
TESTS = ["detect", *(f"callback/test_{name}.py" for name in ("attach", "live", "results", "ultralytics_facts"))]


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_oldest_ultralytics_that_is_allowed_will_do(tmp_path: Path) -> None:
    place = tmp_path / "lowest"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        place,
        f"ultralytics=={LOWEST}",
    ]
    subprocess.run(install, check=True, capture_output=True)
    shutil.rmtree(place / "tests", ignore_errors=True)  # it brings a package of this name, which would hide ours
    paths = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": paths, "YOLO_CONFIG_DIR": str(tmp_path)}
    version = [sys.executable, "-c", "import ultralytics; print(ultralytics.__version__)"]
    said = subprocess.run(version, env=environment, capture_output=True, text=True, check=True).stdout
    assert said.split()[-1] == LOWEST
    command = [sys.executable, "-m", "pytest", "-q", *(ROOT / "tests" / name for name in TESTS)]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-4000:]
    assert "passed" in run.stdout
