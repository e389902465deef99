"""The remote VLM against a fake server: requests, statuses, tries, and what all questions share."""

import json
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.JpegImagePlugin import get_sampling

from hazardlens.errors import PipelineError, SchemaError
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeServer
from hazardlens.testing.server import FAULTS, Act, Received, answer, error, holding, ignoring
from hazardlens.vlm.base import Answer, View
from hazardlens.vlm.remote import reuse
from hazardlens.vlm.remote.model import RemoteVlm
from tests.vlm.remote.asking import HAZARD, ask, opened, question, remote

APIS = ("chat.completions", "responses")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def then_well(fault: str, times: int = 1) -> Any:
    """A server that has a fault a few times, then none."""
    return lambda asked: FAULTS[fault](asked) if asked.number < times else holding(asked)


@pytest.mark.parametrize("api", APIS)
def test_a_question_is_answered(server: FakeServer, api: Any) -> None:
    vlm = remote(server.base_url, api=api)
    result = ask(vlm)
    assert (result.status, result.reason) == ("ok", None)
    assert result.fields is not None
    assert [entry["id"] for entry in result.fields["detections"]] == [0, 1]
    assert result.reply is not None
    assert json.loads(result.reply.told or "")["detections"].keys() == {"0", "1"}, "raw is what the server said"
    assert result.reply.input_tokens is not None
    assert vlm.tokens == result.reply.input_tokens + (result.reply.output_tokens or 0)
    (received,) = server.received
    assert received.path == f"/v1/{api.replace('.', '/')}"
    assert received.body["stream"] is False
    assert received.body["model"] == "fake"
    assert received.body["temperature"] == 0
    assert "never an instruction" in received.prompt
    vlm.close()


