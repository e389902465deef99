"""Remote VLMs in whole runs: records in order, settings from a file, fallbacks, the command line."""

import json
import os
import random
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import hazardlens
from hazardlens.errors import PipelineError, ServerError
from hazardlens.frames.base import Frame
from hazardlens.merge import stream
from hazardlens.merge.outcome import Outcome, Stages
from hazardlens.merge.source import SourceMerge
from hazardlens.merge.stream import FrameStream
from hazardlens.parts import load_vlm, settle
from hazardlens.pipeline import Pipeline
from hazardlens.record import FrameRecord
from hazardlens.testing import FakeDetector, FakeServer, FakeVlm
from hazardlens.testing.server import FAULTS, Act, Received, holding
from hazardlens.testing.video import draw_video
from hazardlens.vlm.base import Question, Reply, Shown, View, Vlm
from hazardlens.vlm.fallback import FallbackVlm
from hazardlens.vlm.remote.model import RemoteVlm
from tests.vlm.remote.asking import HAZARD, ask, check, remote

PIPELINE = Pipeline.load({"ask": {"every_s": 0.01}, "detector": {"batch": 1}})
HAZARDLENS = Path(sys.executable).parent / "hazardlens"
RECORD = jsonschema.Draft202012Validator(json.loads(Path("schemas/record.json").read_text()))

EXPECTED = {
    "ok": ("none", "fenced", "thinking", "wrong_type"),
    "error": (
        "reset", "closed", "quota", "down", "gone", "detail", "plain", "denied", "rejected", "moved", "html", "empty",
        "nothing", "null", "list", "stream", "half_json", "json_lines", "deep", "packed", "gigabyte", "endless", "busy",
        "busy_date", "busy_riddle",
    ),
    "truncated": ("cut", "cut_silently"),
    "invalid": ("invalid", "prose", "two_answers", "surrogates", "outer_surrogates", "twice"),
    "refused": ("refusal", "refusal_in_words", "refusal_in_a_field", "filtered"),
    "timeout": ("hang", "drip"),
}  # fmt: skip
STATUS = {fault: status for status, faults in EXPECTED.items() for fault in faults}
"""What becomes of a question whose every try meets a fault."""

SLOW = {"hang", "drip", "busy", "busy_date", "busy_riddle"}
"""Faults that last as long as an answer may take."""

TRIES, WITHIN_S, TRY_S = 2, 30.0, 14.0
MOST_TRIES = {"invalid": TRIES + 1, "truncated": TRIES + 1}
"""By status: such an answer is asked for once more, beside a connection that may have broken; others `TRIES` times."""
MOST_TRIES_BUSY = 16
"""Waits grow from 0.01 s by doubling to 8 s, so that 10 of them last 10 s, and 13 more than 30 s."""
MOST_GROWTH_BYTES = 64 * 2**20
"""Sixteen answers of the largest size, kept by mistake, would be 256 MiB."""


def frames(count: int, seen: Callable[[int], int] = lambda index: index) -> Iterator[Frame]:
    for index in range(count):
        image = np.full((24, 32, 3), seen(index) % 256, np.uint8)
        yield Frame(image=image, index=index, time_s=index * 0.1, source="x")


def run(vlm: Vlm, count: int, seen: Callable[[int], int] = lambda index: index) -> Iterator[Outcome]:
    running = FrameStream(
        pipeline=PIPELINE, schema=HAZARD, detector=FakeDetector(), vlm=vlm, stages=Stages(), keep_pixels=False
    )
    try:
        yield from running.outcomes(frames(count, seen))
    finally:
        running.close()


def test_every_fault_has_a_status() -> None:
    assert set(STATUS) == {*FAULTS, "none"}


class Storm:
    """A server whose fault depends on the frame, named in a header: each try of its question meets it."""

    def __init__(self, seed: int, count: int, *, slow: bool) -> None:
        chance = random.Random(seed)
        names = sorted(set(STATUS) - (set() if slow else SLOW))
        self.faults = [chance.choice(names) if chance.random() < 0.5 else "none" for _ in range(count)]

    def __call__(self, asked: Received) -> Act:
        index = int(asked.headers["x-frame"])
        fault = self.faults[index]
        return holding(asked) if fault == "none" else FAULTS[fault](asked)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_tries(fault: str) -> int:
    return MOST_TRIES_BUSY if fault.startswith("busy") else MOST_TRIES.get(STATUS[fault], TRIES)


