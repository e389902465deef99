"""A live run: iterate it for the records of all sources, as they come."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from hazardlens.cameras.base import Camera
from hazardlens.cameras.buffer import Arrival, Arrivals
from hazardlens.cameras.clock import Clock, spelled
from hazardlens.cameras.reader import Reader
from hazardlens.merge.outcome import Outcome
from hazardlens.merge.source import SourceMerge
from hazardlens.monitor.lane import LiveLane
from hazardlens.monitor.outputs import Outputs
from hazardlens.monitor.source import LiveSource
from hazardlens.monitor.stages import Stages
from hazardlens.monitor.watchdog import Watchdog
from hazardlens.outputs.alerts import Alerts
from hazardlens.parts import Parts
from hazardlens.record import FrameRecord

_log = logging.getLogger(__name__)

_LOOKS_UP_S = 0.2
_VLM_STOPS_S = 1.0
_CAMERAS_STOP_S = 0.7


class LiveRun(Iterator[FrameRecord]):
    """Cameras being watched.

    The detector runs in the thread that iterates, on the frame whose source has waited longest; a consumer that takes
    its time makes frames fall out, not queues grow. It ends when all sources have ended, by `stop`, by `close`, or by
    leaving a `with` block; threads and files are then released and what was accepted is written.

    Args:
        parts: What processes the frames.
        cameras: The cameras.
        outputs: Get every outcome.
        clock: The clock.
        alerts: The one of the outputs that is told of alerts that end with the run, or None.
        on_status: Gets the status every ten seconds and at the end, in another thread, or None.

    Attributes:
        clock: The clock.
        lane: Asks the VLM, or None for detections only.
        sources: What is known of each source.
        outputs: Get every outcome.
        alerts: The one of them that hands on alerts, or None.
        stages: What the run is busy with.
        latencies_s: Clock times from a frame's coming to its record, of the newest thousand frames.
    """

    def __init__(
        self,
        parts: Parts,
        cameras: Sequence[Camera],
        *,
        outputs: Outputs,
        clock: Clock,
        alerts: Alerts | None = None,
        on_status: Callable[[dict[str, Any]], object] | None = None,
    ) -> None:
        settings = parts.pipeline.live
        self.clock = clock
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._turn = threading.RLock()
        self._closed = False
        self._ready: deque[FrameRecord] = deque()
        self.outputs = outputs
        self.alerts = alerts
        self.stages = Stages(clock, settings.stall_s)
        self.latencies_s: deque[float] = deque(maxlen=1000)
        self.lane = (
            LiveLane(parts.vlm, settings=settings, clock=clock, changed=self._changed)
            if parts.vlm is not None
            else None
        )
        self.sources = [self._source(camera, parts) for camera in cameras]
        self._in_turn = deque(self.sources)
        self._by_name = {source.name: source for source in self.sources}
        self._watchdog = Watchdog(self, settings=settings, clock=clock, on_status=on_status)
        for source in self.sources:
            source.reader.start()
        self._watchdog.start()

    def _source(self, camera: Camera, parts: Parts) -> LiveSource:
        settings = parts.pipeline.live
        every = settings.frames == "every"
        arrivals = Arrivals(self._changed, frames=settings.buffer if every else 1, waits=every and camera.is_paced)
        reader = Reader(camera, arrivals, settings=settings, clock=self.clock, stop=self._stop)
        merge = SourceMerge(parts.pipeline, parts.schema, parts.vlm)
        return LiveSource(reader, merge, parts.detector, self.lane)

    @property
    def questions_waiting(self) -> int:
        """Questions without a record of their answer."""
        return self.lane.under_way if self.lane is not None else 0

    def __next__(self) -> FrameRecord:
        with self._turn:
            try:
                while not self._ready:
                    if self._closed or self._stop.is_set() or not self._step():
                        self._finish(complete=not self._stop.is_set())
                        raise StopIteration
            except BaseException:
                self.stages.enter(None)
                raise
            self.stages.enter("the loop that takes the records")
            return self._ready.popleft()

    def stop(self) -> None:
        """Let the loop end soon; may be called from another thread and from a signal handler."""
        self._stop.set()

    def close(self) -> None:
        """End; may be called twice, and from another thread. Answers under way are not waited for."""
        self._stop.set()
        with self._turn:
            self._finish(complete=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _step(self) -> bool:
        """Do the next thing: an answer, else a frame or an event, else wait; False once nothing more will come."""
        self.stages.enter(None)
        if self.lane is not None:
            self.lane.expire()
            answered = self.lane.take_answer()
            if answered is not None:
                name, question, answer = answered
                with self.stages.stage("merge"):
                    outcome = self._by_name[name].answered(question, answer)
                self._hand_out(outcome)
                return True
        with self._changed:
            arrived = self._arrived()
            if arrived is None:
                if all(source.reader.has_ended for source in self.sources) and not self.questions_waiting:
                    return any(len(source.reader.arrivals) for source in self.sources)
                self._changed.wait(_LOOKS_UP_S)
                return True
            source, arrival = arrived
        with self.stages.stage("detect"):
            outcomes = source.look(arrival)
        for outcome in outcomes:
            self._hand_out(outcome)
        if arrival.picture is not None:
            self.latencies_s.append(self.clock.now() - arrival.read_s)
        return True

    def _arrived(self) -> tuple[LiveSource, Arrival] | None:
        """A source and the oldest that came from it, in fair turns, or None; the lock must be held."""
        for source in tuple(self._in_turn):
            arrival = source.reader.arrivals.take()
            if arrival is not None:
                self._in_turn.remove(source)
                self._in_turn.append(source)
                return source, arrival
        return None

    def _hand_out(self, outcome: Outcome) -> None:
        with self.stages.stage("write"):
            self.outputs.write(outcome)
        self._ready.append(outcome.record)

    def _finish(self, *, complete: bool) -> None:
        """Release threads and files and write what was accepted; within 3 s, whatever hangs."""
        if self._closed:
            return
        self._closed = True
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        for name, question, answer in self.lane.stop() if self.lane is not None else ():
            self.outputs.write(self._by_name[name].answered(question, answer))
        self._watchdog.stop()
        for source in self.sources:
            why = "the source ended" if source.has_ended else "the run was stopped"
            ended = source.end_alerts(why, spelled(self.clock.date()))
            if self.alerts is not None:
                self.alerts.tell(ended)
            source.forget()
        self._release()
        self._watchdog.tell(complete=complete)
        self.outputs.close(complete=complete)

    def _release(self) -> None:
        """Give threads a moment to end; one that hangs in a driver or a model is left to itself, for it is a daemon."""
        ends_s = self.clock.now() + _CAMERAS_STOP_S
        for source in self.sources:
            if not source.reader.join(ends_s - self.clock.now()):
                _log.warning("%s: its thread hangs in the driver and is left to itself", source.name)
        if self.lane is not None and not self.lane.join(_VLM_STOPS_S):
            _log.warning("%s does not stop; its last answer is not waited for", self.lane.vlm.name)
