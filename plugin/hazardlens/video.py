"""A video file in, one record per frame out."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from hazardlens.detect.base import Detector
from hazardlens.errors import OutputExistsError
from hazardlens.frames.file import VideoFile
from hazardlens.merge.stream import FrameStream
from hazardlens.outputs.alerts import OnAlert
from hazardlens.outputs.folder import IfExists, VideoFolder, folders, to_do
from hazardlens.outputs.results import Results
from hazardlens.outputs.summary import Summary
from hazardlens.parts import Parts, PipelineSource, SchemaSource, load, settle
from hazardlens.record import FrameRecord
from hazardlens.vlm.base import Vlm

_ENDED_EARLY = "ended before the video did"


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
    on_alert: OnAlert | None = None,
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
        trace: Folder that gets a folder for what the VLM was shown and said about the video; None writes none.
        on_alert: Called with each alert of the pipeline's `alerts` as it begins and as it ends.

    Raises:
        InputError: If video, pipeline or schema is at fault, or results are in the way.
        WeightsError: If detector or VLM cannot be loaded.
    """
    VideoFile(video).close()
    settled = settle(pipeline, detector=detector, vlm=vlm, schema=schema, every=every, overrides=overrides)
    (folder,) = folders(Path(out), [Path(video)]) if out is not None else (None,)
    if folder is not None and not to_do([folder], if_exists, settled.setup()):
        raise OutputExistsError(f"{folder.path} holds the finished results", help="There is nothing left to resume.")
    traces = Path(trace) if trace is not None else None
    return VideoRun(load(settled), video, folder=folder, trace=traces, on_alert=on_alert)


class VideoRun(Iterator[FrameRecord]):
    """One video being processed: iterate it for the records, in order.

    It ends by itself when the video does. It ends early by `close`, by leaving a `with` block, when nobody holds it any
    more, or when the program ends: threads and files are released and what was written is whole.

    Args:
        parts: What processes the frames.
        video: The video, or a picture.
        folder: Where results go, or None.
        trace: Folder that gets a folder of traces, or None.
        on_alert: Told of each alert, or None.

    Raises:
        VideoError: If it is no readable video.
        OutputError: If results cannot be written.
    """

    def __init__(
        self,
        parts: Parts,
        video: str | Path,
        *,
        folder: VideoFolder | None = None,
        trace: Path | None = None,
        on_alert: OnAlert | None = None,
    ) -> None:
        reader = VideoFile(video)
        with ExitStack() as undo:
            undo.callback(reader.close)
            results = Results(
                parts.schema,
                parts.setup,
                reader,
                pipeline=parts.pipeline,
                folder=folder,
                trace=trace,
                demo=bool(parts.demo_models),
                on_alert=on_alert,
            )
            undo.callback(results.close, reader.account(), complete=False, reason="could not be started")
            stream = FrameStream(
                pipeline=parts.pipeline,
                schema=parts.schema,
                detector=parts.detector,
                vlm=parts.vlm,
                stages=results.summary.stages,
                keep_pixels=results.needs_pixels,
                follow=not reader.is_still,
            )
            undo.pop_all()
        self._work = _Work(reader=reader, stream=stream, results=results)
        self._outcomes = stream.outcomes(reader)
        self._turn = threading.RLock()
        self._closing = False
        self._open = weakref.finalize(self, _end_abandoned, self._work)

    @property
    def summary(self) -> Summary:
        """Counts so far."""
        return self._work.results.summary

    @property
    def frames_expected(self) -> int | None:
        """Frames that the video's header promises, or None."""
        return self._work.reader.account().expected

    @property
    def questions_waiting(self) -> int:
        """Questions waiting or being answered now."""
        return self._work.stream.questions_waiting

    def __next__(self) -> FrameRecord:
        with self._turn:
            if self._closing or not self._open.alive:
                raise StopIteration
            try:
                outcome = next(self._outcomes)
                self._work.results.write(outcome)
            except StopIteration:
                self._finish(complete=True)
                raise
            except CancelledError:
                self._finish(complete=False, reason=_ENDED_EARLY)
                raise StopIteration from None
            except BaseException as error:
                self._finish(complete=False, reason=_reason(error))
                raise
            return outcome.record

    def close(self) -> None:
        """End early, if it has not ended; may be called twice, and from another thread."""
        self._end(_ENDED_EARLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(_ENDED_EARLY if error is None else _reason(error))

    def _end(self, reason: str) -> None:
        """End early; where another thread is in the midst of a frame, wait for it, but not for an answer."""
        self._closing = True
        self._work.stream.stop()
        with self._turn:
            self._finish(complete=False, reason=reason)

    def _finish(self, *, complete: bool, reason: str | None = None) -> None:
        if self._open.detach():
            self._work.finish(complete=complete, reason=reason)


def _reason(error: BaseException) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}".rstrip(": ")


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Work:
    """What a run holds open, apart from the run itself, so that it can be ended when the run is gone."""

    reader: VideoFile
    stream: FrameStream
    results: Results

    def finish(self, *, complete: bool, reason: str | None = None) -> None:
        """Release threads and files; call it once. The results come first, for a VLM may take time to stop."""
        self.stream.stop()
        self.results.end_alerts(self.stream.end_alerts("the video ended" if complete else "the run was stopped"))
        try:
            self.results.close(self.reader.account(), complete=complete, reason=reason)
        finally:
            try:
                self.reader.close()
            finally:
                self.stream.close()


def _end_abandoned(work: _Work) -> None:
    """End a run that nobody holds any more.

    The garbage collector may find that out in any thread, the run's own among them, which cannot wait for themselves.
    """
    if threading.current_thread() is threading.main_thread():
        work.finish(complete=False, reason=_ENDED_EARLY)
    else:
        end = functools.partial(work.finish, complete=False, reason=_ENDED_EARLY)
        threading.Thread(target=end, name="hazardlens-end").start()
