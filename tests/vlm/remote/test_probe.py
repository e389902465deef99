"""Proof: a server that holds the schema echoes a constant that no prompt names; one that ignores it cannot."""

import json
import logging
import math
from typing import Any

import pytest

from hazardlens.errors import ServerError
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeServer, small_instance
from hazardlens.testing.server import FAULTS, Act, Behaviour, Received, answer, error, holding, ignoring
from hazardlens.vlm.remote.dialects import DIALECTS
from hazardlens.vlm.remote.forms import form_for
from hazardlens.vlm.remote.probe import MARK, kind_of_server, marked
from tests.vlm.remote.asking import HAZARD, ask, remote

APIS = ("chat.completions", "responses")
GROUNDED = HAZARD.ground(2)


def only(place: str) -> Behaviour:
    """A server that holds a schema in one place of the request only, and ignores all others."""

    def behave(asked: Received) -> Act:
        found: Any = asked.body
        for step in place.split("."):
            found = found.get(step) if isinstance(found, dict) else None
        return ignoring(asked) if found is None else answer(asked, json.dumps(small_instance(found)))

    return behave


def blind(asked: Received) -> Act:
    """A server that takes pictures and drops them."""
    body = json.loads(holding(asked).body)
    body["usage"]["prompt_tokens"] = body["usage"]["input_tokens"] = 12
    return Act(body=json.dumps(body).encode())


def silent(asked: Received) -> Act:
    body = json.loads(holding(asked).body)
    del body["usage"]
    return Act(body=json.dumps(body).encode())


def without_pictures(asked: Received) -> Act:
    return error(500, "image input is not supported") if asked.pictures else holding(asked)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("dialect", ["auto", "openai", "vllm", "llama.cpp", "ollama", "lmstudio"])
def test_a_server_that_holds_the_schema_is_known_by_the_mark(api: Any, dialect: str) -> None:
    with FakeServer() as server:
        vlm = remote(server.base_url, api=api, dialect=dialect, probe=True)
        vlm.prepare(GROUNDED)
        assert vlm.proof is not None
        assert (vlm.proof.enforces, vlm.proof.images, vlm.enforced) == (True, "yes", "server")
        assert ask(vlm).reply.enforced == "server"  # type: ignore[union-attr]
    for received in server.received:
        schema = json.dumps(received.schema)
        if MARK in schema:
            mark = json.loads(schema)["properties" if "properties" in json.loads(schema) else "anyOf"]
            name = (mark if isinstance(mark, dict) else mark[0]["properties"])[MARK]["enum"][0]
            assert name not in received.prompt


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("dialect", ["auto", "openai", "json_object", "prompt", "transformers"])
def test_a_server_that_ignores_it_is_found_out_and_works_all_the_same(
    api: Any, dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    def behave(asked: Received) -> Act:
        told = asked.prompt.partition("JSON Schema:\n")[2]
        if not told:
            return ignoring(asked)
        return answer(asked, json.dumps({**small_instance(json.loads(told)), "notes": "Nothing of note."}))

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, api=api, dialect=dialect, probe=True)
        vlm.prepare(GROUNDED)
        result = ask(vlm)
    assert vlm.enforced == "checked"
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        f"{vlm.name} does not hold the schema; its answers are only checked afterwards"
    ]
    assert (result.status, result.reply.enforced) == ("ok", "checked")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("place", "api", "found"),
    [
        ("response_format.json_schema.schema", "chat.completions", "json_schema"),
        ("text.format.schema", "responses", "json_schema"),
        ("response_format.json_schema.schema", "responses", "llama.cpp"),
        ("nowhere", "responses", "prompt"),
    ],
)
def test_the_dialect_is_found_out(place: str, api: Any, found: str) -> None:
    with FakeServer(only(place)) as server:
        vlm = remote(server.base_url, api=api, probe=True)
        vlm.prepare(GROUNDED)
    assert vlm.dialect.name == found
    assert vlm.enforced == ("checked" if found == "prompt" else "server")


def test_a_server_that_gives_itself_away_is_taken_at_its_word() -> None:
    def behave(asked: Received) -> Act:
        return Act(body=json.dumps({**json.loads(holding(asked).body), "system_fingerprint": "fp_ollama"}).encode())

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, probe=True)
        vlm.prepare(GROUNDED)
    assert vlm.dialect.name == "ollama"
    assert kind_of_server({"timings": {}}) == kind_of_server({"system_fingerprint": "b7000-0123abc"}) == "llama.cpp"
    assert kind_of_server({"prompt_logprobs": None}) == "vllm"
    assert kind_of_server({"system_fingerprint": None}) is None


