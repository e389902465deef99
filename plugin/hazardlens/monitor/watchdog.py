"""A thread that looks whether everything still moves, and keeps the status."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from hazardlens.monitor.running import Running
from hazardlens.monitor.status import status
from hazardlens.pipeline.live import LiveSettings

_log = logging.getLogger(__name__)
_TICK_S = 0.5
_TELLS_EVERY_S = 10.0
_MARGIN = 1.5
"""A camera's own read limit comes first; beyond this much of it the driver itself is taken to hang."""


class Watchdog:
    """Ends questions that are over their time, names stages that stand still and cameras whose drivers hang.

    Args:
        run: The run's parts.
        settings: Time limits.
        on_status: Gets the status at the start and every ten seconds, or None.
    """

    def __init__(
        self,
        run: Running,
        *,
        settings: LiveSettings,
        on_status: Callable[[dict[str, Any]], object] | None,
    ) -> None:
        self._run = run
        self._settings = settings
        self._clock = run.clock
        self._on_status = on_status
        self._stop = threading.Event()
        self._vlm_told = False
        self._thread = threading.Thread(target=self._work, name="hazardlens-watchdog", daemon=True)

    def start(self) -> None:
        """Begin, and hand out the first status."""
        self.tell()
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for that."""
        self._stop.set()
        self._thread.join(_TICK_S)

    def tell(self, *, complete: bool | None = None) -> None:
        """Hand out the status; `complete` says of a run that is over whether all its sources came to their ends."""
        if self._on_status is None:
            return
        try:
            self._on_status(status(self._run, complete=complete))
        except Exception as error:  # noqa: BLE001 - who looks on must not fall
            _log.debug("status", exc_info=error)

    def look(self) -> None:
        """Look once."""
        lane = self._run.lane
        if lane is not None:
            lane.expire()
            self._look_at_vlm(lane.held_s)
        self._run.stages.look()
        for source in self._run.sources:
            source.reader.look(_MARGIN * self._settings.read_timeout_s, _MARGIN * self._settings.open_timeout_s)

    def _look_at_vlm(self, held_s: float | None) -> None:
        stuck = held_s is not None and held_s > self._settings.question_timeout_s + self._settings.stall_s
        if stuck and not self._vlm_told:
            self._run.stages.stalls["vlm"] += 1
            _log.warning("stands still: the VLM, for %.0f s; the question it holds has no other in its place", held_s)
        self._vlm_told = stuck

    def _work(self) -> None:
        told_s = self._clock.now()
        while not self._clock.wait(self._stop, _TICK_S):
            self.look()
            if self._clock.now() - told_s >= _TELLS_EVERY_S:
                told_s = self._clock.now()
                self.tell()
