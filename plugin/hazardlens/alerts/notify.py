"""Who is told of alerts: a callable, a command, a webhook. Whoever fails or takes long holds up nobody."""

from __future__ import annotations

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
    """Hands alerts to a command and a webhook, one after the other, in a thread of its own.

    Args:
        settings: The command and the webhook.
        first_wait_s: Seconds before the webhook's second try; the next waits double.

    Attributes:
        failed: Alerts that could not be handed to one of them.
    """

    def __init__(self, settings: AlertSettings, *, first_wait_s: float = 1.0) -> None:
        self.failed = 0
        self._settings = settings
        self._address = settings.webhook_address
        self._first_wait_s = first_wait_s
        self._stop = threading.Event()
        self._alerts: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_WAITING)
        self._under_way = 0
        if settings.webhook is not None and self._address is None:
            _log.warning("alerts.webhook: the environment has no such variable; nothing is posted")
        for name in _WIRE_LOGS:  # they print whole addresses
            if logging.getLogger(name).level == logging.NOTSET:
                logging.getLogger(name).setLevel(logging.WARNING)
        ways = (settings.command, self._address)
        self._worker = threading.Thread(target=self._work, name="hazardlens-notify", daemon=True) if any(ways) else None
        if self._worker is not None:
            self._worker.start()

    def tell(self, alert: Mapping[str, Any]) -> None:
        """Hand an alert over; does not wait."""
        if self._worker is None:
            return
        try:
            self._alerts.put_nowait(alert)
        except queue.Full:
            self._fail("alert", "too many are waiting")

    def close(self, seconds: float) -> None:
        """Hand over what waits, for `seconds` at most."""
        if self._worker is None:
            return
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s and self._alerts.unfinished_tasks:
            time.sleep(0.02)
        self._stop.set()
        if left := self._alerts.unfinished_tasks:
            _log.warning("%d alerts were not handed to command and webhook; they are in the records", left)
        with contextlib.suppress(queue.Full):  # the thread looks at `_stop` behind each alert
            self._alerts.put_nowait(None)
        self._worker.join(0.2)
        self._worker = None

    def _work(self) -> None:
        while (alert := self._alerts.get()) is not None and not self._stop.is_set():
            text = json.dumps(alert, ensure_ascii=False)
            if self._settings.command is not None:
                self._try("alerts.command", self._run, text)
            if self._address is not None:
                self._try("alerts.webhook", self._post, text)
            self._alerts.task_done()

    def _try(self, name: str, act: Callable[[str], None], text: str) -> None:
        try:
            act(text)
        except Exception as error:  # noqa: BLE001 - whoever is told must not end the telling
            self._fail(name, scrubbed(f"{type(error).__name__}: {error}", self._address or ""))

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
        headers = {"Content-Type": "application/json"}
        reply = httpx2.post(
            str(self._address), content=text.encode(), headers=headers, timeout=self._settings.notify_timeout_s
        )
        if not reply.is_success:  # one that is sent elsewhere has not been taken
            raise _RefusedError(reply.status_code)

    def _fail(self, name: str, why: str) -> None:
        self.failed += 1
        _log.warning("%s: %s", name, why)


class _RefusedError(Exception):
    """A webhook answered that it does not take the alert."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


def _may_pass(error: BaseException) -> bool:
    """Whether the same may work a moment later."""
    if isinstance(error, _RefusedError):
        return error.status >= 500 or error.status in (408, 425, 429)
    return isinstance(error, httpx2.TransportError)