def test_a_later_schema_that_is_not_held_counts() -> None:
    """A server may hold the first schema of its life and drop the next one in silence."""

    def behave(asked: Received) -> Act:
        return ignoring(asked) if "detections" in json.dumps(asked.schema) else holding(asked)

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, probe=True)
        vlm.prepare(HAZARD.ground(0))
        assert vlm.enforced == "server"
        vlm.prepare(GROUNDED)
        assert vlm.enforced == "checked"


@pytest.mark.parametrize(
    ("behave", "sight"), [(holding, "yes"), (blind, "unknown"), (without_pictures, "no"), (silent, "unknown")]
)
@pytest.mark.parametrize("api", APIS)
def test_whether_it_sees(behave: Behaviour, sight: str, api: Any) -> None:
    with FakeServer(behave) as server:
        vlm = remote(server.base_url, api=api, probe=True)
        if sight == "no":
            with pytest.raises(ServerError, match="takes no pictures"):
                vlm.prepare(GROUNDED)
            words = remote(server.base_url, api=api, probe=True, pictures=False)
            words.prepare(GROUNDED)
            assert ask(words).status == "ok"
            assert not server.received[-1].pictures
        else:
            vlm.prepare(GROUNDED)
        assert vlm.proof is not None
        assert vlm.proof.images == sight


@pytest.mark.parametrize(
    ("apart", "sight", "why"),
    [
        (0.02, "yes", "two pictures give different probabilities"),
        (0.005, "unknown", "two pictures give the same tokens, and the same probabilities within 0.01"),
    ],
)
def test_probabilities_tell_where_tokens_do_not(apart: float, sight: str, why: str) -> None:
    def behave(asked: Received) -> Act:
        body = json.loads(silent(asked).body)
        is_large = sum(map(len, asked.pictures)) > 50_000
        top = [{"token": "a", "logprob": math.log(0.5 + apart * is_large)}, {"token": "b", "logprob": math.log(0.1)}]
        body["choices"][0]["logprobs"] = {"content": [{"token": "a", "logprob": 0, "top_logprobs": top}]}
        return Act(body=json.dumps(body).encode())

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, probe=True)
        vlm.prepare(GROUNDED)
    assert vlm.proof is not None
    assert (vlm.proof.images, vlm.proof.why) == (sight, why)


@pytest.mark.parametrize(
    ("fault", "advice"), [("denied", "api_key_env"), ("down", "probe: false"), ("html", "probe: false")]
)
def test_a_server_that_does_not_answer_is_an_error_before_the_first_frame(fault: str, advice: str) -> None:
    with FakeServer(FAULTS[fault]) as server, pytest.raises(ServerError, match=advice):
        remote(server.base_url, probe=True).prepare(GROUNDED)


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(ServerError, match=r"fake at 127\.0\.0\.1:9/v1 does not answer: no connection"):
        remote("http://127.0.0.1:9/v1", probe=True).prepare(GROUNDED)


def test_labels_are_proven_too() -> None:
    schema = FieldSchema.load({"choices": ["red", "green"]})

    def first(asked: Received) -> Act:
        return answer(asked, asked.body.get("structured_outputs", {"choice": ["x"]})["choice"][0])

    for dialect, behave, enforced in (
        ("vllm", first, "server"),
        ("vllm", ignoring, "checked"),
        ("json_schema", holding, "server"),
    ):  # fmt: skip
        with FakeServer(behave) as server:
            vlm = remote(server.base_url, dialect=dialect, probe=True)
            vlm.prepare(schema.ground(0))
            assert vlm.enforced == enforced


def test_a_picture_that_adds_tokens_is_not_yet_seen() -> None:
    """A server may count a fixed number for each picture and drop it."""

    def behave(asked: Received) -> Act:
        body = json.loads(holding(asked).body)
        body["usage"]["prompt_tokens"] = 12 + 7 * len(asked.pictures)
        return Act(body=json.dumps(body).encode())

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, probe=True)
        vlm.prepare(GROUNDED)
    assert vlm.proof is not None
    assert (vlm.proof.images, vlm.proof.why) == (
        "unknown",
        "the server tells neither tokens that differ nor probabilities",
    )


def test_it_is_warned_of_pictures_that_nobody_may_look_at(caplog: pytest.LogCaptureFixture) -> None:
    with FakeServer(blind) as server:
        vlm = remote(server.base_url, probe=True)
        vlm.prepare(GROUNDED)
        assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
            f"whether {vlm.name} looks at pictures could not be seen: "
            "the server tells neither tokens that differ nor probabilities"
        ]