@pytest.mark.parametrize("api", APIS)
def test_every_request_goes_through_the_llm_of_ultralytics(
    server: FakeServer, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ultralytics import LLM

    calls = []
    now, later = LLM.__call__, LLM.async_call

    def seen_now(self: Any, *given: Any, **named: Any) -> Any:
        calls.append(("now", self.api))
        return now(self, *given, **named)

    async def seen_later(self: Any, *given: Any, **named: Any) -> Any:
        calls.append(("later", self.api))
        return await later(self, *given, **named)

    monkeypatch.setattr(LLM, "__call__", seen_now)
    monkeypatch.setattr(LLM, "async_call", seen_later)
    vlm = remote(server.base_url, api=api, probe=True)
    vlm.prepare(question().schema)
    assert ask(vlm).status == "ok"
    assert len(calls) == server.count
    assert set(calls) == {("now", api), ("later", api)}


@pytest.mark.parametrize("api", APIS)
def test_pictures_are_jpeg_of_the_size_and_quality_asked_for(server: FakeServer, api: Any) -> None:
    for quality in (30, 95):
        vlm = remote(server.base_url, api=api, jpeg_quality=quality, view=View(longest_side_px=40, crops_px=16))
        asked = question(asked=3)
        asked.frame.image[:] = np.random.default_rng(0).integers(0, 256, asked.frame.image.shape)
        vlm.ask(asked, _shown(vlm, asked), threading.Event())
    sizes, sampling = list[int](), list[int]()
    for received in server.received:
        (message,) = received.body.get("messages") or received.body["input"]
        assert [part["type"].removeprefix("input_") for part in message["content"]][-1] == "text"
        first, second = (opened(uri) for uri in received.pictures)
        assert (first.size, second.size) == ((40, 27), (64, 64))
        sizes.append(sum(map(len, received.pictures)))
        sampling.append(get_sampling(first))
    assert sizes[0] < 0.7 * sizes[1]
    assert sampling == [2, 0], "4:2:0, and none for fine pictures"


def _shown(vlm: RemoteVlm, asked: Any) -> Any:
    from hazardlens.vlm.prompt import show

    return show(asked, vlm.view)


def test_a_picture_is_encoded_once_for_all_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = []
    save = Image.Image.save
    monkeypatch.setattr(Image.Image, "save", lambda self, *a, **k: (encoded.append(a), save(self, *a, **k))[1])
    with FakeServer(then_well("down", 3)) as server:
        assert ask(remote(server.base_url)).attempts == 4
    assert len(encoded) == 1


def test_requests_are_passed_on_unchanged(server: FakeServer) -> None:
    request = {"temperature": None, "top_p": 0.5, "user": "me", "extra_body": {"cache_prompt": True},
               "extra_headers": {"X-Team": "yard"}}  # fmt: skip
    ask(remote(server.base_url, request=request, headers={"X-Site": "north"}))
    (received,) = server.received
    assert "temperature" not in received.body
    assert (received.body["top_p"], received.body["user"], received.body["cache_prompt"]) == (0.5, "me", True)
    assert (received.headers["x-site"], received.headers["x-team"]) == ("north", "yard")


@pytest.mark.parametrize(
    ("fault", "status", "tries"),
    [
        ("reset", "error", 4),
        ("closed", "error", 4),
        ("quota", "error", 1),
        ("down", "error", 4),
        ("gone", "error", 4),
        ("detail", "error", 4),
        ("plain", "error", 4),
        ("denied", "error", 1),
        ("rejected", "error", 1),
        ("moved", "error", 1),
        ("html", "error", 4),
        ("empty", "error", 4),
        ("nothing", "error", 4),
        ("null", "error", 4),
        ("list", "error", 4),
        ("stream", "error", 4),
        ("half_json", "error", 4),
        ("json_lines", "error", 4),
        ("deep", "error", 4),
        ("packed", "error", 1),
        ("gigabyte", "error", 1),
        ("endless", "error", 1),
        ("cut", "truncated", 2),
        ("cut_silently", "truncated", 2),
        ("invalid", "invalid", 2),
        ("prose", "invalid", 2),
        ("two_answers", "invalid", 2),
        ("surrogates", "invalid", 2),
        ("outer_surrogates", "invalid", 2),
        ("twice", "invalid", 2),
        ("refusal", "refused", 1),
        ("refusal_in_words", "refused", 1),
        ("refusal_in_a_field", "refused", 1),
        ("filtered", "refused", 1),
        ("fenced", "ok", 1),
        ("thinking", "ok", 1),
        ("wrong_type", "ok", 1),
    ],
)
@pytest.mark.parametrize("api", APIS)
def test_each_failure_has_its_status_and_its_number_of_tries(api: Any, fault: str, status: str, tries: int) -> None:
    with FakeServer(FAULTS[fault]) as server:
        vlm = remote(server.base_url, api=api)
        result = ask(vlm)
        vlm.close()
    assert (result.status, server.count, result.attempts) == (status, tries, tries), result.reason
    assert (result.fields is not None) == (status == "ok")
    assert (result.reason is None) == (status == "ok")


@pytest.mark.parametrize(
    ("code", "tries"),
    [
        *((code, 1) for code in (400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 425, 451)),
        *((code, 4) for code in (500, 502, 503, 504, 529)),
    ],
)
def test_what_a_status_code_means(code: int, tries: int) -> None:
    """No refusal of a request is sent again, 429 apart; the server's own faults are."""
    with FakeServer(lambda asked: error(code, "no")) as server:
        vlm = remote(server.base_url)
        result = ask(vlm)
    assert (result.status, server.count, result.reason) == (
        "error",
        tries,
        f"HTTP {code}: no" + (f" ({tries} tries)" if tries > 1 else ""),
    )
    assert vlm._line.breaker.fail_counter == (tries if tries > 1 else 0)


@pytest.mark.parametrize("fault", ["hang", "drip"])
@pytest.mark.parametrize("api", APIS)
def test_a_server_that_takes_too_long_is_given_up(api: Any, fault: str) -> None:
    with FakeServer(FAULTS[fault]) as server:
        result = ask(remote(server.base_url, api=api, timeout_s=0.5))
    assert result.status == "timeout"
    assert server.count == 1


@pytest.mark.parametrize(
    "fault", ["hang", "drip", "reset", "down", "html", "busy", "busy_date", "busy_riddle", "invalid"]
)
def test_what_passes_is_tried_again(fault: str) -> None:
    with FakeServer(then_well(fault)) as server:
        result = ask(remote(server.base_url, try_timeout_s=0.3))
    assert (result.status, server.count) == ("ok", 2), result.reason


def test_the_connection_that_a_server_dropped_is_made_anew() -> None:
    with FakeServer(lambda asked: FAULTS["closed"](asked) if asked.number == 1 else holding(asked)) as server:
        vlm = remote(server.base_url)
        assert [ask(vlm, index).attempts for index in range(3)] == [1, 2, 1]


def test_an_invalid_answer_is_asked_for_again_with_what_is_wrong() -> None:
    with FakeServer(FAULTS["invalid"]) as server:
        result = ask(remote(server.base_url))
    first, second = server.received
    assert "dragon" not in first.prompt
    assert "'dragon' is not one of" in second.prompt
    assert result.reply is not None
    assert result.reply.told == '{"hazard": "dragon"}'
    assert result.reason is not None
    assert "dragon" in result.reason


@pytest.mark.parametrize("api", APIS)
def test_half_a_surrogate_pair_neither_breaks_the_next_try_nor_speaks_against_the_server(api: Any) -> None:
    with FakeServer(then_well("outer_surrogates")) as server:
        vlm = remote(server.base_url, api=api)
        result = ask(vlm)
        assert (result.status, result.attempts, server.count) == ("ok", 2, 2)
        assert "\ufffd half a pair" in server.received[1].prompt
        server.behave = FAULTS["outer_surrogates"]
        result = ask(vlm)
    assert result.reply is not None
    assert "\ufffd half a pair" in str(result.reply.told)
    for said in (result.reason, result.reply.told, result.reply.text):
        assert str(said).encode()
    assert vlm._line.breaker.fail_counter == 0


@pytest.mark.parametrize("schema", [HAZARD, FieldSchema.load({"gbnf": "root ::= [^X]+"})])
def test_an_answer_that_only_a_mark_in_place_of_half_a_pair_would_make_valid_is_invalid(schema: FieldSchema) -> None:
    fields = {"notes": "\ud800" * 10, "hazard": "none", "severity": "none", "detections": []}
    said = json.dumps(fields, ensure_ascii=False)
    with FakeServer(lambda asked: answer(asked, said)) as server:
        result = ask(remote(server.base_url, dialect="vllm"), asked=0, schema=schema)
    assert (result.status, result.fields, server.count) == ("invalid", None, 2), result.reason
    assert "surrogate" in str(result.reason)


def test_halves_of_a_surrogate_pair_outside_of_a_valid_answer_reach_no_record() -> None:
    def behave(asked: Received) -> Act:
        whole = json.loads(json.loads(holding(asked).body)["choices"][0]["message"]["content"])
        return answer(asked, "<think>\ud800\U0001f525</think>" + json.dumps(whole))

    with FakeServer(behave) as server:
        result = ask(remote(server.base_url))
    assert result.status == "ok", result.reason
    assert result.reply is not None
    assert (result.reply.told or "").startswith("<think>\ufffd\U0001f525</think>")


@pytest.mark.parametrize("value", ["\ud800", float("nan")])
def test_a_request_that_cannot_be_written_is_the_callers_fault(server: FakeServer, value: Any) -> None:
    vlm = remote(server.base_url, request={"extra_body": {"stop": value}}, breaker_failures=2)
    for _ in range(3):
        result = ask(vlm)
        assert (result.status, result.attempts, server.count) == ("error", 0, 0)
        assert str(result.reason).startswith("the request cannot be written: ")
    assert vlm._line.breaker.fail_counter == 0


def test_a_request_that_cannot_be_written_is_no_success_of_the_server_either() -> None:
    with FakeServer(FAULTS["down"]) as server:
        vlm = remote(server.base_url, tries=1, breaker_failures=2)
        for count, request in ((1, {}), (1, {"extra_body": {"stop": float("nan")}}), (2, {})):
            vlm._request = request
            assert ask(vlm).status == "error"
            assert (vlm._line.breaker.fail_counter, server.count) == (count, count)


def test_a_cut_answer_is_asked_for_again_with_a_larger_budget() -> None:
    def behave(asked: Received) -> Act:
        return FAULTS["cut"](asked) if asked.budget < 150 else holding(asked)

    with FakeServer(behave) as server:
        assert ask(remote(server.base_url, max_new_tokens=100)).status == "ok"
    assert [received.budget for received in server.received] == [100, 200]


def test_what_went_wrong_before_says_more_than_that_the_time_is_up() -> None:
    def behave(asked: Received) -> Act:
        return FAULTS["invalid"](asked) if asked.number == 0 else FAULTS["hang"](asked)

    with FakeServer(behave) as server:
        result = ask(remote(server.base_url, timeout_s=1.5))
    assert (result.status, result.attempts) == ("invalid", 2)


def test_where_the_context_has_no_room_for_more_the_answer_stays_cut() -> None:
    def behave(asked: Received) -> Act:
        return FAULTS["cut"](asked) if asked.budget < 150 else error(400, "max_tokens is too large")

    with FakeServer(behave) as server:
        result = ask(remote(server.base_url, max_new_tokens=100))
    assert result.status == "truncated"
    assert result.reply is not None
    assert (result.reply.told or "").startswith('{"notes": "x')


FIRST_AND_THEN = [
    ("cut", "down", "truncated", "token budget"),
    ("cut", "html", "truncated", "token budget"),
    ("cut", "hang", "truncated", "token budget"),
    ("cut", "rejected", "truncated", "token budget"),
    ("invalid", "down", "invalid", "dragon"),
    ("invalid", "rejected", "invalid", "dragon"),
    ("cut", "invalid", "invalid", "dragon"),
    ("down", "cut", "truncated", "token budget"),
]


@pytest.mark.parametrize(("first", "then", "status", "told"), FIRST_AND_THEN)
def test_what_was_said_is_not_hidden_by_faults_of_later_tries(first: str, then: str, status: str, told: str) -> None:
    with FakeServer(lambda asked: FAULTS[then if asked.number else first](asked)) as server:
        result = ask(remote(server.base_url, try_timeout_s=0.2, tries=2))
        assert server.count >= 2
    assert result.status == status
    assert told in str(result.reason)
    assert result.reply is not None
    assert result.reply.told
    assert result.attempts == server.count


def test_a_reason_tells_also_why_asking_again_was_in_vain() -> None:
    with FakeServer(lambda asked: FAULTS["down" if asked.number else "cut"](asked)) as server:
        result = ask(remote(server.base_url, tries=2))
    assert result.reason == (
        "the answer was cut by the token budget: length; asked again: HTTP 500: out of memory (3 tries)"
    )


@pytest.mark.parametrize("headers", [{"Retry-After": "0.6"}, {}])
def test_a_server_that_is_busy_holds_the_whole_lane(headers: dict[str, str]) -> None:
    """While one question waits, as long as the server asks or as waits have grown, another one is not sent either."""
    held = threading.Event()

    def behave(asked: Received) -> Act:
        if asked.number == 0:
            held.set()
            return error(429, headers=headers)
        return holding(asked)

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, concurrency=2, first_wait_s=0.6)
        first = threading.Thread(target=ask, args=(vlm, 0))
        first.start()
        assert held.wait(5)
        while first.is_alive() and not vlm._line.gate.closed_s:
            first.join(0.01)
        other = ask(vlm, 1)
        first.join()
    assert other.status == "ok"
    assert other.latency_s > 0.2
    assert server.count == 3


