"""`hazardlens live`: cameras, as the command line watches them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from hazardlens.cameras.sources import cameras
from hazardlens.console import quiet_libraries
from hazardlens.jobs import EXIT_FAILED, EXIT_OK
from hazardlens.monitor.run import LiveRun
from hazardlens.monitor.start import start
from hazardlens.outputs.base import Output
from hazardlens.outputs.board import Board
from hazardlens.outputs.draw import headline, sureness
from hazardlens.outputs.summary import hazard_field, verdict
from hazardlens.parts import Parts, load, settle
from hazardlens.record import FrameRecord
from hazardlens.schema import FieldSchema


@dataclass(frozen=True, kw_only=True, slots=True)
class Watch:
    """What to watch and how.

    Attributes:
        sources: Cameras, as a user names them.
        out: Folder for records and status, or None.
        parts: Arguments of `settle`.
        quiet: Whether only errors are printed.
        as_json: Whether each record is printed as a line of JSON.
        show: Whether a window shows what is seen.
        serve: Port of a page on loopback that shows it, or None for none.
    """

    sources: Sequence[str]
    out: Path | None
    parts: dict[str, Any]
    quiet: bool
    as_json: bool
    show: bool = False
    serve: int | None = None


def watch(job: Watch, *, out: Console, err: Console) -> int:
    """Watch until all sources have ended, or SIGTERM or Ctrl-C comes; both are a clean end.

    Args:
        job: What to watch and how.
        out: Gets records, or what happens in words.
        err: Gets warnings.

    Returns:
        The exit code: 0, or 1 where lines could not be written.
    """
    quiet_libraries()
    settled = settle(**job.parts)
    found = cameras(job.sources, settled.pipeline.live)
    parts = load(settled)
    running: list[LiveRun] = []
    shown = _shown(job, parts, running)
    with start(parts, found, out=job.out, more=shown) as run, _stopping(run):
        running.append(run)
        for output in shown:
            if (address := getattr(output, "address", None)) is not None:
                err.print(f"look at {address}", markup=False, highlight=False, soft_wrap=True)
        for record in run:
            if job.as_json:
                out.file.write(record.to_json() + "\n")
                out.file.flush()
            elif not job.quiet:
                for line in _lines(record, parts.schema):
                    out.print(line, markup=False, highlight=False, soft_wrap=True)
    return _account(job, run, err)


def _account(job: Watch, run: LiveRun, err: Console) -> int:
    """Say what was written, and what was not; the exit code."""
    missing = {name: file for name, file in run.outputs.files.items() if file["waiting"] or file["lost"]}
    for name, file in missing.items():
        count = file["waiting"] + file["lost"]
        why = f": {file['failure']}" if file["failure"] else ""
        err.print(f"{job.out}: {count} lines are missing in {name}{why}", markup=False, highlight=False, soft_wrap=True)
    if job.out is not None and not missing and not job.quiet:
        err.print(f"{job.out}: everything is written", markup=False, highlight=False, soft_wrap=True)
    return EXIT_FAILED if missing else EXIT_OK


def _shown(job: Watch, parts: Parts, running: Sequence[LiveRun]) -> list[Output]:
    """What shows the run, which will be the one in `running`."""
    if not job.show and job.serve is None:
        return []
    board = Board(parts.schema, parts.pipeline, demo=bool(parts.demo_models))
    outputs: list[Output] = [board]
    if job.serve is not None:
        from hazardlens.outputs.page import Page

        outputs.append(Page(board, job.serve, lambda: running[0].status if running else {"sources": {}, "vlm": None}))
    if job.show:
        from hazardlens.outputs.window import Window

        def stop() -> None:
            for run in running:
                run.stop()

        outputs.append(Window(board, stop))
    return outputs


@contextmanager
def _stopping(run: LiveRun) -> Iterator[None]:
    """The first SIGTERM or Ctrl-C lets the run end by itself; the next one is as rude as ever."""

    def stop(number: int, frame: FrameType | None) -> None:
        run.stop()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.default_int_handler)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _lines(record: FrameRecord, schema: FieldSchema) -> Iterator[str]:
    """What is worth a line: events, answers, failures and alerts; not each frame."""
    place = f"{record.at}  {record.source}"
    if record.event is not None:
        event = record.event
        wait = f", next try in {event.wait_s:.1f} s" if event.wait_s is not None else ""
        yield f"{place}: {event.state}{f': {event.reason}' if event.reason else ''}{wait}"
    elif record.vlm.attempts or record.vlm.status == "error":
        yield f"{place}, frame {record.frame}: {headline(record, _said(record, schema))}"
    for alert in record.alerts:
        track = "" if alert["track_id"] is None else f", {alert['class']} {alert['track_id']}"
        yield f"{place}, frame {alert['frame']}: ALERT {alert['rule']} {alert['state']}{track}: {alert['why']}"


def _said(record: FrameRecord, schema: FieldSchema) -> str:
    """The frame's verdict, and how sure the model was of its hazard where that is known."""
    said = verdict(schema, record.fields or {})
    hazard = hazard_field(said)
    sure = sureness(record, hazard) if hazard is not None else ""
    return ", ".join(map(str, said.values())) + (f"  {sure}" if sure else "")
