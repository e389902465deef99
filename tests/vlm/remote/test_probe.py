"""Proof: a server that holds the schema echoes a constant that no prompt names; one that ignores it cannot."""

import json
import logging
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
@pytest.mark.parametrize("dialect", ["auto", "openai", "vllm", "llama.cpp", "ollama", "lmstudio", "function"])
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
    ("behave", "sight"), [(holding, "yes"), (blind, "no"), (without_pictures, "no"), (silent, "unknown")]
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


def test_probabilities_tell_where_tokens_do_not() -> None:
    def behave(asked: Received) -> Act:
        body = json.loads(silent(asked).body)
        top = [{"token": "a", "logprob": -float(sum(map(len, asked.pictures)))}]
        body["choices"][0]["logprobs"] = {"content": [{"token": "a", "logprob": 0, "top_logprobs": top}]}
        return Act(body=json.dumps(body).encode())

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, probe=True)
        vlm.prepare(GROUNDED)
    assert vlm.proof is not None
    assert (vlm.proof.images, vlm.proof.why) == ("yes", "two pictures give different probabilities")


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
