"""All that a run over a video leaves behind."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hazardlens.errors import OutputError
from hazardlens.frames.base import FrameAccount
from hazardlens.frames.file import VideoFile
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.alerts import Alerts, OnAlert
from hazardlens.outputs.annotated import AnnotatedPicture, AnnotatedVideo
from hazardlens.outputs.base import Output
from hazardlens.outputs.folder import PICTURE, RECORDS, SUMMARY, VIDEO, VideoFolder, identity, marked_name
from hazardlens.outputs.records import RecordsFile
from hazardlens.outputs.summary import Summary, write_summary
from hazardlens.outputs.trace import Trace
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema

_log = logging.getLogger(__name__)


class Results:
    """Records, annotated video, traces and summary of one video.

    Args:
        schema: The schema of the fields.
        setup: What the run is made of, for the summary.
        source: The video.
        pipeline: Says whether an annotated video is written, and how.
        folder: Where records, video and summary go, or None.
        trace: Folder that gets a folder of traces, or None.
        demo: Whether demo models take part; summary and annotated video say so.
        on_alert: Told of each alert, or None.

    Attributes:
        summary: Counts so far.

    Raises:
        OutputError: If they cannot be written.
    """

    def __init__(
        self,
        schema: FieldSchema,
        setup: dict[str, Any],
        source: VideoFile,
        *,
        pipeline: Pipeline,
        folder: VideoFolder | None,
        trace: Path | None,
        demo: bool = False,
        on_alert: OnAlert | None = None,
    ) -> None:
        setup = {"video": identity(source.path), **setup}
        self.summary = Summary(source=source.name, schema=schema, setup=setup, demo=demo)
        self._summary_path = folder.path / SUMMARY if folder is not None else None
        self._outputs: list[Output] = []
        self._alerts: Alerts | None = None
        try:
            if folder is not None:
                folder.clear()
                self._write_summary(complete=False, reason="not finished: under way, or ended by force")
                self._outputs.append(RecordsFile(folder.path / RECORDS))
            if folder is not None and pipeline.video:
                self._outputs.append(_annotated(folder.path, source, schema, pipeline, demo))
            if on_alert is not None and not pipeline.alerts.rules:
                _log.warning("on_alert: the pipeline has no alerts.rules, so it is never called")
            if pipeline.alerts.rules:
                place = folder.path if folder is not None else None
                self._alerts = Alerts(pipeline, schema, folder=place, on_alert=on_alert, demo=demo)
                self._outputs.insert(1, self._alerts)  # before the video is drawn on the pictures
            if trace is not None:
                self._outputs.append(Trace(trace / marked_name(source.path)))
        except BaseException:
            self._close_outputs(complete=False)
            raise

    @property
    def needs_pixels(self) -> bool:
        """Whether any of them needs the pixels of every frame."""
        return any(output.needs_pixels for output in self._outputs)

    def write(self, outcome: Outcome) -> None:
        """Take the next finished frame.

        Raises:
            OutputError: If it cannot be written.
        """
        with self.summary.stages.stage("write"):
            for output in self._outputs:
                output.write(outcome)
        self.summary.add(outcome)

    def end_alerts(self, alerts: Iterable[Mapping[str, Any]]) -> None:
        """Take in alerts that end with the video."""
        if self._alerts is not None:
            self._alerts.tell(alerts)

    def close(self, account: FrameAccount, *, complete: bool, reason: str | None) -> None:
        """Finish all of them and write the summary.

        Args:
            account: What the reader saw.
            complete: Whether the video was processed to its end.
            reason: Why not, or None.

        Raises:
            OutputError: If one of them cannot be finished after the whole video; the others are. After a run that
                ended early it is logged, for something else is the matter.
        """
        self.summary.account = account
        failure = self._close_outputs(complete=complete)
        if failure is not None:
            reason = reason or str(failure)
        try:
            self._write_summary(complete=complete and failure is None, reason=reason)
        except OutputError as error:
            failure = failure or error
        if failure is None:
            return
        if complete:
            raise failure
        _log.warning("%s", failure)

    def _close_outputs(self, *, complete: bool) -> OutputError | None:
        """Close all of them and give the first error."""
        failure: OutputError | None = None
        for output in self._outputs:
            try:
                output.close(complete=complete)
            except OutputError as error:
                failure = failure or error
        return failure

    def _write_summary(self, *, complete: bool, reason: str | None) -> None:
        if self._summary_path is not None:
            write_summary(self._summary_path, self.summary.to_dict(complete=complete, reason=reason))


def _annotated(folder: Path, source: VideoFile, schema: FieldSchema, pipeline: Pipeline, demo: bool) -> Output:
    if source.is_still:
        return AnnotatedPicture(folder / PICTURE, source=source, schema=schema, pipeline=pipeline, demo=demo)
    return AnnotatedVideo(folder / VIDEO, source=source, schema=schema, pipeline=pipeline, demo=demo)
