"""The heart of an attached plugin: it asks, joins and hands out records, and knows nothing of Ultralytics."""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from hazardlens.callback.counts import Counts
from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.merge.join import frame_record
from hazardlens.merge.lane import Lane
from hazardlens.merge.source import SourceMerge
from hazardlens.pipeline import Pipeline
from hazardlens.record import FrameRecord, VlmState
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, Question, Vlm

_log = logging.getLogger(__name__)

KEPT_RECORDS = 1000
"""Finished records kept for somebody to take; the oldest are dropped beyond that."""

_LANE_DEPTH = 4
"""Questions about still pictures under way at most; a video or a camera has one by itself."""


class Source:
    """One source that frames come from.

    Args:
        merge: Its part of the merge.
        is_still: Whether it is a still picture.

    Attributes:
        merge: Its part of the merge.
        is_still: Whether it is a still picture.
        turn: Held while it is used.
        under_way: The question that waits for its answer, or None.
    """

    def __init__(self, merge: SourceMerge, *, is_still: bool) -> None:
        self.merge = merge
        self.is_still = is_still
        self.turn = threading.RLock()
        self.under_way: Question | None = None


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class _Asked:
    """A question that is under way, and the record that will come of it."""

    source: Source
    question: Question
    late: bool
    finished: Future[FrameRecord] = field(default_factory=Future)