def test_a_question_that_is_always_turned_away_keeps_no_other_from_being_asked() -> None:
    def behave(asked: Received) -> Act:
        return error(429) if asked.pictures == server.received[0].pictures else holding(asked)

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, concurrency=2, first_wait_s=0.1, timeout_s=3.0)
        results = list[Answer]()
        first = threading.Thread(target=lambda: results.append(ask(vlm, 0)))
        first.start()
        while not server.count:
            first.join(0.01)
        others = [ask(vlm, index) for index in range(1, 6)]
        first.join()
    assert [other.status for other in others] == ["ok"] * 5, [other.reason for other in others]
    assert [result.status for result in results] == ["error"]
    assert "HTTP 429" in str(results[0].reason)


def test_what_became_of_a_question_says_more_than_that_it_would_have_to_wait() -> None:
    def behave(asked: Received) -> Act:
        if asked.number:
            return error(429, headers={"Retry-After": "900"})
        vlm._line.gate.hold(900.0)
        return FAULTS["invalid"](asked)

    with FakeServer(behave) as server:
        vlm = remote(server.base_url)
        result = ask(vlm)
    assert (result.status, result.attempts, server.count) == ("invalid", 1, 1)
    assert "dragon" in str(result.reason)


def test_a_wait_longer_than_an_answer_may_take_is_not_waited_for() -> None:
    with FakeServer(lambda asked: error(429, headers={"Retry-After": "900"})) as server:
        vlm = remote(server.base_url)
        assert ask(vlm).status == "error"
        later = ask(vlm)
    assert later.reason is not None
    assert "asks to wait" in later.reason
    assert server.count == 1


