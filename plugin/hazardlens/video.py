"""A video file in, one record per frame out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from hazardlens.detect.base import Detector
from hazardlens.errors import HazardlensError, OutputError
from hazardlens.frames.file import VideoFile
from hazardlens.merge.stream import FrameStream
from hazardlens.outputs.annotated import AnnotatedPicture, AnnotatedVideo
from hazardlens.outputs.base import Output
from hazardlens.outputs.folder import PICTURE, RECORDS, SUMMARY, VIDEO, IfExists, VideoFolder, folders, to_do
from hazardlens.outputs.records import RecordsFile
from hazardlens.outputs.summary import Summary, write_summary
from hazardlens.outputs.trace import Trace
from hazardlens.parts import Parts, PipelineSource, SchemaSource, assemble
from hazardlens.record import FrameRecord
from hazardlens.vlm.base import Vlm

_log = logging.getLogger(__name__)


def process(
    video: str | Path,
    *,
    pipeline: PipelineSource = "site",
    detector: str | Path | Detector | None = None,
    vlm: str | Path | Vlm | Literal["none"] | None = None,
    schema: SchemaSource | None = None,
    every: float | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    if_exists: IfExists = "refuse",
    trace: str | Path | None = None,
) -> VideoRun:
    """Process a video: detect on every frame, ask the VLM about chosen ones, merge.

    Everything that can be wrong with the input is raised here; what is returned yields one `FrameRecord` per frame.

    Args:
        video: The video, or a picture.
        pipeline: A shipped pipeline's name, a path, its content, or a `Pipeline`.
        detector: Weights or a `Detector`, in place of the pipeline's.
        vlm: Hub name, folder or a `Vlm`, in place of the pipeline's; `none` for detections only.
        schema: A field schema, in place of the pipeline's.
        every: Seconds of video time between questions (or `"1s"`, `"500ms"`), in place of the pipeline's.
        overrides: More settings to change, by dotted place, such as `{"vlm.device": "cpu"}`.
        out: Folder that gets a folder of results for the video; None writes nothing.
        if_exists: What to do with results that are there: `refuse`, `overwrite` or `resume`. To resume a finished
            video is an error, since it has no records left to yield.
        trace: Folder for what the VLM was shown and said; None writes none.

    Raises:
        InputError: If video, pipeline or schema is at fault, or results are in the way.
        WeightsError: If detector or VLM cannot be loaded.
    """
    folder = None
    if out is not None:
        (folder,) = folders(Path(out), [Path(video)])
        if not to_do([folder], if_exists):
            to_do([folder], "refuse")
    VideoFile(video).close()
    parts = assemble(pipeline, detector=detector, vlm=vlm, schema=schema, every=every, overrides=overrides)
    return VideoRun(parts, video, folder=folder, trace=Path(trace) if trace is not None else None)


class VideoRun(Iterator[FrameRecord]):
    """One video being processed: iterate it for the records, in order.

    It ends by itself when the video does. `close`, or leaving a `with` block, ends it early: threads and files are
    released and what was written is whole.

    Args:
        parts: What processes the frames.
        video: The video, or a picture.
        folder: Where results go, or None.
        trace: Where traces go, or None.

    Attributes:
        summary: Counts so far.

    Raises:
        VideoError: If it is no readable video.
        OutputError: If results cannot be written.
    """

    def __init__(
        self, parts: Parts, video: str | Path, *, folder: VideoFolder | None = None, trace: Path | None = None
    ) -> None:
        self._parts = parts
        self._reader = VideoFile(video)
        self._folder = folder
        self._outputs: list[Output] = []
        self._closed = False
        self.summary = Summary(source=self._reader.name, schema=parts.schema, setup=parts.setup())
        try:
            self._open_outputs(trace)
            self._stream = FrameStream(
                pipeline=parts.pipeline,
                schema=parts.schema,
                detector=parts.detector,
                vlm=parts.vlm,
                stages=self.summary.stages,
                keep_pixels=any(output.needs_pixels for output in self._outputs),
                follow=not self._reader.is_still,
            )
        except HazardlensError:
            self._reader.close()
            self._close_outputs(complete=False)
            raise
        self._outcomes = self._stream.outcomes(self._reader)

    def _open_outputs(self, trace: Path | None) -> None:
        if self._folder is not None:
            self._folder.clear()
            self._outputs.append(RecordsFile(self._folder.path / RECORDS))
            if self._parts.pipeline.video:
                self._outputs.append(self._annotated(self._folder.path))
        if trace is not None:
            self._outputs.append(Trace(trace))

    def _annotated(self, folder: Path) -> Output:
        schema = self._parts.schema
        if self._reader.is_still:
            return AnnotatedPicture(folder / PICTURE, source=self._reader, schema=schema)
        return AnnotatedVideo(folder / VIDEO, source=self._reader, schema=schema, crf=self._parts.pipeline.video_crf)

    @property
    def frames_expected(self) -> int | None:
        """Frames that the video's header promises, or None."""
        return self._reader.account().expected

    @property
    def questions_waiting(self) -> int:
        """Questions waiting or being answered now."""
        return self._stream.questions_waiting

    def __next__(self) -> FrameRecord:
        if self._closed:
            raise StopIteration
        try:
            outcome = next(self._outcomes)
            with self.summary.stages.stage("write"):
                for output in self._outputs:
                    output.write(outcome)
        except StopIteration:
            self._finish(complete=True)
            raise
        except BaseException as error:
            self._finish(complete=False, reason=f"{type(error).__name__}: {error}".rstrip(": "))
            raise
        self.summary.add(outcome)
        return outcome.record

    def close(self) -> None:
        """End early, if it has not ended; may be called twice."""
        self._finish(complete=False, reason="ended before the video did")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _finish(self, *, complete: bool, reason: str | None = None) -> None:
        if self._closed:
            return
        self._closed = True
        self._stream.close()
        self._reader.close()
        self._parts.detector.forget(self._reader.name)
        self.summary.account = self._reader.account()
        try:
            self._close_outputs(complete=complete)
        except OutputError as error:
            self._write_summary(complete=False, reason=str(error))
            raise
        self._write_summary(complete=complete, reason=reason)

    def _close_outputs(self, *, complete: bool) -> None:
        """Close all of them; the first error is raised once the others are closed."""
        failures: list[OutputError] = []
        for output in self._outputs:
            try:
                output.close(complete=complete)
            except OutputError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _write_summary(self, *, complete: bool, reason: str | None) -> None:
        if self._folder is None:
            return
        try:
            write_summary(self._folder.path / SUMMARY, self.summary.to_dict(complete=complete, reason=reason))
        except OutputError as error:
            if complete:
                raise
            _log.warning("%s", error)