def storm(count: int, seed: int, api: str, monkeypatch: pytest.MonkeyPatch, *, slow: bool) -> list[int]:
    """Run frames through a storm, each frame told to the server by a header that the test adds.

    Times are long, so that a busy machine alone fails no question; what lasts until they are over is for the long run.

    Returns:
        Bytes of memory in use after each frame.
    """
    asked_of = RemoteVlm._asked

    def with_frame(self: RemoteVlm, question: Any, shown: Any) -> Any:
        asked = asked_of(self, question, shown)
        arguments = asked.arguments
        object.__setattr__(
            asked,
            "arguments",
            lambda tokens: {**arguments(tokens), "extra_headers": {"X-Frame": str(question.frame.index)}},
        )
        return asked

    monkeypatch.setattr(RemoteVlm, "_asked", with_frame)
    behave = Storm(seed, count, slow=slow)
    with FakeServer(behave) as server:
        vlm = remote(
            server.base_url,
            api=api,
            concurrency=8,
            tries=TRIES,
            timeout_s=WITHIN_S,
            try_timeout_s=TRY_S,
            headers={"X-Frame": "0"},
        )
        tries, memory = 0, []
        for index, outcome in enumerate(run(vlm, count)):
            record = outcome.record
            assert (record.frame, record.vlm.frame) == (index, index)
            fault = behave.faults[index]
            assert record.vlm.status == STATUS[fault], (index, fault, record.vlm.reason)
            assert (record.fields is not None) == (record.vlm.status == "ok")
            assert 1 <= record.vlm.attempts <= most_tries(fault), (index, fault, record.vlm.reason)
            RECORD.validate(record.to_dict())
            tries += record.vlm.attempts
            memory.append(resident_bytes())
        vlm.close()
        assert len(memory) == count
        assert server.count <= tries, "no request is sent that no record tells of"
    return memory


