"""What a live run holds open, apart from the run itself, so that it can be ended when the run is gone."""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, field

from hazardlens.cameras.clock import Clock, spelled
from hazardlens.merge.outcome import Outcome
from hazardlens.monitor.lane import LiveLane
from hazardlens.monitor.outputs import Outputs
from hazardlens.monitor.source import LiveSource
from hazardlens.monitor.stages import Stages
from hazardlens.outputs.alerts import Alerts
from hazardlens.record import FrameRecord

_log = logging.getLogger(__name__)

_VLM_STOPS_S = 0.6
_CAMERAS_STOP_S = 0.5


@dataclass(kw_only=True, eq=False)
class Running:
    """The parts of a live run, and their end.

    Attributes:
        clock: The clock.
        changed: Notified when something came.
        stop: Set when the run is to end.
        stages: What the run's thread is busy with.
        lane: Asks the VLM, or None for detections only.
        sources: The sources.
        outputs: Get every outcome.
        alerts: The one of them that hands on alerts, or None.
        ready: Records that nobody has taken yet.
        latencies_s: Clock times from a frame's coming to its record, of the newest thousand frames.
    """

    clock: Clock
    changed: threading.Condition
    stop: threading.Event
    stages: Stages
    lane: LiveLane | None
    sources: list[LiveSource]
    outputs: Outputs
    alerts: Alerts | None
    ready: deque[FrameRecord] = field(default_factory=deque)
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=1000))

    def release(self) -> None:
        """Write what was accepted and let go of threads; one that hangs is left to itself, for it is a daemon."""
        self.stop.set()
        with self.changed:
            self.changed.notify_all()
        by_name = {source.name: source for source in self.sources}
        for name, question, answer in self.lane.stop() if self.lane is not None else ():
            self.hand_out(by_name[name].answered(question, answer))
        self._join()
        for source in self.sources:
            for arrival in source.reader.arrivals.rest():
                self.hand_out(source.event(arrival))
            self.end_alerts(source, "the source ended" if source.has_ended else "the run was stopped")
            source.forget()

    def hand_out(self, outcome: Outcome) -> None:
        """Write an outcome, and have its record ready for whoever iterates."""
        with self.stages.stage("write"):
            self.outputs.write(outcome)
        self.ready.append(outcome.record)

    def end_alerts(self, source: LiveSource, why: str) -> None:
        """End the alerts of a source from which nothing more comes."""
        ended = source.end_alerts(why, spelled(self.clock.date()))
        if self.alerts is not None:
            self.alerts.tell(ended)

    def _join(self) -> None:
        ends_s = self.clock.now() + _CAMERAS_STOP_S
        for source in self.sources:
            if not source.reader.join(ends_s - self.clock.now()):
                _log.warning("%s: its thread still waits for the camera and is left to itself", source.name)
        if self.lane is not None and not self.lane.join(_VLM_STOPS_S):
            _log.warning("%s does not stop; its last answer is not waited for", self.lane.vlm.name)
