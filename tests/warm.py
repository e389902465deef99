"""The command line in a process of its own, forked from one that has loaded the libraries: they take seconds."""

import multiprocessing
import os
import runpy
import subprocess
import sys
from pathlib import Path

_LIBRARIES = [
    "torch",
    "transformers",
    "ultralytics",
    "hazardlens.video",
    "hazardlens.detect.yolo",
    "hazardlens.vlm.local",
]
_PATIENCE_S = 200
_CHILD = "hazardlens-child"


def hazardlens(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run `hazardlens` with some arguments in a folder, as `subprocess.run` would."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LIBRARIES)
    words = [str(argument) for argument in arguments]
    outlets = [cwd.parent / f"{cwd.name}.{name}" for name in ("out", "err")]
    # Run from its path: where pytest is started by its own command, `tests` is no package that a child could import.
    child = context.Process(target=runpy.run_path, args=(__file__, {"JOB": (words, cwd, outlets)}, _CHILD))
    child.start()
    child.join(_PATIENCE_S)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise subprocess.TimeoutExpired(["hazardlens", *words], _PATIENCE_S)
    out, err = (outlet.read_text(encoding="utf-8") for outlet in outlets)
    return subprocess.CompletedProcess(["hazardlens", *words], child.exitcode, out, err)


def _main(words: list[str], cwd: Path, outlets: list[Path]) -> None:
    os.chdir(cwd)
    os.environ["COLUMNS"] = "120"
    for number, outlet in enumerate(outlets, start=1):
        os.dup2(os.open(outlet, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8") for number in (1, 2))
    sys.argv = ["hazardlens", *words]
    from hazardlens.cli import main

    main()


if __name__ == _CHILD:
    _main(*JOB)  # noqa: F821 - given by run_path
