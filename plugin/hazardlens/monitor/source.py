"""One live source: its frames through the detector, its questions and their answers, its events, as outcomes."""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from hazardlens.cameras.buffer import Arrival
from hazardlens.cameras.reader import Reader
from hazardlens.detect.base import Detections, Detector
from hazardlens.frames.base import Frame
from hazardlens.merge.clock import RESTART_S
from hazardlens.merge.join import frame_record
from hazardlens.merge.outcome import Outcome
from hazardlens.merge.source import SourceMerge
from hazardlens.monitor.lane import LiveLane
from hazardlens.record import FrameRecord, VlmState
from hazardlens.vlm.base import Answer, Question

_log = logging.getLogger(__name__)
_GAPS = 5.0
"""A gap is this many times as long as the time between the two frames before it."""
_SUPERSEDED = "never asked: a newer question took its place"


class LiveSource:
    """What is known of one source. Used by one thread.

    Args:
        reader: Reads its camera.
        merge: Decides when to ask, and makes its records.
        detector: The detector, shared by all sources.
        lane: The lane, shared by all sources, or None for detections only.

    Attributes:
        name: Name in records.
        reader: Reads its camera.
        answers: Questions by the status of their answers.
        superseded: Questions that were never asked, for a newer one took their place.
        detected: Frames that went through the detector.
        has_ended: Whether its end was told.
        failed: Frames and answers on which decoding, the detector or the merge failed.
    """

    def __init__(self, reader: Reader, merge: SourceMerge, detector: Detector, lane: LiveLane | None) -> None:
        self.name = reader.camera.name
        self.reader = reader
        self.merge = merge
        self.answers: Counter[str] = Counter()
        self.superseded = 0
        self.detected = 0
        self.has_ended = False
        self.failed = 0
        self._detector = detector
        self._lane = lane
        self._token = object()
        self._size_wh = (0, 0)
        self._last_s: float | None = None
        self._gap_s = math.inf
        self._was_away = False
        self._first_id = self._last_id = 0
        self._asked_at: dict[int, str] = {}
        self._failing: set[str] = set()

    def event(self, arrival: Arrival) -> Outcome:
        """The outcome that tells of an event."""
        frame = self._blank(arrival)
        event = arrival.event
        self.has_ended = event is not None and event.state == "ended"
        self._was_away |= event is not None and event.state in ("offline", "reconnecting")
        state = VlmState(status="source_lost", reason=event.reason if event is not None else None)
        if event is not None and event.state == "online":
            state = VlmState(status="skipped", reason="no frame: the camera is online")
        record = frame_record(frame, Detections.empty(self._detector.class_names), state)
        return Outcome(record=replace(record, at=arrival.at, event=event), frame=frame)

    def look(self, arrival: Arrival) -> list[Outcome]:
        """Detect on a frame and put its question, if it has one, into the lane.

        Returns:
            The frame's outcome; before it that of a question whose place was taken, if any.
        """
        if arrival.picture is None:
            return [self.event(arrival)]
        try:
            image = arrival.picture.decode()
        except Exception as error:  # noqa: BLE001 - a picture that cannot be decoded is a status, not the end
            return [self._failed("decoding", self._blank(arrival), arrival, error)]
        frame = Frame(
            image=image,
            index=arrival.index,
            time_s=arrival.time_s,
            source=self.name,
            damaged=arrival.picture.damaged,
        )
        try:
            detections = self._detect(frame)
        except Exception as error:  # noqa: BLE001 - one frame that fails must not end a run of days
            return [self._failed("the detector", frame, arrival, error)]
        self._failing -= {"decoding", "the detector"}
        try:
            outcomes = self._ask(frame, detections, arrival.at)
        except Exception as error:  # noqa: BLE001 - nor must one that the merge trips over
            return [self._failed("the merge", frame, arrival, error, detections)]
        self._failing.discard("the merge")
        return outcomes

    def answered(self, question: Question, answer: Answer) -> Outcome:
        """The outcome of a frame that was asked about, once its answer is there."""
        self.answers[answer.status] += 1
        try:
            record = self.merge.record(question.frame, question.detections, question, answer, late=True)
        except Exception as error:  # noqa: BLE001 - one answer that the merge trips over must not end a run of days
            state = self._failure("the merge of an answer", question.frame.index, error, question.trigger)
            return self._outcome(question, frame_record(question.frame, question.detections, state), None)
        self._failing.discard("the merge of an answer")
        return self._outcome(question, record, answer)

    def end_alerts(self, why: str, at: str) -> list[dict[str, Any]]:
        """End the alerts that are under way."""
        try:
            return [{**alert, "at": at} for alert in self.merge.end_alerts(why)]
        except Exception as error:  # noqa: BLE001 - the other sources have their ends too
            self._failure("the end of alerts", self.reader.read, error)
            return []

    def forget(self) -> None:
        """Let go of the tracks."""
        self._detector.forget(self._token)

    def _ask(self, frame: Frame, detections: Detections, at: str) -> list[Outcome]:
        detections, question = self.merge.question(frame, detections)
        if question is None or self._lane is None:
            under_way = self._lane.oldest(self.name) if self._lane is not None else None
            if under_way is None:
                record = self.merge.record(frame, detections)
            else:
                record = self.merge.record_meanwhile(frame, detections, under_way)
            return [Outcome(record=_stamped(record, at), frame=frame)]
        record = self.merge.record_meanwhile(frame, detections, question)
        self._asked_at[frame.index] = at
        replaced = self._lane.offer(self.name, question)
        earlier = [self._supersede(replaced)] if replaced is not None else []
        return [*earlier, Outcome(record=_stamped(record, at), frame=frame)]

    def _supersede(self, question: Question) -> Outcome:
        self.superseded += 1
        self.merge.dropped(question)
        state = VlmState(status="skipped", reason=_SUPERSEDED, trigger=question.trigger)
        record = frame_record(question.frame, question.detections, state)
        return self._outcome(question, record, None)

    def _outcome(self, question: Question, record: FrameRecord, answer: Answer | None) -> Outcome:
        at = self._asked_at.pop(question.frame.index, None)
        return Outcome(
            record=_stamped(record, at), frame=question.frame, question=question, answer=answer, is_late=True
        )

    def _detect(self, frame: Frame) -> Detections:
        """Detect and follow; in another scene tracks begin anew, with ids that were not there before."""
        if self._is_another_scene(frame):
            self.forget()
            self._token = object()
            self._first_id = self._last_id
            self._size_wh = frame.size_wh
        (found,) = self._detector.detect([frame], stream=self._token)
        self.detected += 1
        return replace(found, track_id=self._renumbered(found.track_id))

    def _is_another_scene(self, frame: Frame) -> bool:
        """Whether what was followed has nothing to do with this frame: another size, or no answer still holds.

        A tracker counts frames and not time, so behind a gap it may give somebody new the id of whoever stood there. A
        camera that always takes its time between two frames has no gap.
        """
        gap_s = 0.0 if self._last_s is None else frame.time_s - self._last_s
        usual_s, was_away = self._gap_s, self._was_away
        self._last_s, self._gap_s, self._was_away = frame.time_s, gap_s or math.inf, False
        has_gap = gap_s > max(self.merge.max_age_s, RESTART_S) and (was_away or gap_s > _GAPS * usual_s)
        return has_gap or frame.size_wh != self._size_wh

    def _renumbered(self, ids: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Ids that go on rising where the tracker begins anew."""
        shifted = tuple(None if one is None else one + self._first_id for one in ids)
        self._last_id = max([self._last_id, *(one for one in shifted if one is not None)])
        return shifted

    def _failed(
        self, what: str, frame: Frame, arrival: Arrival, error: Exception, found: Detections | None = None
    ) -> Outcome:
        state = self._failure(what, frame.index, error)
        record = frame_record(frame, found or Detections.empty(self._detector.class_names), state)
        return Outcome(record=replace(record, at=arrival.at), frame=frame)

    def _failure(self, what: str, index: int, error: Exception, trigger: tuple[str, ...] = ()) -> VlmState:
        """Count a failure and log the first of several in a row; the state that says it."""
        level = logging.DEBUG if what in self._failing else logging.WARNING
        self._failing.add(what)
        self.failed += 1
        _log.log(level, "%s: %s failed on frame %d: %s: %s", self.name, what, index, type(error).__name__, error)
        return VlmState(status="error", reason=f"{type(error).__name__}: {error}", trigger=trigger)

    def _blank(self, arrival: Arrival) -> Frame:
        width, height = self._size_wh
        image = np.broadcast_to(np.uint8(0), (height, width, 3))
        damaged = arrival.picture is not None and arrival.picture.damaged
        return Frame(image=image, index=arrival.index, time_s=arrival.time_s, source=self.name, damaged=damaged)


def _stamped(record: FrameRecord, at: str | None) -> FrameRecord:
    """The record and its alerts with their date."""
    return replace(record, at=at, alerts=tuple({**alert, "at": at} for alert in record.alerts))