def test_a_server_that_fails_in_a_row_is_left_alone_and_tried_again_later() -> None:
    with FakeServer(then_well("down", 3)) as server:
        vlm = remote(server.base_url, tries=1, breaker_failures=3, breaker_reset_s=0.2)
        assert [ask(vlm).status for _ in range(3)] == ["error"] * 3
        shut = ask(vlm)
        assert (shut.status, shut.attempts, server.count) == ("error", 0, 3)
        assert shut.reason is not None
        assert "left alone" in shut.reason
        while ask(vlm).status != "ok":
            threading.Event().wait(0.05)
        assert server.count == 4


def test_a_busy_or_refusing_server_is_not_broken() -> None:
    with FakeServer(lambda asked: FAULTS[("denied", "refusal")[asked.number % 2]](asked)) as server:
        vlm = remote(server.base_url, breaker_failures=2)
        for _ in range(5):
            ask(vlm)
    assert server.count == 5


def test_calls_a_minute_are_limited(server: FakeServer) -> None:
    vlm = remote(server.base_url, calls_per_minute=2)
    results = [ask(vlm, index) for index in range(3)]
    assert [result.status for result in results] == ["ok", "ok", "skipped"]
    assert results[2].reason == "the limit of 2 calls a minute is spent"
    assert results[2].reply is not None
    assert results[2].reply.told is None
    assert server.count == 2


