"""Who is told of alerts: a callable, a command, a webhook. Whoever fails or takes long holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import tenacity

from hazardlens.cameras.secrets import scrubbed
from hazardlens.pipeline import AlertSettings

_log = logging.getLogger(__name__)

_WAITING = 1000
_TRIES = 4
_WIRE_LOGS = ("httpcore2", "httpx2")


class Notifier:
    """Hands alerts to a command and a webhook, each one after the other, in threads of their own.

    Args:
        settings: The command and the webhook.
        first_wait_s: Seconds before the webhook's second try; the next waits double.
    """

    def __init__(self, settings: AlertSettings, *, first_wait_s: float = 1.0) -> None:
        self._settings = settings
        self._address = settings.webhook_address
        self._first_wait_s = first_wait_s
        self._stop = threading.Event()
        if settings.webhook is not None and self._address is None:
            _log.warning("alerts.webhook: the environment has no such variable; nothing is posted")
        for name in _WIRE_LOGS:  # they print whole addresses
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.WARNING)
        self._ways: list[_Way] = []
        if settings.command is not None:
            self._ways.append(_Way("command", self._run, self._stop))
        if self._address is not None:
            self._ways.append(_Way("webhook", self._post, self._stop, secret=self._address))

    @property
    def failed(self) -> int:
        """Alerts that could not be handed to one of them."""
        return sum(way.failed for way in self._ways)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """For the command and the webhook, where there is one: alerts that wait, and that could not be handed over."""
        return {way.name: {"waiting": way.waiting, "failed": way.failed} for way in self._ways}

    def tell(self, alert: Mapping[str, Any]) -> None:
        """Hand an alert over; does not wait."""
        for way in self._ways:
            way.put(alert)

    def close(self, seconds: float) -> None:
        """Hand over what waits, for `seconds` at most; may be called twice."""
        if self._stop.is_set():
            return
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s and any(way.waiting for way in self._ways):
            time.sleep(0.02)
        self._stop.set()
        for way in self._ways:
            way.end()
        for way in self._ways:
            way.join(0.2)

    def _run(self, text: str) -> None:
        command = list(self._settings.command or ())
        limit_s = self._settings.notify_timeout_s
        try:
            done = subprocess.run(  # noqa: S603
                command, input=(text + "\n").encode(), capture_output=True, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:  # its own text quotes the arguments
            raise TimeoutError(f"{command[0]} has not ended within {limit_s:g} s") from None
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-200:]
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {said}")

    def _post(self, text: str) -> None:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            wait=tenacity.wait_exponential_jitter(multiplier=self._first_wait_s, jitter=self._first_wait_s, max=30),
            stop=tenacity.stop_after_attempt(_TRIES) | tenacity.stop_when_event_set(self._stop),
            sleep=tenacity.sleep_using_event(self._stop),
            reraise=True,
        )
        retrying(self._post_once, text)

    def _post_once(self, text: str) -> None:
        limit_s = self._settings.notify_timeout_s
        try:
            status = asyncio.run(self._posted(text, limit_s))
        except TimeoutError:
            raise TimeoutError(f"no answer within {limit_s:g} s") from None
        if not 200 <= status < 300:  # one that is sent elsewhere has not been taken
            raise _RefusedError(status)

    async def _posted(self, text: str, limit_s: float) -> int:
        """Post, within a time limit for all of it; httpx's own are for each step, and a slow server has many."""
        headers = {"Content-Type": "application/json"}
        async with (
            asyncio.timeout(limit_s),
            httpx2.AsyncClient(timeout=None) as client,
            client.stream("POST", str(self._address), content=text.encode(), headers=headers) as reply,
        ):
            return reply.status_code


class _Way:
    """Hands alerts to one receiver, one after the other, in a thread of its own.

    Args:
        name: Which of the settings it is.
        act: Hands one over; raises where that fails.
        stop: Set when nothing more is to be handed over.
        secret: An address whose secrets must not be logged.
    """

    def __init__(self, name: str, act: Callable[[str], None], stop: threading.Event, *, secret: str = "") -> None:
        self.name = name
        self.failed = 0
        self._act = act
        self._stop = stop
        self._secret = secret
        self._alerts: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._work, name=f"hazardlens-notify-{name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._alerts.unfinished_tasks

    def put(self, alert: Mapping[str, Any]) -> None:
        try:
            self._alerts.put_nowait(alert)
        except queue.Full:
            self._fail("too many are waiting")

    def end(self) -> None:
        if left := self.waiting:
            _log.warning("alerts.%s: %d alerts were not handed over; they are in the records", self.name, left)
        with contextlib.suppress(queue.Full):  # the thread looks at `_stop` behind each alert
            self._alerts.put_nowait(None)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _work(self) -> None:
        while (alert := self._alerts.get()) is not None and not self._stop.is_set():
            try:
                self._act(json.dumps(alert, ensure_ascii=False))
            except Exception as error:  # noqa: BLE001 - whoever is told must not end the telling
                self._fail(scrubbed(f"{type(error).__name__}: {error}", self._secret))
            self._alerts.task_done()

    def _fail(self, why: str) -> None:
        self.failed += 1
        _log.warning("alerts.%s: %s", self.name, why)


class _RefusedError(Exception):
    """A webhook answered that it does not take the alert."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


def _may_pass(error: BaseException) -> bool:
    """Whether the same may work a moment later."""
    if isinstance(error, _RefusedError):
        return error.status >= 500 or error.status in (408, 425, 429)
    return isinstance(error, httpx2.TransportError | TimeoutError)
