"""The thread that reads one camera: it connects, reads, and after a loss waits and connects again, until stopped."""

from __future__ import annotations

import logging
import random
import threading
from contextlib import closing

import tenacity

from hazardlens.cameras.base import Camera, CameraLost, Feed, Picture
from hazardlens.cameras.buffer import Arrival, Arrivals
from hazardlens.cameras.clock import Clock, spelled
from hazardlens.cameras.names import CAMERA_THREAD_NAME
from hazardlens.cameras.stamps import Stamper
from hazardlens.pipeline.live import LiveSettings
from hazardlens.record import CameraEvent, CameraState

_log = logging.getLogger(__name__)


class _Lost(Exception):  # noqa: N818 - never leaves this module
    """A session with a camera has ended."""

    def __init__(self, reason: str, *, gave_pictures: bool) -> None:
        super().__init__(reason)
        self.gave_pictures = gave_pictures


class Reader:
    """Reads one camera in a thread of its own.

    Args:
        camera: The camera.
        arrivals: Gets its frames and events.
        settings: How long is waited between tries.
        clock: The clock.
        stop: Ends the thread.

    Attributes:
        state: The camera's state.
        reason: Why it is in that state, or None.
        read: Frames that came.
        connections: Connections that gave a picture.
        damaged: Packets that could not be decoded, and damaged pictures, of all connections.
        last_frame_s: The clock's time of the last frame, or None.
        has_ended: Whether nothing more will come.
        ended_early: Why its source ended before its end, or None.
    """

    def __init__(
        self, camera: Camera, arrivals: Arrivals, *, settings: LiveSettings, clock: Clock, stop: threading.Event
    ) -> None:
        self.camera = camera
        self.arrivals = arrivals
        self.state: CameraState = "offline"
        self.reason: str | None = "not opened yet"
        self.read = 0
        self.connections = 0
        self.damaged = 0
        self.last_frame_s: float | None = None
        self.has_ended = False
        self.ended_early: str | None = None
        self._opening_s: float | None = None
        self._hang_told = False
        self._settings = settings
        self._clock = clock
        self._stop = stop
        self._started_s = clock.now()
        self._stamper = Stamper(self._started_s, is_paced=camera.is_paced)
        self._thread = threading.Thread(target=self._work, name=f"{CAMERA_THREAD_NAME}:{camera.name}", daemon=True)

    @property
    def clock_jumps(self) -> int:
        """Times that the camera's clock jumped."""
        return self._stamper.jumps

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; whether it has."""
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def look(self, limit_s: float, open_limit_s: float) -> None:
        """Say that the camera is lost where its driver hangs; called by another thread.

        Args:
            limit_s: Longest time without a picture.
            open_limit_s: Longest time in which it opens.
        """
        opening_s = self._opening_s
        if opening_s is not None and not self._hang_told and self._clock.now() - opening_s > open_limit_s:
            self._hang_told = True
            self._tell("offline", f"does not open within {open_limit_s:g} s; its driver hangs")
        seen_s = self.last_frame_s
        if self.camera.is_paced or self.state != "online" or seen_s is None:
            return
        if self._clock.now() - seen_s > limit_s:
            self._tell("offline", f"no picture for {limit_s:g} s; its driver hangs")

    def _work(self) -> None:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(_Lost),
            wait=_growing(self._settings.retry_first_s, self._settings.retry_most_s),
            stop=tenacity.stop_when_event_set(self._stop),
            sleep=self._sleep,
            before_sleep=self._tell_retry,
        )
        try:
            retrying(self._session)
        except tenacity.RetryError:  # stopped while it was lost
            return
        if not self._stop.is_set():
            early = self.ended_early
            self._tell("ended", f"ended early: {early}" if early else "the source has come to its end")
            self.has_ended = True

    def _session(self) -> None:
        """One connection, from its opening to its end; every loss becomes `_Lost`."""
        before, damaged_before = self.read, self.damaged
        try:
            with closing(self._open()) as feed:
                self._stamper.connected()
                try:
                    self._pump(feed, damaged_before)
                finally:
                    self.damaged = damaged_before + feed.damaged
                    self.ended_early = feed.ended_early
        except CameraLost as error:
            self._lose(str(error), gave_pictures=self.read > before)
        except Exception as error:  # noqa: BLE001 - whatever a camera's driver raises is a loss, or the thread would end
            _log.debug("%s", self.camera.name, exc_info=error)
            self._lose(f"{type(error).__name__} while it was read", gave_pictures=self.read > before)

    def _open(self) -> Feed:
        self._hang_told = False
        self._opening_s = self._clock.now()
        try:
            return self.camera.open()
        finally:
            self._opening_s = None

    def _pump(self, feed: Feed, damaged_before: int) -> None:
        before = self.read
        for picture in feed.pictures(self._stop):
            self.connections += self.read == before
            self.damaged = damaged_before + feed.damaged
            if self.state != "online":
                self._tell("online", feed.note)
            self._take(picture)
            if self._stop.is_set():
                return

    def _take(self, picture: Picture) -> None:
        if self.camera.is_paced and picture.stamp_s is not None:
            self._clock.wait(self._stop, self._started_s + picture.stamp_s - self._clock.now())
        now_s, jumps = self._clock.now(), self._stamper.jumps
        time_s = self._stamper.stamp(picture.stamp_s, now_s)
        if self._stamper.jumps > jumps:
            _log.warning("%s: the camera's clock has jumped; its times go on from now", self.camera.name)
        arrival = Arrival(
            time_s=time_s,
            at=spelled(self._clock.date()),
            read_s=now_s,
            index=self.read,
            picture=picture,
        )
        self.read += 1
        self.last_frame_s = now_s
        self.arrivals.put(arrival, self._stop)

    def _lose(self, reason: str, *, gave_pictures: bool) -> None:
        if self._stop.is_set():
            return
        if self.state == "online" or self.reason != reason:
            self._tell("offline", reason)
        raise _Lost(reason, gave_pictures=gave_pictures) from None

    def _sleep(self, seconds: float) -> None:
        self._clock.wait(self._stop, seconds)

    def _tell_retry(self, state: tenacity.RetryCallState) -> None:
        if not self._stop.is_set():
            wait_s = round(state.upcoming_sleep, 3)
            self._tell("reconnecting", self.reason, attempt=state.attempt_number - 1, wait_s=wait_s)

    def _tell(self, state: CameraState, reason: str | None, *, attempt: int = 0, wait_s: float | None = None) -> None:
        level = logging.WARNING if state == "offline" else logging.INFO
        _log.log(level, "%s: %s%s", self.camera.name, state, f": {reason}" if reason else "")
        self.state, self.reason = state, reason
        now_s = self._clock.now()
        arrival = Arrival(
            time_s=self._stamper.elapsed(now_s),
            at=spelled(self._clock.date()),
            read_s=now_s,
            index=self.read,
            event=CameraEvent(state=state, reason=reason, attempt=attempt, wait_s=wait_s),
        )
        self.arrivals.put(arrival, self._stop)


def _growing(first_s: float, most_s: float) -> tenacity.wait.wait_base:
    """Waits that double up to `most_s`, each shortened by up to a quarter, anew after a session that gave pictures."""
    doubling = tenacity.wait_exponential(multiplier=first_s, max=most_s)

    class Growing(tenacity.wait.wait_base):
        def __call__(self, retry_state: tenacity.RetryCallState) -> float:
            error = retry_state.outcome.exception() if retry_state.outcome else None
            if isinstance(error, _Lost) and error.gave_pictures:
                retry_state.attempt_number = 1
            return doubling(retry_state) * random.uniform(0.75, 1.0)  # noqa: S311 - jitter needs no secrecy

    return Growing()