class Core:
    """Asks about frames and makes their records; used by the thread of the model and by that of the VLM.

    Args:
        pipeline: When to ask, rules, limits.
        schema: The field schema.
        vlm: The VLM, or None for records without fields.
        demo: Whether demo models take part.
        on_record: Gets each finished record of a frame that was asked about, or None.
    """

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        schema: FieldSchema,
        vlm: Vlm | None,
        demo: bool,
        on_record: Callable[[FrameRecord], object] | None,
    ) -> None:
        self.schema = schema
        self.demo = demo
        self._pipeline = pipeline
        self._vlm = vlm
        self._on_record = on_record
        self._lane = Lane(vlm, depth=2**16) if vlm is not None else None
        self._changed = threading.Condition()
        self._counts = Counts()
        self._under_way: set[_Asked] = set()
        self._finished: deque[FrameRecord] = deque()
        self._retired = False

    @property
    def counts(self) -> Counts:
        """A copy of the counts so far."""
        with self._changed:
            return replace(self._counts, answers=self._counts.answers.copy())

    @property
    def retired(self) -> bool:
        """Whether nothing more is asked."""
        return self._retired

    def source(self, *, is_still: bool) -> Source:
        """A source that nothing is known of yet."""
        return Source(SourceMerge(self._pipeline, self.schema, self._vlm), is_still=is_still)

    def look(
        self, source: Source, frame: Frame, detections: Detections, *, wait: bool, lost: str | None = None
    ) -> tuple[FrameRecord, Detections]:
        """Take in a frame and make its record as far as it is known now.

        Args:
            source: Its source.
            frame: The frame; where it is asked about and nobody waits, its pixels are copied.
            detections: What is on it.
            wait: Whether to wait for the answer about this frame; else that of an earlier one is carried on.
            lost: Why the frame shows nothing of its source, or None.

        Returns:
            The record, and the detections in its order.
        """
        with self._changed:
            self._counts.frames += 1
            self._counts.source_lost += lost is not None
        with source.turn:
            if lost is not None:
                return source.merge.lost(frame, detections, lost), detections
            detections, question = source.merge.question(frame, detections, may_ask=wait or self._may_ask(source))
            if question is None or self._lane is None:
                return self._passed(source, frame, detections), detections
            # Before it is asked, for the answer may be there at once, and is that of a frame that has passed.
            meanwhile = None if wait else source.merge.record_meanwhile(frame, detections, question)
        asked = self._ask(self._lane, source, question, wait=wait)
        if meanwhile is None or asked.finished.done():
            return asked.finished.result(), detections
        return meanwhile, detections

    def lose(self, record: FrameRecord) -> None:
        """Hand out a record that says that frames were lost, of which no result tells."""
        with self._changed:
            self._counts.source_lost += 1
        _log.warning("%s: source_lost: %s", record.source, record.vlm.reason)
        self._keep(record)
        self._tell(record)

    def failed(self, error: BaseException, where: str) -> None:
        """Count an error that must not reach the user's loop, and log the first."""
        with self._changed:
            self._counts.failures += 1
            first = self._counts.failures == 1
        level = logging.WARNING if first else logging.DEBUG
        _log.log(level, "%s: %s: %s; the model goes on", where, type(error).__name__, error, exc_info=not first)

    def take_records(self) -> list[FrameRecord]:
        """The finished records since the last call, oldest first."""
        with self._changed:
            records = list(self._finished)
            self._finished.clear()
        return records

    def retire(self) -> None:
        """Ask nothing more; answers under way are still handed out, then the thread ends. Nobody waits."""
        with self._changed:
            self._retired = True
        self._end_if_idle()

    def close(self, wait_s: float) -> None:
        """Retire, and wait for the answers under way, for `wait_s` at most; what comes later is an error."""
        self.retire()
        if self._lane is None or self._lane.is_own_thread:
            return
        with self._changed:
            self._changed.wait_for(lambda: not self._under_way, timeout=wait_s)
        self._lane.close()

    def _may_ask(self, source: Source) -> bool:
        full = source.is_still and len(self._under_way) >= _LANE_DEPTH
        return not (self._retired or full or source.under_way is not None)

    def _passed(self, source: Source, frame: Frame, detections: Detections) -> FrameRecord:
        if source.under_way is not None:
            return source.merge.record_meanwhile(frame, detections, source.under_way)
        return source.merge.record(frame, detections)

    def _ask(self, lane: Lane, source: Source, question: Question, *, wait: bool) -> _Asked:
        if not wait:
            frame = replace(question.frame, image=question.frame.image.copy())
            question = replace(question, frame=frame)
        asked = _Asked(source=source, question=question, late=not wait)
        with self._changed:
            self._under_way.add(asked)
            self._counts.asked += 1
        source.under_way = question
        lane.ask(question).add_done_callback(functools.partial(self._settle, asked))
        return asked

    def _settle(self, asked: _Asked, future: Future[Answer]) -> None:
        """Make the record of an answered frame and hand it out; runs in the lane's thread, or where it is closed."""
        answer = _failure("the plugin was closed before the answer came") if future.cancelled() else future.result()
        with asked.source.turn:
            asked.source.under_way = None
            record = self._finish(asked, answer)
        with self._changed:
            self._counts.answers[record.vlm.status] += 1
        self._keep(record)
        asked.finished.set_result(record)
        self._tell(record)
        with self._changed:
            self._under_way.discard(asked)
            self._changed.notify_all()
        self._end_if_idle()

    def _finish(self, asked: _Asked, answer: Answer) -> FrameRecord:
        question, frame = asked.question, asked.question.frame
        try:
            return asked.source.merge.record(frame, question.detections, question, answer, late=asked.late)
        except Exception as error:  # noqa: BLE001 - becomes a status, a log line and a count
            self.failed(error, f"answer about frame {frame.index} of {frame.source}")
            state = VlmState(status="error", reason=f"{type(error).__name__}: {error}", trigger=question.trigger)
            return frame_record(frame, question.detections, state, asked=question.asked)

    def _keep(self, record: FrameRecord) -> None:
        """Keep a finished record for `take_records`, unless a callable gets it."""
        if self._on_record is not None:
            return
        with self._changed:
            if len(self._finished) >= KEPT_RECORDS:
                self._finished.popleft()
                self._counts.unread += 1
            self._finished.append(record)

    def _tell(self, record: FrameRecord) -> None:
        if self._on_record is None:
            return
        try:
            self._on_record(record)
        except BaseException as error:  # noqa: BLE001 - or the lane would stand still
            self.failed(error, "the callable that gets the records")

    def _end_if_idle(self) -> None:
        with self._changed:
            idle = self._retired and not self._under_way
        if idle and self._lane is not None:
            self._lane.end()


def _failure(reason: str) -> Answer:
    return Answer(status="error", reason=reason, fields=None, reply=None, latency_s=0.0, attempts=0, shown=None)