def test_tokens_a_run_are_limited(server: FakeServer) -> None:
    vlm = remote(server.base_url, tokens_per_run=1)
    assert [ask(vlm, index).status for index in range(2)] == ["ok", "skipped"]


def test_calls_in_flight_when_the_tokens_are_spent_are_finished(server: FakeServer) -> None:
    """So that as many answers may go beyond the limit as are asked for at once, and none more."""
    together = threading.Barrier(3)

    def behave(asked: Received) -> Act:
        return replace(holding(asked), wait_s=0.3)

    server.behave = behave
    vlm, results = remote(server.base_url, concurrency=3, tokens_per_run=1), list[Answer]()

    def asking(index: int) -> None:
        together.wait()
        results.append(ask(vlm, index))

    threads = [threading.Thread(target=asking, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.status for result in results] == ["ok"] * 3
    assert (ask(vlm, 3).status, server.count) == ("skipped", 3)


def test_tokens_that_a_server_does_not_tell_count_as_the_whole_budget() -> None:
    def behave(asked: Received) -> Act:
        body = json.loads(holding(asked).body)
        del body["usage"]
        return Act(body=json.dumps(body).encode())

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, max_new_tokens=100)
        result = ask(vlm)
    assert result.reply is not None
    assert (result.reply.input_tokens, result.reply.output_tokens, vlm.tokens) == (None, None, 100)


def test_an_answer_is_reused_for_the_same_bytes_only(server: FakeServer) -> None:
    vlm = remote(server.base_url, reuse=True)
    first, again, other = ask(vlm, 7), ask(vlm, 7), ask(vlm, 8)
    assert first.reply is not None
    assert again.reply is not None
    assert other.reply is not None
    assert (first.reply.reused, again.reply.reused, other.reply.reused) == (False, True, False)
    assert again.fields == first.fields
    assert (again.reply.output_tokens, again.attempts, server.count) == (0, 0, 2)


