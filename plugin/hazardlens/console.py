"""What a person sees in the terminal."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from hazardlens.errors import HazardlensError
from hazardlens.outputs.draw import headline
from hazardlens.outputs.folder import RESULTS, SUMMARY, VideoFolder
from hazardlens.outputs.summary import Stretch, Summary
from hazardlens.record import FrameRecord
from hazardlens.video import VideoRun

_TIMELINE_AT_MOST = 30
_FAILED = frozenset({"truncated", "invalid", "refused", "timeout", "error"})
"""Statuses that only a frame that was asked about has."""


def print_error(console: Console, error: HazardlensError) -> None:
    """Print an error and its advice."""
    console.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)


def quiet_libraries() -> None:
    """Keep the chatter of the libraries off standard output, which may carry JSON."""
    from transformers.utils import logging as transformers_logging

    from hazardlens.detect.ultralytics_setup import LOGGER

    LOGGER.setLevel(logging.WARNING)
    for handler in LOGGER.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()


class RunProgress:
    """A progress bar of one video: frames, frames a second, questions waiting, the last verdict.

    Args:
        console: Where to draw it.
        run: The video being processed.
        hidden: Whether nothing is drawn.
    """

    def __init__(self, console: Console, run: VideoRun, *, hidden: bool) -> None:
        self._run = run
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            console=console,
            disable=hidden,
            transient=True,
        )
        self._task = self._progress.add_task(run.summary.source, total=run.frames_expected, state="")
        self._last = ""

    def advance(self, record: FrameRecord) -> None:
        """Count one record."""
        task = self._progress.tasks[0]
        if record.fields is not None:
            self._last = ", ".join(map(str, self._run.summary.verdict(record.fields).values()))
        rate = f"{task.speed:.0f} frames/s" if task.speed else ""
        state = f"{rate}  {self._run.questions_waiting} waiting  {self._last or headline(record, '')}"
        self._progress.update(self._task, advance=1, state=state)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def print_run(console: Console, summary: Summary, folder: VideoFolder) -> None:
    """Print the account of a finished video: frames, questions, verdicts over time, where the results are."""
    lines = counts(summary)
    if summary.alerts:
        lines.append(f"  alerts: {_counts(summary.alerts)}")
    told = list(_timeline(summary))
    lines += [f"  {line}" for line in told[:_TIMELINE_AT_MOST]]
    if len(told) > _TIMELINE_AT_MOST:
        lines.append(f"  ... {len(told) - _TIMELINE_AT_MOST} more stretches in {SUMMARY}")
    if summary.demo:
        lines.append("  made with demo models, which know drawn scenes only: it says nothing of real footage")
    lines.append(f"  {where(folder)}")
    print_lines(console, lines)


def print_lines(console: Console, lines: Sequence[str]) -> None:
    """Print lines as they are: a name in brackets is no markup, and a path is not broken."""
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def counts(summary: Summary) -> list[str]:
    """Lines that tell what became of a video's frames and questions."""
    lines = [f"{summary.source}: {_frames(summary)}", f"  questions: {_questions(summary)}"]
    return lines + [f"    {count} x {reason}" for reason, count in summary.reasons.most_common(3)]


def where(folder: VideoFolder) -> str:
    """The folder of a video's results, and what lies in it."""
    return f"{folder.path}: {', '.join(name for name in RESULTS if (folder.path / name).exists())}"


def _frames(summary: Summary) -> str:
    account = summary.account
    if account is None:
        return f"{summary.records} records"
    promised = f" of {account.expected}" if account.expected is not None else ""
    parts = [f"{account.read}{promised} frames read, {summary.records} records"]
    if account.unreadable:
        parts.append(f"{account.unreadable} unreadable")
    if account.damaged:
        parts.append(f"{account.damaged} damaged")
    if account.ended_early:
        parts.append(f"ENDED EARLY: {account.reason}")
    return ", ".join(parts)


def _questions(summary: Summary) -> str:
    if not summary.questions:
        return "none asked"
    return f"{summary.questions} asked ({_counts(summary.questions_by_status)})"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())


def _timeline(summary: Summary) -> Iterator[str]:
    """A line for each stretch; neighbours about which nothing is known share one, with all their causes."""
    has_vlm = summary.setup.get("vlm", "") is not None
    for known, together in groupby(summary.timeline, key=lambda stretch: stretch.fields is not None):
        if known:
            yield from (_line(one, one, _said(one)) for one in together)
        else:
            unknown = list(together)
            yield _line(unknown[0], unknown[-1], _causes(unknown, has_vlm=has_vlm))


def _line(first: Stretch, last: Stretch, said: str) -> str:
    return f"{first.from_s:8.2f} s to {last.to_s:8.2f} s  {said}"


def _said(stretch: Stretch) -> str:
    return (", ".join(map(str, (stretch.fields or {}).values())) or "answered") + _sureness(stretch)


def _causes(unknown: Sequence[Stretch], *, has_vlm: bool) -> str:
    """Why nothing is known, in order; of questions that failed, each frame of which is one, how many where several."""
    frames: Counter[str] = Counter()
    for one in unknown:
        frames["no VLM" if one.status == "skipped" and not has_vlm else one.status] += one.frames
    if list(frames) == ["no VLM"]:
        return "no VLM"
    causes = [f"{count} x {name}" if name in _FAILED and count > 1 else name for name, count in frames.items()]
    return f"unknown ({', '.join(causes)})"


def _sureness(stretch: Stretch) -> str:
    """How sure the answers of a stretch were of their hazard; nothing where that is unknown."""
    if stretch.p_median is None or stretch.p_least is None:
        return ""
    median, least = f"{stretch.p_median:.0%}", f"{stretch.p_least:.0%}"
    more = [f"least {least}"] if least != median else []
    more += [f"{stretch.unsure} unsure"] if stretch.unsure else []
    return f"  {median}" + (f" ({', '.join(more)})" if more else "")
