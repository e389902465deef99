"""The heart: frames in, finished frames out, in order, with the VLM off the detector's path and memory bounded."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hazardlens.detect.base import Detections, Detector
from hazardlens.frames.base import Frame
from hazardlens.merge.lane import Lane
from hazardlens.merge.outcome import Outcome, Stages
from hazardlens.merge.source import SourceMerge
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, Question, Vlm
from hazardlens.vlm.keeping import bytes_of

_WAITING_BYTES = 256 * 2**20
_WAITING_FRAMES = 2000


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Waiting:
    """A frame whose record waits for its turn, or for an answer."""

    frame: Frame
    detections: Detections
    question: Question | None
    answer: Future[Answer] | None
    bytes_held: int

    @property
    def ready(self) -> bool:
        return self.answer is None or self.answer.done()


class FrameStream:
    """Turns the frames of one source into outcomes.

    Every asked frame gets its own answer in its own record: where the lane is full, or too many frames wait behind one
    that was asked, or too many bytes of frames and answers, reading waits.

    Args:
        pipeline: When to ask, rules, limits.
        schema: The field schema.
        detector: The detector.
        vlm: The VLM, or None.
        stages: Gets the time spent per stage.
        keep_pixels: Whether outcomes must carry the pixels of every frame.
        follow: Whether objects are followed from frame to frame; on a still picture that makes no sense.
    """

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        schema: FieldSchema,
        detector: Detector,
        vlm: Vlm | None,
        stages: Stages,
        keep_pixels: bool,
        follow: bool = True,
    ) -> None:
        self._pipeline = pipeline
        self._detector = detector
        self._stages = stages
        self._keep_pixels = keep_pixels
        self._token = object() if follow else None
        self._failure: Exception | None = None
        self._merge = SourceMerge(pipeline, schema, vlm)
        self._lane = Lane(vlm) if vlm is not None else None
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._counting = threading.Lock()

    @property
    def questions_waiting(self) -> int:
        """Questions waiting or being answered now."""
        return self._lane.waiting if self._lane else 0

    def outcomes(self, frames: Iterable[Frame]) -> Iterator[Outcome]:
        """Yield one outcome per frame, in order.

        Whatever reading or detecting raises is raised once the frames before it have been yielded.
        """
        source = iter(frames)
        while batch := self._detected(source):
            for frame, detections in batch:
                with self._stages.stage("ask"):
                    self._enqueue(frame, detections)
                yield from self._ready()
        while self._waiting:
            yield self._next()
        if self._failure is not None:
            raise self._failure

    def _detected(self, frames: Iterator[Frame]) -> list[tuple[Frame, Detections]]:
        """The next batch; empty at the end, and where reading or detecting failed."""
        batch = self._read(frames)
        if not batch:
            return []
        try:
            with self._stages.stage("detect"):
                return list(zip(batch, self._detector.detect(batch, stream=self._token), strict=True))
        except Exception as error:  # noqa: BLE001 - raised once the frames before it have been yielded
            self._failure = error
            return []

    def _read(self, frames: Iterator[Frame]) -> list[Frame]:
        batch: list[Frame] = []
        if self._failure is None:
            try:
                with self._stages.stage("read"):
                    batch.extend(itertools.islice(frames, self._pipeline.detector.batch))
            except Exception as error:  # noqa: BLE001 - raised once the frames before it have been yielded
                self._failure = error
        return batch

    def end_alerts(self, why: str) -> tuple[dict[str, Any], ...]:
        """End the alerts that are under way, for no more frames come, and tell them."""
        return self._merge.end_alerts(why)

    def stop(self) -> None:
        """Ask nothing more and cancel what is under way: who waits for an answer gets a CancelledError instead."""
        if self._lane is not None:
            self._lane.stop()

    def close(self) -> None:
        """Drop what still waits, end the lane and forget the tracks."""
        self._waiting.clear()
        if self._token is not None:
            self._detector.forget(self._token)
        if self._lane is not None:
            self._lane.close()

    def _enqueue(self, frame: Frame, detections: Detections) -> None:
        question = future = None
        if self._lane is not None:
            detections, question = self._merge.question(frame, detections)
            future = self._lane.ask(question) if question is not None else None
        bytes_held = frame.image.nbytes if self._keep_pixels or question is not None else 0
        if not self._keep_pixels:
            frame = replace(frame, image=np.broadcast_to(np.uint8(0), frame.image.shape))
        self._waiting.append(
            _Waiting(frame=frame, detections=detections, question=question, answer=future, bytes_held=bytes_held)
        )
        self._hold(bytes_held)
        if future is not None:
            future.add_done_callback(self._hold_answer)

    def _hold(self, count: int) -> None:
        """Count bytes that wait, or that wait no more; also called by the threads of the lane."""
        with self._counting:
            self._waiting_bytes += count

    def _hold_answer(self, future: Future[Answer]) -> None:
        if not future.cancelled():
            self._hold(bytes_of(future.result()))

    def _ready(self) -> Iterator[Outcome]:
        """Yield what is finished; wait for the oldest where too much is held."""
        while self._waiting and (self._waiting[0].ready or self._holds_too_much):
            yield self._next()

    @property
    def _holds_too_much(self) -> bool:
        return self._waiting_bytes > _WAITING_BYTES or len(self._waiting) > _WAITING_FRAMES

    def _next(self) -> Outcome:
        first = self._waiting.popleft()
        self._hold(-first.bytes_held)
        with self._stages.stage("wait for the VLM"):
            answer = first.answer.result() if first.answer is not None else None
        if answer is not None:
            self._hold(-bytes_of(answer))
        with self._stages.stage("merge"):
            record = self._merge.record(first.frame, first.detections, first.question, answer)
        return Outcome(record=record, frame=first.frame, question=first.question, answer=answer)