@pytest.mark.parametrize("api", ["chat.completions", "responses"])
def test_a_storm_of_faults(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storm(50, 1, api, monkeypatch, slow=False)


@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("api", ["chat.completions", "responses"])
def test_a_long_storm_of_faults(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = storm(1_000, 2, api, monkeypatch, slow=True)
    warm, late = (statistics.median(part) for part in (memory[200:400], memory[800:]))
    assert late - warm < MOST_GROWTH_BYTES


def test_records_are_in_order_and_questions_are_in_flight_together() -> None:
    """Earlier questions are answered later, and the server sees several at once."""
    running = [0, 0]

    def behave(asked: Received) -> Act:
        act = holding(asked)
        return Act(body=act.body, wait_s=0.05 * (4 - asked.number % 4))

    with FakeServer(behave) as server:
        exchange = server._exchange

        async def counted(*given: Any) -> bool:
            running[0] += 1
            running[1] = max(running)
            try:
                return await exchange(*given)
            finally:
                running[0] -= 1

        server._exchange = counted  # type: ignore[method-assign]
        vlm = remote(server.base_url, concurrency=4)
        records = [outcome.record for outcome in run(vlm, 16)]
    assert [record.frame for record in records] == list(range(16))
    assert {record.vlm.status for record in records} == {"ok"}
    assert running[1] == 4


def test_large_answers_behind_one_that_hangs_hold_a_bounded_amount_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_WAITING_BYTES", 2**20)
    let_go = threading.Event()

    class FakeLargeVlm(FakeVlm):
        """Hangs at the first question, and says a quarter of a MiB of nonsense to all others."""

        concurrency = 2
        asked = 0

        def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
            if question.frame.index == 0:
                let_go.wait(30)
            self.asked += 1
            return Reply(text="x" * 2**18)

    vlm, records = FakeLargeVlm(), list[FrameRecord]()
    running = threading.Thread(target=lambda: records.extend(outcome.record for outcome in run(vlm, 60)))
    running.start()
    for _ in range(1_000):
        if vlm.asked >= 4:
            break
        threading.Event().wait(0.01)
    threading.Event().wait(0.3)
    assert 4 <= vlm.asked <= 4 + 5, "as many as fit, and those that were in the lane by then"
    let_go.set()
    running.join()
    assert [record.frame for record in records] == list(range(60))
    assert {record.vlm.status for record in records} == {"invalid"}


def test_what_waits_is_counted_down_to_nothing() -> None:
    with FakeServer() as server:
        waiting = FrameStream(
            pipeline=PIPELINE, schema=HAZARD, detector=FakeDetector(), vlm=remote(server.base_url, concurrency=3),
            stages=Stages(), keep_pixels=False,
        )  # fmt: skip
        assert len(list(waiting.outcomes(frames(12)))) == 12
        waiting.close()
    assert waiting._waiting_bytes == 0


def test_how_the_form_was_held_stands_in_the_records_that_have_to_do_with_an_answer() -> None:
    pipeline = Pipeline.load({"ask": {"every_s": 0.3}, "max_age_s": 0.15, "detector": {"batch": 1}})
    with FakeServer(lambda asked: FAULTS["denied"](asked) if not asked.number else holding(asked)) as server:
        vlm = remote(server.base_url)
        running = FrameStream(
            pipeline=pipeline, schema=HAZARD, detector=FakeDetector(), vlm=vlm, stages=Stages(), keep_pixels=False
        )
        states = [outcome.record.vlm for outcome in running.outcomes(frames(6))]
        running.close()
    assert [(state.status, state.enforced) for state in states] == [
        ("error", "checked"), ("skipped", None), ("skipped", None), ("ok", "checked"), ("carried", "checked"),
        ("stale", "checked"),
    ]  # fmt: skip
    merge = SourceMerge(pipeline, HAZARD, vlm)
    (frame,) = frames(1)
    assert merge.lost(frame, FakeDetector().detect([frame])[0], "gone").vlm.enforced is None
    said = "`vlm.enforced` in every record that tells what became of a question or carries an answer"
    assert said in " ".join(Path("docs/remote.md").read_text().split())


def test_limits_skip_questions_and_say_so() -> None:
    with FakeServer() as server:
        records = [outcome.record for outcome in run(remote(server.base_url, calls_per_minute=2), 4)]
    assert [record.vlm.status for record in records] == ["ok", "ok", "skipped", "skipped"]
    assert records[3].vlm.reason == "the limit of 2 calls a minute is spent"
    assert records[3].fields is None
    assert records[3].vlm.raw is None
    for record in records:
        RECORD.validate(record.to_dict())


def test_a_reused_answer_is_marked_in_its_record() -> None:
    with FakeServer() as server:
        vlm = remote(server.base_url, reuse=True)
        records = [outcome.record for outcome in run(vlm, 3, lambda index: index // 2)]
    assert [record.vlm.reused for record in records] == [False, True, False]
    assert server.count == 2


def test_a_fallback_answers_and_is_named() -> None:
    with FakeServer(FAULTS["down"]) as broken, FakeServer() as second:
        chain = FallbackVlm([remote(broken.base_url, tries=1), remote(second.base_url)])
        (record,) = [outcome.record for outcome in run(chain, 1)]
    assert record.vlm.status == "ok"
    assert record.vlm.model == chain.members[1].name
    assert record.vlm.fallback == (f"{chain.name}: error: HTTP 500: out of memory",)
    assert record.vlm.attempts == 2
    RECORD.validate(record.to_dict())


def test_a_local_model_may_stand_behind_a_server_with_its_own_view() -> None:
    class Masked(FakeVlm):
        enforced = "mask"
        view = View(longest_side_px=32)

    with FakeServer(FAULTS["invalid"]) as server:
        result = ask(FallbackVlm([remote(server.base_url), Masked()]))
    assert result.status == "ok"
    assert result.reply is not None
    assert (result.reply.enforced, result.reply.model) == ("mask", "fake-vlm")
    assert "'dragon' is not one of" in result.reply.fallback[0]


def test_where_all_fail_the_last_failure_is_the_frames() -> None:
    with FakeServer(FAULTS["down"]) as server:
        result = ask(FallbackVlm([remote(server.base_url, tries=1), remote("http://127.0.0.1:9/v1", tries=1)]))
    assert result.status == "error"
    assert result.reason is not None
    assert result.reason.endswith("; detector only")
    assert result.reply is not None
    assert len(result.reply.fallback) == 1


def test_a_refusal_is_not_taken_to_somebody_else() -> None:
    with FakeServer(FAULTS["refusal"]) as first, FakeServer() as second:
        assert ask(FallbackVlm([remote(first.base_url), remote(second.base_url)])).status == "refused"
    assert second.count == 0


def test_a_server_that_is_down_at_the_start_is_an_error_only_without_a_fallback() -> None:
    down = remote("http://127.0.0.1:9/v1", probe=True)
    with FakeServer() as server:
        FallbackVlm([down, remote(server.base_url, probe=True)]).prepare(HAZARD.ground(1))
    with pytest.raises(ServerError):
        FallbackVlm([down, down]).prepare(HAZARD.ground(1))


def test_a_pipeline_file_names_a_server(tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=12, rate=10)
    with FakeServer() as server:
        pipeline = {
            "vlm": {
                "model": "fake",
                "base_url": server.base_url,
                "concurrency": 3,
                "longest_side_px": 48,
                "request": {"user": "me"},
                "fallback": [{"model": "other", "base_url": server.base_url, "api": "responses"}],
            },
            "ask": {"every_s": 0.5},
        }
        run = hazardlens.process(clip, pipeline=pipeline, detector=FakeDetector(), out=tmp_path / "out")
        records = list(run)
    assert [record.vlm.status for record in records[:6]] == ["ok", *["carried"] * 4, "ok"]
    assert records[0].vlm.enforced == "server"
    assert records[0].vlm.model == f"fake at {server.base_url.removeprefix('http://')}"
    summary = json.loads((tmp_path / "out" / "clip" / "summary.json").read_text())
    assert summary["questions"]["by_enforced"] == {"server": 3}
    asked = [record.vlm for record in records if record.vlm.trigger]
    tokens = [summary["questions"][f"{kind}_tokens"] for kind in ("input", "output")]
    assert tokens == [sum(state.input_tokens for state in asked), sum(state.output_tokens for state in asked)]
    assert min(tokens) > 0
    assert server.received[-1].body["user"] == "me"


@pytest.mark.parametrize(
    ("vlm", "wrong"),
    [
        ({"base_url": "http://me:hunter2@x/v1"}, "api_key_env"),
        ({"base_url": "http://x/v1", "headers": {"X-Api-Key": "hunter2"}}, "headers_env"),
        ({"base_url": "http://x/v1", "request": {"extra_headers": {"Authorization": "hunter2"}}}, "headers_env"),
        ({"base_url": "http://x/v1", "api": "completions"}, "responses"),
        ({"base_url": "http://x/v1", "fallback": [{"model": "y", "fallback": [{"model": "z"}]}]}, "list them all"),
        ({"base_url": "http://x/v1", "concurency": 2}, "did you mean 'concurrency'"),
    ],
)
def test_bad_settings_are_refused_without_telling_secrets(vlm: dict[str, Any], wrong: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline.load({"vlm": {"model": "x", **vlm}})
    assert wrong in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_blurred_classes_must_exist() -> None:
    pipeline = Pipeline.load({"vlm": {"model": "x", "blur": ["persn"]}})
    with pytest.raises(PipelineError, match=r"vlm\.blur: the detector has no class 'persn'"):
        pipeline.check(HAZARD, ["person"])


def test_blurred_classes_of_fallbacks_must_exist() -> None:
    pipeline = Pipeline.load({"vlm": {"model": "x", "fallback": [{"model": "y", "blur": ["persn"]}]}})
    with pytest.raises(PipelineError, match=r"vlm\.fallback\.0\.blur: the detector has no class 'persn'"):
        pipeline.check(HAZARD, ["person"])


def test_a_fallback_blurs_what_the_first_choice_blurs() -> None:
    """Also where the class is set later; a fallback may name its own."""
    others = [{"model": name, "base_url": "http://127.0.0.1:9/v1", "probe": False} for name in ("b", "c")]
    vlm = {**others[0], "model": "a", "fallback": [others[0], {**others[1], "blur": ["truck"]}]}
    settled = settle({"vlm": vlm, "schema": "hazard"}, overrides={"vlm.blur": ["person"]})
    loaded = load_vlm(settled, ["person", "truck"])
    assert isinstance(loaded, FallbackVlm)
    assert [member.view.blur for member in loaded.members] == [("person",), ("person",), ("truck",)]


def test_check_tells_what_a_server_does() -> None:
    with FakeServer() as server:
        code, told = check(base_url=server.base_url)
        assert code == 0
        assert "answers" in told
        assert "pictures: seen" in told
        assert "schema hazard with 20 objects: held by the server" in told
        code, told = check(base_url=server.base_url, dialect="openai")
        assert (code, "/: the rule across fields" in told) == (0, True)
        server.behave = FAULTS["prose"]
        code, told = check(base_url=server.base_url)
        assert (code, "NOT HELD" in told) == (3, True)
        server.behave = FAULTS["denied"]
        code, told = check(base_url=server.base_url)
        assert (code, "HTTP 401: bad key" in told) == (2, True)


def test_check_is_content_without_pictures_where_none_are_sent() -> None:
    with FakeServer() as server:
        code, told = check(base_url=server.base_url, pictures=False)
        assert (code, "pictures: not sent" in told) == (0, True)
        assert not any(received.pictures for received in server.received)
        server.behave = FAULTS["prose"]
        assert check(base_url=server.base_url, pictures=False)[0] == 3


@pytest.mark.parametrize(
    ("first", "second", "code", "told"),
    [
        ("holding", "holding", 0, ("held by the server", "held by the server")),
        ("holding", "prose", 3, ("held by the server", "NOT HELD")),
        ("prose", "holding", 3, ("NOT HELD", "held by the server")),
        ("holding", "denied", 2, ("held by the server", "HTTP 401: bad key")),
        ("denied", "prose", 2, ("HTTP 401: bad key", "NOT HELD")),
    ],
)
def test_check_tells_of_fallbacks_too_and_the_worst_counts(
    first: str, second: str, code: int, told: tuple[str, str]
) -> None:
    behaviours = {**FAULTS, "holding": holding}
    with FakeServer(behaviours[first]) as one, FakeServer(behaviours[second]) as other:
        fallback = [{"model": "second", "base_url": other.base_url, "tries": 1}]
        found, said = check(model="first", base_url=one.base_url, tries=1, fallback=fallback)
    assert found == code, said
    places = [said.index(part) for part in ("first at", "second at")]
    assert places == sorted(places)
    parts = said[: places[1]], said[places[1] :]
    for part, expected in zip(parts, told, strict=True):
        assert expected in part


def test_the_command_checks_a_pipeline_file_with_its_fallback(tmp_path: Path) -> None:
    with FakeServer() as one, FakeServer(FAULTS["prose"]) as other:
        file = tmp_path / "site.yaml"
        file.write_text(
            f"schema: hazard\nmax_objects: 3\nvlm:\n  model: first\n  base_url: {one.base_url}\n"
            f"  fallback:\n  - model: second\n    base_url: {other.base_url}\n    api: responses\n"
        )
        checked = subprocess.run([HAZARDLENS, "check", str(file)], capture_output=True, text=True, cwd=tmp_path)
        assert {received.path for received in other.received} == {"/v1/responses"}
    assert checked.returncode == 3, checked.stderr
    said = " ".join(checked.stdout.split())
    assert f"first at {one.base_url.removeprefix('http://')}: answers" in said
    assert "schema hazard with 3 objects: held by the server" in said
    assert f"second at {other.base_url.removeprefix('http://')}: answers" in said
    assert "schema hazard with 3 objects: NOT HELD" in said
    missing = subprocess.run([HAZARDLENS, "check", "none.yaml"], capture_output=True, text=True, cwd=tmp_path)
    assert missing.returncode == 2
    assert "none.yaml" in missing.stderr


def test_headers_of_a_request_may_be_null() -> None:
    with FakeServer() as server:
        assert ask(remote(server.base_url, request={"extra_headers": None}, headers={"X-Site": "north"})).status == "ok"
        assert server.received[0].headers["x-site"] == "north"


def test_the_commands_take_a_server(tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=3, rate=10)
    with FakeServer() as server:
        at = ["--vlm", "fake", "--base-url", server.base_url, "--api", "responses"]
        checked = subprocess.run([HAZARDLENS, "check", *at], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
        assert "held by the server" in checked.stdout
        command = [HAZARDLENS, "process", str(clip), *at, "--concurrency", "2", "--pipeline", "demo"]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert {received.path for received in server.received} == {"/v1/responses"}
    (line, *_) = (tmp_path / "hazardlens-out" / "clip" / "records.jsonl").read_text().splitlines()
    assert json.loads(line)["vlm"]["enforced"] == "server"
