"""Several videos, one after the other, as the command line processes them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from hazardlens.console import RunProgress, print_error, print_run, quiet_libraries
from hazardlens.errors import HazardlensError, InputError
from hazardlens.frames.file import VideoFile
from hazardlens.outputs.folder import IfExists, VideoFolder, folders, to_do
from hazardlens.outputs.summary import Summary
from hazardlens.parts import Parts, load, settle
from hazardlens.video import VideoRun

_log = logging.getLogger(__name__)

EXIT_OK, EXIT_FAILED, EXIT_INPUT, EXIT_PARTLY, EXIT_INTERRUPTED = 0, 1, 2, 3, 130


Tell = Callable[[Console, Summary, VideoFolder], None]
"""Prints what is to be said of a finished video."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What to process and how.

    Attributes:
        videos: Videos or pictures.
        out: Folder that gets a folder per video.
        if_exists: What to do with results that are there.
        trace: Folder for what the VLM was shown and said, or None.
        parts: Arguments of `settle`.
        quiet: Whether only errors are printed.
        as_json: Whether each video's summary is printed as a line of JSON.
        again: What to do after an interruption.
    """

    videos: Sequence[Path]
    out: Path
    if_exists: IfExists
    trace: Path | None
    parts: dict[str, Any]
    quiet: bool
    as_json: bool
    again: str = "--resume goes on"


def run_jobs(job: Job, *, out: Console, err: Console, tell: Tell = print_run) -> int:
    """Process all videos; one that fails does not keep the others from being processed.

    Args:
        job: What to process and how.
        out: Gets what is said of finished videos.
        err: Gets progress and errors.
        tell: Says it, unless the job is quiet or prints JSON.

    Returns:
        The exit code: the first of interrupted, failed, bad input, partly, done that applies.
    """
    quiet_libraries()
    settled = settle(**job.parts)
    planned = folders(job.out, _readable(job.videos, codes := [EXIT_OK], err))
    todo = [folder for folder in planned if _is_to_do(folder, job, settled.setup(), codes, err)]
    try:
        if todo:
            parts = load(settled)
            codes += [_run(job, parts, folder, out=out, err=err, tell=tell) for folder in todo]
    except KeyboardInterrupt:
        err.print(f"interrupted; what was written is whole, {job.again}", markup=False)
        return EXIT_INTERRUPTED
    return next((code for code in (EXIT_FAILED, EXIT_INPUT, EXIT_PARTLY) if code in codes), EXIT_OK)


def _readable(videos: Sequence[Path], codes: list[int], err: Console) -> list[Path]:
    """The videos that can be opened; the others are named, and their exit code is added to `codes`."""
    readable = []
    for video in videos:
        try:
            VideoFile(video).close()
        except InputError as error:
            print_error(err, error)
            codes.append(error.exit_code)
        else:
            readable.append(video)
    return readable


def _is_to_do(folder: VideoFolder, job: Job, setup: dict[str, Any], codes: list[int], err: Console) -> bool:
    """Whether a video is to be processed; results that are in the way are named and their exit code is added."""
    try:
        if to_do([folder], job.if_exists, setup):
            return True
    except InputError as error:
        print_error(err, error)
        codes.append(error.exit_code)
    else:
        if not job.quiet:
            err.print(f"{folder.video}: finished before, skipped", markup=False, highlight=False)
    return False


def _run(job: Job, parts: Parts, folder: VideoFolder, *, out: Console, err: Console, tell: Tell) -> int:
    try:
        with (
            VideoRun(parts, folder.video, folder=folder, trace=job.trace) as run,
            RunProgress(err, run, hidden=job.quiet) as progress,
        ):
            for record in run:
                progress.advance(record)
    except HazardlensError as error:
        print_error(err, error)
        return error.exit_code
    except Exception:  # noqa: BLE001 - one video that fails must not keep the others from being processed
        _log.exception("%s: failed in a way that nobody has foreseen; please report it", folder.video)
        return EXIT_FAILED
    if job.as_json:
        line = {**run.summary.to_dict(complete=True), "folder": str(folder.path)}
        out.file.write(json.dumps(line) + "\n")  # plain, since rich would colour and wrap it
    elif not job.quiet:
        tell(out, run.summary, folder)
    return _verdict(run.summary)


def _verdict(summary: Summary) -> int:
    ended_early = summary.account is not None and summary.account.ended_early
    unanswered = summary.questions > 0 and summary.answered == 0
    return EXIT_PARTLY if ended_early or unanswered else EXIT_OK
