"""`hazardlens demo`: the demo's pipeline over a drawn clip, and a table of what was reported beside what is true."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from hazardlens.console import counts, print_lines, where
from hazardlens.demo.clips import Clip, clip_of, drawn_clip, shipped_clip
from hazardlens.demo.comparison import Comparison, EventRow, compare
from hazardlens.errors import InputError, OutputExistsError
from hazardlens.jobs import Job, run_jobs
from hazardlens.outputs.folder import RECORDS, VideoFolder, folders, read_summary
from hazardlens.outputs.summary import Summary
from hazardlens.pipeline import Pipeline
from hazardlens.resources import shipped_model

_PIPELINE = "demo"


def show_demo(out: Path, *, seed: int | None, console: Console, err: Console) -> int:
    """Process a drawn clip with the models shipped, and print what was reported beside what is true.

    Args:
        out: Folder that gets the results; those of the demo itself are replaced there.
        seed: Which clip to draw, or None for the one that is shipped.
        console: Gets what is told.
        err: Gets progress and errors.

    Returns:
        The exit code, as of `run_jobs`.

    Raises:
        InputError: If a model is not in this copy, or other results are in the way.
        OutputError: If results cannot be written.
        WeightsError: If a model cannot be loaded.
    """
    _require_models()
    clip = shipped_clip() if seed is None else clip_of(out, seed)
    _require_own(*folders(out, [clip.video]))
    if seed is not None:
        _draw(out, seed, err)
    job = Job(
        videos=[clip.video],
        out=out,
        if_exists="overwrite",
        trace=None,
        parts={"pipeline": _PIPELINE},
        quiet=False,
        as_json=False,
        again="give the command again",
    )
    return run_jobs(job, out=console, err=err, tell=functools.partial(_tell, clip))


def _require_models() -> None:
    pipeline = Pipeline.load(_PIPELINE)
    for name in (pipeline.detector.weights, *([pipeline.vlm.model] if pipeline.vlm else [])):
        if shipped_model(name) is None:
            raise InputError(
                f"the demo's model '{name}' is not in this copy",
                help="Install hazardlens again, or train the model: assets/demo/README.md of a checkout says how.",
            )


def _draw(out: Path, seed: int, err: Console) -> None:
    with err.status(f"drawing the clip of seed {seed}"):
        clip = drawn_clip(out, seed)
    print_lines(err, [f"drew the clip of seed {seed}: {clip.video}"])


def _require_own(folder: VideoFolder) -> None:
    """See that no results are replaced but the demo's own of this clip."""
    told = read_summary(folder.path) or {}
    if folder.used and not (told.get("demo") and told.get("source") == folder.video.name):
        raise OutputExistsError(f"{folder.path} holds results that are not the demo's", help="Give another --out.")


def _tell(clip: Clip, console: Console, summary: Summary, folder: VideoFolder) -> None:
    lines = (folder.path / RECORDS).read_text(encoding="utf-8").splitlines()
    ranks = summary.schema.rank("severity", scope="frame") or ()
    comparison = compare(map(json.loads, lines), clip.truth(), severities=ranks)
    print_lines(console, counts(summary))
    console.print(_table(comparison), highlight=False)
    print_lines(console, [_calm(comparison), where(folder), _next()])


def _table(comparison: Comparison) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        title="what is true, and after which time it was reported as what",
        title_justify="left",
        pad_edge=False,
    )
    for column in ("time", "true hazard", "severity", "after", "sure", "as"):
        table.add_column(column, justify="right" if column in ("time", "after", "sure") else "left", no_wrap=True)
    for row in comparison.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: EventRow) -> tuple[str, ...]:
    true = f"{row.start_s:.1f}-{row.end_s:.1f} s", row.hazard, row.severity
    if row.after_s is None:
        return *true, "[red]missed[/red]", "", f"said {', '.join(row.instead)}" if row.instead else "not asked"
    grew = f" → {row.worst_severity}" if row.worst_severity != row.first_severity else ""
    sure = "" if row.sure is None else f"{row.sure.p:.0%}{'?' if row.sure.is_unsure else ''}"
    return *true, f"{row.after_s:.1f} s", sure, f"{row.first_severity}{grew}"


def _calm(comparison: Comparison) -> str:
    if not comparison.calm_asked:
        return "No frame without a hazard was asked about."
    share = comparison.calm_right / comparison.calm_asked
    alarms = ", ".join(f"{one.hazard} ({one.severity}) at {one.time_s:.1f} s" for one in comparison.false_alarms)
    return (
        f"Of {comparison.calm_asked} frames asked about in which there is no hazard, {comparison.calm_right} were "
        f"answered 'none' ({share:.0%}){f'; false alarms: {alarms}' if alarms else ''}."
    )


def _next() -> str:
    site = Pipeline.load("site")
    vlm = f" --vlm {site.vlm.model}" if site.vlm else ""
    command = f"hazardlens process VIDEO --detector {site.detector.weights}{vlm}"
    return f"These models know drawn scenes only. With your own video and real models (docs/models.md): {command}"
