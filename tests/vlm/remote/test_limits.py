"""What bounds a question: time, work, and what its failures count for."""

import asyncio
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tenacity import AsyncRetrying, RetryCallState

from hazardlens.errors import ServerError
from hazardlens.merge.lane import Lane
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeServer, FakeVlm
from hazardlens.testing.server import FAULTS, Act, Received, answer, holding
from hazardlens.vlm.base import Question, Reply, Shown
from hazardlens.vlm.fallback import FallbackVlm
from hazardlens.vlm.prompt import show
from hazardlens.vlm.remote import model, reading, verdict, wire
from hazardlens.vlm.remote.limits import Gate
from hazardlens.vlm.remote.loop import THREAD_NAME, submit
from hazardlens.vlm.remote.model import RemoteVlm
from hazardlens.vlm.remote.patience import Patience
from hazardlens.vlm.remote.reading import read_response
from hazardlens.vlm.remote.restoring import unwrapped
from hazardlens.vlm.remote.reuse import Reuse
from tests.vlm.remote.asking import HAZARD, ask, question, remote

FENCED = "```\n"
OPENED = "{"


def blind(asked: Received) -> Act:
    """A server that takes no pictures."""
    return FAULTS["rejected"](asked) if asked.pictures else holding(asked)


def test_a_blind_member_is_never_asked() -> None:
    with FakeServer(FAULTS["invalid"]) as server, FakeServer(blind) as other:
        second = remote(other.base_url, probe=True)
        vlm = FallbackVlm([remote(server.base_url), second])
        for count in (0, 2):
            vlm.prepare(HAZARD.ground(count))
            with pytest.raises(ServerError, match="takes no pictures"):
                second.prepare(HAZARD.ground(count))
        before = other.count
        result = ask(vlm)
        assert other.count == before
    assert result.status == "error"
    assert "takes no pictures" in str(result.reason)
    assert result.reply is not None
    assert result.reply.fallback[0].startswith("fake at ")


def test_refusals_are_looked_for_at_the_beginning_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []

    class Counting:
        def match(self, text: str) -> re.Match[str] | None:
            looked.append(len(text))
            return None

    monkeypatch.setattr(reading, "_REFUSAL", Counting())
    with FakeServer(lambda asked: answer(asked, OPENED + " " * 12_000 + "x")) as server:
        assert ask(remote(server.base_url, max_new_tokens=100_000)).status == "invalid"
    assert looked
    assert max(looked) < 1_000


def test_fences_are_looked_for_in_linear_time() -> None:
    def work_s(blanks: int) -> float:
        text, times = FENCED + " " * blanks, []
        for _ in range(7):
            before = time.thread_time()
            unwrapped(text)
            times.append(time.thread_time() - before)
        return min(times)

    assert work_s(24_000) < 20 * work_s(3_000), "8 times the length; a square would be 64 times the work"
    with FakeServer(lambda asked: answer(asked, FENCED + " " * 60_000)) as server:
        assert ask(remote(server.base_url, max_new_tokens=100_000)).status == "invalid"


def eventually(true: Callable[[], bool]) -> None:
    for _ in range(500):
        if true():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it did not become so")


def test_questions_that_the_user_gives_up_are_neither_faults_of_the_server_nor_its_success() -> None:
    def behave(asked: Received) -> Act:
        return FAULTS[["hang", "hang", "down", "hang", "down"][asked.number]](asked)

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, breaker_failures=2, breaker_reset_s=60, timeout_s=60, tries=1)
        for count, faults in ((1, 0), (2, 0), (3, 1), (4, 1), (5, 2)):
            if count in (3, 5):
                assert ask(vlm).status == "error"
            else:
                _ask_and_give_up(vlm, lambda n=count: server.count == n)  # type: ignore[misc]
            assert vlm._line.breaker.fail_counter == faults
        shut = ask(vlm)
        assert (shut.status, shut.attempts, server.count) == ("error", 0, 5)
    assert "left alone" in str(shut.reason)


def test_runs_that_are_ended_early_shut_no_server_out_of_the_next() -> None:
    with FakeServer(FAULTS["hang"]) as server:
        vlm = remote(server.base_url, breaker_failures=2, breaker_reset_s=60, timeout_s=60)
        for count in range(1, 5):
            lane = Lane(vlm)
            lane.ask(question())
            eventually(lambda n=count: server.count == n)  # type: ignore[misc]
            lane.close()
        server.behave = holding
        assert ask(vlm).status == "ok"