def test_what_is_kept_for_reuse_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reuse, "_KEPT_BYTES", 10_000)

    def behave(asked: Received) -> Act:
        whole = json.loads(json.loads(holding(asked).body)["choices"][0]["message"]["content"])
        return answer(asked, f"<think>{'x' * 4_000}</think>{json.dumps(whole)}")

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, reuse=True)
        for index in (0, 1, 1, 2, 2, 0):
            assert ask(vlm, index).status == "ok"
        assert server.count == 4, "the last two are kept"
    assert vlm._reuse is not None
    assert vlm._reuse._bytes == sum(map(reuse._size, vlm._reuse._replies.values())) <= 10_000


@pytest.mark.parametrize("fault", ["invalid", "refused", "truncated", "ok"])
def test_of_a_large_answer_no_more_is_kept_than_records_keep(fault: str) -> None:
    """Beside a valid one, which is what its fields are made of."""
    large = "\u00e9" * 2**20

    def behave(asked: Received) -> Act:
        whole = json.loads(json.loads(holding(asked).body)["choices"][0]["message"]["content"])
        valid = f"<think>{large}</think>{json.dumps(whole)}"
        said = {"ok": valid, "refused": f"I cannot help. {large}"}.get(fault, f'{{"hazard": "{large}')
        return answer(asked, said, finish="length" if fault == "truncated" else "stop")

    with FakeServer(behave) as server:
        result = ask(remote(server.base_url, max_new_tokens=10_000_000))
    assert result.status == fault
    assert result.reply is not None
    assert result.reply.told is not None
    assert 2**16 - 2 <= len(result.reply.told.encode()) <= 2**16
    assert re.search(r"\.\.\. \[cut, 2,097,\d\d\d bytes in all\]$", result.reply.told)
    assert sys.getsizeof(result.reply.text) < 200_000
    assert len(result.reason or "") < 5_000


def test_a_failed_answer_is_never_reused() -> None:
    with FakeServer(FAULTS["invalid"]) as server:
        vlm = remote(server.base_url, reuse=True)
        assert [ask(vlm).status, ask(vlm).status, server.count] == ["invalid", "invalid", 4]


def test_a_question_that_nobody_waits_for_ends() -> None:
    stop = threading.Event()
    stop.set()
    with FakeServer(FAULTS["hang"]) as server:
        vlm = remote(server.base_url, timeout_s=60.0)
        asked = question()
        with pytest.raises(TimeoutError, match="stopped"):
            vlm.ask(asked, _shown(vlm, asked), stop)


def test_choices_are_asked_for_as_the_server_takes_them() -> None:
    schema = FieldSchema.load({"choices": ["red", "green"]})
    with FakeServer(lambda asked: answer(asked, "green")) as server:
        vlm = remote(server.base_url, dialect="vllm")
        result = ask(vlm, asked=0, schema=schema)
    assert result.fields == {"label": "green"}
    assert server.received[0].body["structured_outputs"] == {"choice": ["red", "green"]}
    with FakeServer() as server:
        assert ask(remote(server.base_url), asked=0, schema=schema).fields == {"label": "red"}


def test_a_text_that_was_cut_is_never_taken_for_an_answer() -> None:
    schema = FieldSchema.load({"regex": "[0-9]{1,9}"})

    def behave(asked: Received) -> Act:
        body = json.loads(answer(asked, "123").body)
        body["usage"]["completion_tokens"] = asked.budget
        return Act(body=json.dumps(body).encode())

    with FakeServer(behave) as server:
        assert ask(remote(server.base_url, dialect="vllm"), asked=0, schema=schema).status == "truncated"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("end", ["stop", "length", "abort", "null", "missing"])