def test_a_function_is_found_but_proves_nothing() -> None:
    """Its parameters are told to the model in words, so that a model may echo the mark without any constraint."""

    def behave(asked: Received) -> Act:
        return holding(asked) if "tools" in asked.body else ignoring(asked)

    with FakeServer(behave) as server:
        for dialect in ("auto", "function"):
            vlm = remote(server.base_url, dialect=dialect, probe=True)
            vlm.prepare(GROUNDED)
            assert (vlm.dialect.name, vlm.enforced) == ("function", "checked")
        assert ask(vlm).reply.enforced == "checked"  # type: ignore[union-attr]
        assert "JSON Schema" in server.received[-1].prompt


@pytest.mark.parametrize("fault", ["busy", "down", "gone", "closed", "reset", "html", "hang"])
@pytest.mark.parametrize("every", [2, 3])
def test_faults_that_pass_are_no_verdicts(fault: str, every: int) -> None:
    def behave(asked: Received) -> Act:
        return FAULTS[fault](asked) if asked.number % every == 0 else holding(asked)

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, probe=True, try_timeout_s=0.3)
        vlm.prepare(GROUNDED)
    assert vlm.proof is not None
    assert (vlm.proof.dialect, vlm.proof.enforces, vlm.proof.images) == ("json_schema", True, "yes")


@pytest.mark.parametrize("fault", ["busy", "down", "html", "closed"])
def test_a_fault_that_stays_is_no_verdict_on_the_schema(fault: str) -> None:
    with FakeServer(lambda asked: FAULTS[fault](asked) if asked.schema else holding(asked)) as server:
        vlm = remote(server.base_url, probe=True, timeout_s=0.5)
        with pytest.raises(ServerError, match="holds the schema could not be seen: "):
            vlm.prepare(GROUNDED)
    assert (vlm.proof, vlm.enforced) == (None, "checked")


@pytest.mark.parametrize("fault", ["busy", "closed", "html"])
def test_a_fault_that_stays_is_no_verdict_on_pictures(fault: str) -> None:
    with FakeServer(lambda asked: FAULTS[fault](asked) if asked.pictures else holding(asked)) as server:
        vlm = remote(server.base_url, probe=True, timeout_s=0.5)
        vlm.prepare(GROUNDED)
    assert vlm.proof is not None
    assert vlm.proof.images == "unknown"


def test_a_server_that_went_down_is_not_called_blind() -> None:
    gone: list[bool] = []

    def behave(asked: Received) -> Act:
        gone.extend([True] * bool(asked.pictures))
        return FAULTS["down"](asked) if gone else holding(asked)

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, probe=True)
        vlm.prepare(GROUNDED)
    assert vlm.proof is not None
    assert (vlm.proof.images, vlm.proof.why) == ("unknown", "HTTP 500: out of memory")


def test_probabilities_are_given_up_only_where_they_are_refused() -> None:
    def refusing(asked: Received) -> Act:
        return error(400, "no logprobs") if "logprobs" in asked.body else holding(asked)

    def passing(asked: Received) -> Act:
        return FAULTS["down"](asked) if asked.number == 2 else holding(asked)

    for behave, without in ((refusing, 2), (passing, 0)):
        with FakeServer(behave) as server:
            vlm = remote(server.base_url, probe=True)
            vlm.prepare(GROUNDED)
        assert vlm.proof is not None
        assert vlm.proof.images == "yes"
        assert sum(bool(asked.pictures) and "logprobs" not in asked.body for asked in server.received) == without


def test_a_probe_is_never_a_stream() -> None:
    with FakeServer() as server:
        remote(server.base_url, probe=True, request={"stream": True}).prepare(GROUNDED)
        assert all(asked.body["stream"] is False for asked in server.received)


@pytest.mark.parametrize("row", DIALECTS.values(), ids=lambda row: row.name)
def test_the_mark_stands_first_and_is_required(row: Any) -> None:
    document = marked(form_for(GROUNDED, row).document, "abcd1234")
    assert next(iter(small_instance(document).items())) == (MARK, "abcd1234")


def test_the_probe_counts_tokens_but_is_no_question() -> None:
    with FakeServer() as server:
        vlm = remote(server.base_url, probe=True, calls_per_minute=1)
        vlm.prepare(GROUNDED)
        assert vlm.tokens > 0
        assert [ask(vlm, index).status for index in range(2)] == ["ok", "skipped"]