def test_answers_that_take_too_long_are_faults_of_the_server() -> None:
    with FakeServer(FAULTS["hang"]) as server:
        vlm = remote(server.base_url, breaker_failures=2, breaker_reset_s=60, timeout_s=0.1)
        assert [ask(vlm).status for _ in range(3)] == ["timeout", "timeout", "error"]
        assert server.count == 2


def _ask_and_give_up(vlm: RemoteVlm, true: Callable[[], bool]) -> None:
    """Ask, and stop waiting once something is so."""
    stop, asked = threading.Event(), question()
    giving_up = threading.Thread(target=_give_up, args=(true, stop))
    giving_up.start()
    with pytest.raises(TimeoutError):
        vlm.ask(asked, show(asked, vlm.view), stop)
    giving_up.join()
    submit(asyncio.sleep(0.05)).result()  # the loop has ended the question by then


def _give_up(true: Callable[[], bool], stop: threading.Event) -> None:
    eventually(true)
    stop.set()


def test_what_was_asked_and_failed_is_not_called_skipped() -> None:
    with FakeServer(FAULTS["invalid"]) as server:
        result = ask(remote(server.base_url, calls_per_minute=1))
        assert (result.status, result.attempts, server.count) == ("invalid", 1, 1)
    assert "dragon" in str(result.reason)


class FakeFailingVlm(FakeVlm):
    """Gives no answer, to four questions at once."""

    concurrency = 4

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        return Reply(text="", end="error", reason="no")


