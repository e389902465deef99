"""Who is told of alerts: a command, a webhook; what fails is named, and secrets are not."""

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hazardlens.alerts.notify import Notifier
from hazardlens.errors import PipelineError
from hazardlens.pipeline import AlertSettings, Pipeline
from tests.monitor.test_lane import eventually
from tests.threads import left

ALERT = {"id": "fire-1", "rule": "fire", "state": "began", "why": "Rauch über dem Tor"}


@contextmanager
def webhook(statuses: list[int], delay_s: float = 0.0) -> Iterator[tuple[str, list[dict]]]:
    """A webhook that answers with these statuses, one after the other, and what it got."""
    got: list[dict] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            time.sleep(delay_s)
            self.send_response(statuses[min(len(got), len(statuses)) - 1])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook?key=T0ken", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_command_gets_each_alert_as_a_line(tmp_path: Path) -> None:
    notifier = Notifier(AlertSettings(command=["sh", "-c", f"cat >> '{tmp_path}/told'"]))
    notifier.tell(ALERT)
    notifier.tell({**ALERT, "state": "ended"})
    notifier.close(10)
    lines = (tmp_path / "told").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["began", "ended"]
    assert json.loads(lines[0]) == ALERT


def test_a_webhook_that_is_down_for_a_moment_gets_the_alert_all_the_same() -> None:
    with webhook([503, 429, 204]) as (url, got):
        notifier = Notifier(AlertSettings(webhook=url), first_wait_s=0.01)
        notifier.tell(ALERT)
        notifier.close(10)
    assert got == [ALERT] * 3
    assert notifier.failed == 0


@pytest.mark.parametrize(("statuses", "tries"), [([404], 1), ([500], 4)])
def test_a_webhook_that_does_not_take_it_is_named_without_its_secrets(
    statuses: list[int], tries: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="hazardlens")
    with webhook(statuses) as (url, got):
        notifier = Notifier(AlertSettings(webhook=url), first_wait_s=0.01)
        notifier.tell(ALERT)
        notifier.close(10)
    assert len(got) == tries
    assert notifier.failed == 1
    assert f"HTTP {statuses[0]}" in caplog.text
    assert "T0ken" not in caplog.text


def test_an_absent_webhook_and_a_command_that_fails_or_hangs(caplog: pytest.LogCaptureFixture) -> None:
    settings = AlertSettings(
        webhook="http://127.0.0.1:9/?key=T0ken", command=["sh", "-c", "echo broken >&2; exit 3"], notify_timeout_s=0.5
    )
    notifier = Notifier(settings, first_wait_s=0.01)
    notifier.tell(ALERT)
    notifier.close(10)
    hanging = Notifier(AlertSettings(command=["sleep", "30"], notify_timeout_s=0.1))
    hanging.tell(ALERT)
    hanging.close(10)
    absent = Notifier(AlertSettings(command=["no-such-program"]))
    absent.tell(ALERT)
    absent.close(10)
    assert (notifier.failed, hanging.failed, absent.failed) == (2, 1, 1)
    assert "ended with 3: broken" in caplog.text
    assert "sleep has not ended within 0.1 s" in caplog.text
    assert "T0ken" not in caplog.text


def test_closing_does_not_wait_for_who_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier(AlertSettings(command=["sleep", "1"]))
    for _ in range(3):
        notifier.tell(ALERT)
    notifier.close(0.1)
    assert "3 alerts were not handed" in caplog.text, "it has waited for the first"
    eventually(lambda: left() == [])


def test_a_webhook_that_hangs_does_not_hold_up_the_command_nor_the_reverse(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with webhook([204], delay_s=1.0) as (url, got):
        settings = AlertSettings(webhook=url, command=["sh", "-c", f"cat >> '{told}'"])
        notifier = Notifier(settings)
        for _ in range(3):
            notifier.tell(ALERT)
        eventually(lambda: told.exists() and len(told.read_text().splitlines()) == 3)
        eventually(lambda: notifier.counts["command"] == {"waiting": 0, "failed": 0})
        assert notifier.counts["webhook"] == {"waiting": 3, "failed": 0} or len(got) > 1
        notifier.close(0.0)
    with webhook([204]) as (url, got):
        notifier = Notifier(AlertSettings(webhook=url, command=["sleep", "30"], notify_timeout_s=2))
        for _ in range(3):
            notifier.tell(ALERT)
        eventually(lambda: notifier.counts["webhook"]["waiting"] == 0)
        assert len(got) == 3
        assert notifier.counts["command"] == {"waiting": 3, "failed": 0}
        notifier.close(0.0)
    eventually(lambda: left() == [])


def test_a_webhook_that_answers_bit_by_bit_is_over_its_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Each byte comes in time, and all of them do not."""
    over = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        while not over.is_set():
            listening.settimeout(0.2)
            with contextlib.suppress(OSError):
                caller, _ = listening.accept()
                with caller:
                    while not over.wait(0.05):
                        caller.sendall(b"H")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        settings = AlertSettings(webhook=f"http://127.0.0.1:{listening.getsockname()[1]}/", notify_timeout_s=0.3)
        notifier = Notifier(settings, first_wait_s=0.01)
        notifier.tell(ALERT)
        eventually(lambda: notifier.failed)
        assert "no answer within 0.3 s" in caplog.text
        notifier.close(0.0)
    finally:
        over.set()
        thread.join()
        listening.close()


def test_the_address_may_stand_in_the_environment_and_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOOK", "https://example.org/?key=T0ken")
    settings = AlertSettings(webhook="env:HOOK")
    assert settings.webhook_address == "https://example.org/?key=T0ken"
    assert settings.model_dump(mode="json")["webhook"] == "env:HOOK"
    pipeline = Pipeline.load({"alerts": {"webhook": "https://example.org/?key=T0ken"}})
    changed = pipeline.with_overrides({"max_age_s": 1.0})
    assert changed.alerts.webhook_address == "https://example.org/?key=T0ken"
    assert "T0ken" not in repr(changed) + json.dumps(changed.model_dump(mode="json"))
    with pytest.raises(PipelineError) as caught:
        Pipeline.load({"alerts": {"webhook": "ftp://T0ken@example.org"}})
    assert "T0ken" not in str(caught.value)
    monkeypatch.delenv("HOOK")
    Notifier(settings).close(1)
    assert "no such variable" in caplog.text
