"""The heart: frames in, finished frames out, in order, with the VLM off the detector's path and memory bounded."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np

from hazardlens.detect.base import Detections, Detector
from hazardlens.errors import HazardlensError
from hazardlens.frames.base import Frame
from hazardlens.merge.join import Joiner
from hazardlens.merge.lane import Lane
from hazardlens.merge.outcome import Outcome, Stages
from hazardlens.merge.policy import AskPolicy
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, Question, Vlm

_WAITING_BYTES = 256 * 2**20
_WAITING_FRAMES = 2000


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Waiting:
    """A frame whose record waits for its turn, or for an answer."""

    frame: Frame
    detections: Detections
    question: Question | None
    answer: Future[Answer] | None

    @property
    def ready(self) -> bool:
        return self.answer is None or self.answer.done()

    @property
    def bytes_held(self) -> int:
        return int(
            np.prod([n for n, step in zip(self.frame.image.shape, self.frame.image.strides, strict=True) if step])
        )


class FrameStream:
    """Turns the frames of one source into outcomes.

    Every asked frame gets its own answer in its own record: where the lane is full, or too many frames wait behind one
    that was asked, reading waits.

    Args:
        pipeline: When to ask, rules, limits.
        schema: The field schema.
        detector: The detector.
        vlm: The VLM, or None.
        stages: Gets the time spent per stage.
        keep_pixels: Whether outcomes must carry the pixels of every frame.
        follow: Whether objects are followed from frame to frame.
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
        self._schema = schema
        self._detector = detector
        self._vlm = vlm
        self._stages = stages
        self._keep_pixels = keep_pixels
        self._follow = follow
        self._policy = AskPolicy(pipeline.ask, pipeline.zones)
        self._joiner = Joiner(schema=schema, rules=pipeline.rules, zones=pipeline.zones, max_age_s=pipeline.max_age_s)
        self._lane = Lane(vlm) if vlm is not None else None
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0

    @property
    def questions_waiting(self) -> int:
        """Questions waiting or being answered now."""
        return self._lane.waiting if self._lane else 0

    def outcomes(self, frames: Iterable[Frame]) -> Iterator[Outcome]:
        """Yield one outcome per frame, in order.

        Raises:
            HazardlensError: If reading or detecting fails; the frames before that are yielded first.
        """
        failure: HazardlensError | None = None
        try:
            yield from self._while_reading(iter(frames))
        except HazardlensError as error:
            failure = error
        while self._waiting:
            yield self._next()
        if failure is not None:
            raise failure

    def _while_reading(self, frames: Iterator[Frame]) -> Iterator[Outcome]:
        while batch := self._read(frames):
            with self._stages.stage("detect"):
                found = self._detector.detect(batch, follow=self._follow)
            for frame, detections in zip(batch, found, strict=True):
                with self._stages.stage("ask"):
                    self._enqueue(frame, detections)
                yield from self._ready()

    def _read(self, frames: Iterator[Frame]) -> list[Frame]:
        with self._stages.stage("read"):
            return list(itertools.islice(frames, self._pipeline.detector.batch))

    def close(self) -> None:
        """Drop what still waits and end the lane."""
        self._waiting.clear()
        if self._lane is not None:
            self._lane.close()

    def _enqueue(self, frame: Frame, detections: Detections) -> None:
        question = future = None
        if self._lane is not None:
            detections, question = self._question(frame, detections)
            future = self._lane.ask(question) if question is not None else None
        if not self._keep_pixels:
            frame = replace(frame, image=np.broadcast_to(np.uint8(0), frame.image.shape))
        waiting = _Waiting(frame=frame, detections=detections, question=question, answer=future)
        self._waiting.append(waiting)
        self._waiting_bytes += waiting.bytes_held

    def _question(self, frame: Frame, detections: Detections) -> tuple[Detections, Question | None]:
        trigger = self._policy.decide(frame, detections)
        if not trigger:
            return detections, None
        limit = self._pipeline.max_objects if self._schema.has_detections else 0
        detections, asked = self._policy.select(detections, limit)
        question = Question(
            frame=frame,
            detections=detections,
            asked=asked,
            fields=self._schema,
            schema=self._schema.ground(asked),
            context=self._pipeline.context,
            trigger=trigger,
        )
        return detections, question

    def _ready(self) -> Iterator[Outcome]:
        """Yield what is finished; wait for the oldest where too much is held."""
        while self._waiting and (self._waiting[0].ready or self._holds_too_much):
            yield self._next()

    @property
    def _holds_too_much(self) -> bool:
        return self._waiting_bytes > _WAITING_BYTES or len(self._waiting) > _WAITING_FRAMES

    def _next(self) -> Outcome:
        first = self._waiting.popleft()
        self._waiting_bytes -= first.bytes_held
        with self._stages.stage("wait for the VLM"):
            answer = first.answer.result() if first.answer is not None else None
        with self._stages.stage("merge"):
            record = self._joiner.join(
                first.frame,
                first.detections,
                asked=first.question.asked if first.question else 0,
                trigger=first.question.trigger if first.question else (),
                answer=answer,
                model=self._vlm.name if self._vlm else None,
                enforced=self._vlm.enforced if self._vlm else None,
            )
        return Outcome(record=record, frame=first.frame, question=first.question, answer=answer)