class FakeSlowVlm(FakeVlm):
    """Waits to be let go, and knows how many questions it had at once."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.most = self.asked = 0
        self.go = threading.Event()

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        self.running += 1
        self.asked += 1
        self.most = max(self.most, self.running)
        self.go.wait(10)
        self.running -= 1
        return super().ask(question, shown, stop)


def test_a_fallback_is_asked_no_more_at_once_than_it_takes() -> None:
    slow, stop = FakeSlowVlm(), threading.Event()
    vlm = FallbackVlm([FakeFailingVlm(), slow])
    asked = question()
    shown, ends = show(asked, vlm.view), []
    threads = [
        threading.Thread(target=lambda: ends.append(vlm.ask(asked, shown, stop).end)) for _ in range(vlm.concurrency)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: slow.asked == 1)
    threading.Event().wait(0.2)
    assert (slow.asked, slow.most) == (1, 1)
    stop.set()
    eventually(lambda: len(ends) == 3)  # what waits for its turn ends when nobody waits for it
    assert ends == ["timeout"] * 3
    stop.clear()
    slow.go.set()
    for thread in threads:
        thread.join()
    assert slow.most == 1
    assert vlm.ask(asked, shown, stop).end == "complete", "its place is free again"


def test_faults_of_questions_in_flight_together_are_no_row() -> None:
    with FakeServer(FAULTS["down"]) as server:
        vlm = remote(server.base_url, concurrency=4, breaker_failures=2, breaker_reset_s=60, tries=1)
        results = [ask(vlm) for _ in range(10)]
        assert [result.attempts for result in results] == [1] * 8 + [0] * 2
        assert server.count == 8


TEXT = '{"hazard": "none"}'
CALLED = {"function": {"name": "f", "arguments": TEXT}}


@pytest.mark.parametrize(
    ("api", "body"),
    [
        ("chat.completions", {"choices": [{"message": {"content": "I report now.", "tool_calls": [CALLED]}}]}),
        (
            "responses",
            {
                "status": "completed",
                "output": [
                    {"type": "message", "content": [{"type": "output_text", "text": "I report now."}]},
                    {"type": "function_call", "arguments": TEXT},
                ],
            },
        ),
    ],
)
def test_what_a_function_was_called_with_counts_before_words(api: Any, body: dict[str, Any]) -> None:
    assert read_response(json.dumps(body), api).text == TEXT


def test_a_gate_that_would_open_too_late_ends_the_wait() -> None:
    async def waits() -> bool:
        gate = Gate()
        gate.hold(0.05)
        waiting = asyncio.create_task(gate.passed(time.monotonic() + 2.0))
        await asyncio.sleep(0.01)
        gate.hold(3_000.0)
        async with asyncio.timeout(5.0):
            return await waiting

    assert not asyncio.run(waits())


def test_those_who_wait_at_a_gate_do_not_pass_all_at_once() -> None:
    async def passes() -> list[float]:
        gate, times = Gate(), list[float]()

        async def passing() -> None:
            assert await gate.passed(time.monotonic() + 30.0)
            assert not gate.closed_s
            times.append(time.monotonic())

        gate.hold(0.5)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(12):
                tasks.create_task(passing())
        return times

    times = asyncio.run(passes())
    assert max(times) - min(times) > 0.02, "chance alone would bring them as near as that once in 10**7 runs"


def test_a_wait_that_ends_with_a_gate_does_not_end_for_all_at_once() -> None:
    gate, patience = Gate(), Patience(first_wait_s=0.01)
    gate.hold(100.0)
    waits = [patience.wait_s(RetryCallState(AsyncRetrying(), None, (), {}), gate) for _ in range(8)]
    assert all(99.0 < wait_s <= 101.0 for wait_s in waits)
    assert max(waits) - min(waits) > 0.01
    assert all(100.9 < gate.opens_in_s(last=True) <= 102.0 for _ in range(8))


def test_nobody_waits_at_a_gate_beyond_the_time_given() -> None:
    gate = Gate()
    gate.hold(0.3)
    until_s = time.monotonic() + 0.31
    assert gate.passed_here(until_s)
    assert gate.opens_in_s() == 0


def test_work_of_a_question_is_done_in_the_thread_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop, which all questions share, only waits for servers; one shape of a schema is written once."""
    seen = dict[str, set[str]]()

    def noting(module: Any, name: str) -> None:
        work = getattr(module, name)

        def noted(*given: Any, **named: Any) -> Any:
            seen.setdefault(name, set()).add(threading.current_thread().name)
            return work(*given, **named)

        monkeypatch.setattr(module, name, noted)

    for module, name in ((model, "data_uris"), (wire, "form_for"), (Reuse, "key"), (verdict, "restored")):
        noting(module, name)

    def behave(asked: Received) -> Act:
        whole = json.loads(json.loads(holding(asked).body)["choices"][0]["message"]["content"])
        return answer(asked, f"<think>{'x' * 100_000}</think>{json.dumps(whole)}")

    asked = question(asked=7, schema=FieldSchema.load({**HAZARD.document, "title": "Seen nowhere else."}))
    with FakeServer(behave) as server:
        vlm = remote(server.base_url, reuse=True)
        shown = show(asked, vlm.view)
        assert vlm.ask(asked, shown, threading.Event()).end == "complete"
        assert submit(vlm.ask_async(asked, shown)).result().reused
        assert submit(remote(server.base_url).ask_async(asked, shown)).result().end == "complete"
    assert set(seen) == {"data_uris", "form_for", "key", "restored"}
    here = threading.current_thread().name
    for name, threads in seen.items():
        assert THREAD_NAME not in threads, name
        assert name == "restored" or here in threads, name
        assert threads == {here} or any(thread.startswith("asyncio_") for thread in threads), name


def test_a_shape_of_a_schema_is_written_once_for_each_way_to_send_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written = list[tuple[str, int]]()
    work = wire.form_for
    monkeypatch.setattr(
        wire, "form_for", lambda schema, row: (written.append((row.name, schema.count)), work(schema, row))[1]
    )
    document = {**HAZARD.document, "title": "Seen nowhere else either."}
    with FakeServer() as server:
        for row in ("vllm", "json_schema"):
            vlm = remote(server.base_url, dialect=row)
            for count in (1, 3, 1, 3):
                assert ask(vlm, asked=count, schema=FieldSchema.load(document)).status == "ok"
    assert written == [("vllm", 1), ("vllm", 3), ("json_schema", 1), ("json_schema", 3)]


FORKS = """
import asyncio, os, sys
from hazardlens.vlm.remote.loop import submit
submit(asyncio.sleep(0)).result(10)
child = os.fork()
if not child:
    submit(asyncio.sleep(0)).result(10)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
submit(asyncio.sleep(0)).result(10)
"""


def test_a_process_that_was_forked_gets_a_loop_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", FORKS], check=True, capture_output=True)
