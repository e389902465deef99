"""A live run: iterate it for the records of all sources, as they come."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from hazardlens.cameras.base import Camera
from hazardlens.cameras.buffer import Arrival, Arrivals
from hazardlens.cameras.clock import Clock
from hazardlens.cameras.reader import Reader
from hazardlens.merge.source import SourceMerge
from hazardlens.monitor.lane import LiveLane
from hazardlens.monitor.outputs import Outputs
from hazardlens.monitor.running import Running
from hazardlens.monitor.source import LiveSource
from hazardlens.monitor.stages import Stages
from hazardlens.monitor.status import status
from hazardlens.monitor.watchdog import Watchdog
from hazardlens.outputs.alerts import Alerts
from hazardlens.parts import Parts
from hazardlens.record import FrameRecord

_LOOKS_UP_S = 0.2


class LiveRun(Iterator[FrameRecord]):
    """Cameras being watched.

    The detector runs in the thread that iterates, on the frame whose source has waited longest; a consumer that takes
    its time makes frames fall out, not queues grow.

    It ends when all sources have ended, by `stop`, by `close`, by leaving a `with` block, when nobody holds it any
    more, or when the program ends; threads and files are then released and what was accepted is written. Behind `stop`
    the loop still gets the records of what was under way.

    Args:
        parts: What processes the frames.
        cameras: The cameras.
        outputs: Get every outcome.
        clock: The clock.
        alerts: The one of the outputs that is told of alerts that end with the run, or None.
        on_status: Gets the status at the start, then every ten seconds in another thread, and at the end; or None.

    Attributes:
        clock: The clock.
        lane: Asks the VLM, or None for detections only.
        sources: What is known of each source.
        outputs: Get every outcome.
        stages: What the run is busy with.
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
        self.lane = (
            LiveLane(parts.vlm, settings=settings, clock=clock, changed=self._changed, workers=parts.vlm.concurrency)
            if parts.vlm is not None
            else None
        )
        self.sources = [self._source(camera, parts) for camera in cameras]
        self.outputs, self.stages = outputs, Stages(clock, settings.stall_s)
        self._work = Running(
            clock=clock,
            changed=self._changed,
            stop=self._stop,
            stages=self.stages,
            lane=self.lane,
            sources=self.sources,
            outputs=outputs,
            alerts=alerts,
        )
        self._ready = self._work.ready
        self._in_turn = deque(self.sources)
        self._by_name = {source.name: source for source in self.sources}
        self._watchdog = Watchdog(self._work, settings=settings, on_status=on_status)
        for source in self.sources:
            source.reader.start()
        self._watchdog.start()
        self._open = weakref.finalize(self, _end_abandoned, self._work, self._watchdog)

    def _source(self, camera: Camera, parts: Parts) -> LiveSource:
        settings = parts.pipeline.live
        every = settings.frames == "every"
        arrivals = Arrivals(self._changed, frames=settings.buffer if every else 1, waits=every and camera.is_paced)
        reader = Reader(camera, arrivals, settings=settings, clock=self.clock, stop=self._stop)
        merge = SourceMerge(parts.pipeline, parts.schema, parts.vlm)
        return LiveSource(reader, merge, parts.detector, self.lane)

    @property
    def status(self) -> dict[str, Any]:
        """How the run stands, as plain JSON types."""
        return status(self._work)

    @property
    def questions_waiting(self) -> int:
        """Questions without a record of their answer."""
        return self.lane.under_way if self.lane is not None else 0

    def __next__(self) -> FrameRecord:
        with self._turn:
            try:
                while not self._ready:
                    if not self._open.alive:
                        raise StopIteration
                    if self._stop.is_set() or not self._step():
                        early = any(source.reader.ended_early for source in self.sources)
                        self._finish(complete=not (self._stop.is_set() or early))
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
            self._ready.clear()

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
                self._work.hand_out(outcome)
                self._end_alerts(self._by_name[name])
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
            self._work.hand_out(outcome)
        self._end_alerts(source)
        if arrival.picture is not None:
            self._work.latencies_s.append(self.clock.now() - arrival.read_s)
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

    def _end_alerts(self, source: LiveSource) -> None:
        """End the alerts of a source that has ended, once its last answer is there; the other sources may go on."""
        if source.has_ended and not (self.lane is not None and self.lane.is_busy_with(source.name)):
            self._work.end_alerts(source, "the source ended")

    def _finish(self, *, complete: bool) -> None:
        """Release threads and files and write what was accepted; within 3 s, whatever hangs."""
        if self._open.detach():
            _finish(self._work, self._watchdog, complete=complete)


def _finish(work: Running, watchdog: Watchdog, *, complete: bool) -> None:
    try:
        watchdog.stop()
        work.release()
        watchdog.tell(complete=complete)
    finally:
        work.outputs.close(complete=complete)


def _end_abandoned(work: Running, watchdog: Watchdog) -> None:
    """End a run that nobody holds any more; the garbage collector may find that out in any of its threads."""
    if threading.current_thread() is threading.main_thread():
        _finish(work, watchdog, complete=False)
    else:
        threading.Thread(
            target=_finish, args=(work, watchdog), kwargs={"complete": False}, name="hazardlens-end"
        ).start()