def test_a_text_counts_only_where_the_server_says_that_it_is_whole(api: Any, end: str) -> None:
    """A number that was cut is a number; JSON says by itself where it ends."""

    def behave(asked: Received) -> Act:
        body = json.loads(answer(asked, said).body)
        part, name = (body["choices"][0], "finish_reason") if asked.is_chat else (body, "status")
        if end == "missing":
            del part[name]
        elif end != "stop":
            part[name] = {"null": None, "length": "length" if asked.is_chat else "incomplete"}.get(end, end)
        return Act(body=json.dumps(body).encode())

    schema = FieldSchema.load({"regex": "[0-9]{1,9}"})
    with FakeServer(behave) as server:
        vlm = remote(server.base_url, api=api, dialect="vllm")
        for said, taken in (("123", ("stop",)), ('{"text": "123"}', ("stop", "abort", "null", "missing"))):
            result = ask(vlm, asked=0, schema=schema)
            assert result.status == ("ok" if end in taken else "truncated"), (said, result.reason)


@pytest.mark.parametrize("place", ["request", "extra_body"])
def test_a_budget_that_the_request_names_is_the_budget(place: str) -> None:
    """It is left as it is, so that no larger one is tried, and an answer that took all of it is cut."""
    request: dict[str, Any] = {"max_tokens": 40} if place == "request" else {"extra_body": {"max_tokens": 40}}
    with FakeServer(lambda asked: FAULTS["cut_silently"](asked)) as server:
        result = ask(remote(server.base_url, request=request))
        assert (result.status, server.count) == ("truncated", 1)
        assert "though the server says" in str(result.reason)
        assert [received.budget for received in server.received] == [40]
        vlm = remote(server.base_url, request={"max_tokens": None, "max_completion_tokens": 60})
        assert (ask(vlm).status, server.count) == ("truncated", 2)
        assert server.received[-1].budget == 60
        server.behave = FAULTS["cut"]
        vlm = remote(server.base_url, request={"max_tokens": None})
        assert (ask(vlm).status, server.count) == ("truncated", 3)


def test_an_answer_within_a_budget_that_the_request_enlarged_is_not_cut() -> None:
    def behave(asked: Received) -> Act:
        body = json.loads(holding(asked).body)
        body["choices"][0]["message"]["content"] = '{"hazard": "dragon"}'
        body["usage"]["completion_tokens"] = 150
        return Act(body=json.dumps(body).encode())

    with FakeServer(behave) as server:
        assert ask(remote(server.base_url, max_new_tokens=100, request={"max_tokens": 900})).status == "invalid"


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"base_url": "ftp://x/v1"}, "expected a URL"),
        ({"base_url": "x"}, "expected a URL"),
        ({"base_url": "http://x:99999/v1"}, "expected a URL"),
        ({"base_url": "http://x/v1", "dialect": "vlm"}, "no dialect 'vlm'"),
        ({"base_url": "http://x/v1", "api_key_env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE is not set"),
        ({"base_url": "http://x/v1", "headers_env": {"X-Key": "NOT_SET_ANYWHERE"}}, "NOT_SET_ANYWHERE is not set"),
        ({"base_url": "http://x/v1", "ca_file": "/no/such/file"}, "no certificates"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(PipelineError, match=wrong):
        RemoteVlm("fake", **settings)


def test_too_large_a_schema_is_an_error_before_any_call(server: FakeServer) -> None:
    wide = FieldSchema.load(
        {"type": "object", "properties": {f"f{i}": {"enum": [f"{i}-{j}" for j in range(60)]} for i in range(20)}}
    )
    with pytest.raises(SchemaError, match="too large"):
        remote(server.base_url, dialect="openai", probe=True).prepare(wide.ground(0))
    assert server.count == 0


def test_the_schema_is_told_in_words_where_it_is_not_known_to_be_held(server: FakeServer) -> None:
    vlm = remote(server.base_url, probe=True)
    ask(vlm)
    vlm.prepare(question().schema)
    assert vlm.enforced == "server"
    ask(vlm)
    assert "JSON Schema" in server.received[0].prompt
    assert "JSON Schema" not in server.received[-1].prompt
    with FakeServer(ignoring) as other:
        assert ask(remote(other.base_url)).status == "invalid"
