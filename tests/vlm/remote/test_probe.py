"""Proof: a server that holds the schema echoes a constant that no prompt names; one that ignores it cannot."""

import json
import logging
import math
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hazardlens.errors import ServerError
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeServer, small_instance
from hazardlens.testing.server import FAULTS, Act, Behaviour, Received, answer, error, holding, ignoring
from hazardlens.vlm.remote.dialects import DIALECTS
from hazardlens.vlm.remote.forms import form_for
from hazardlens.vlm.remote.marking import MARK, marked
from hazardlens.vlm.remote.probe import kind_of_server
from tests.vlm.remote.asking import HAZARD, ask, check, remote

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


TEXTS = {
    "choice": ({"choices": ["red", "green"]}, "green"),
    "regex": ({"regex": "[A-Z]{2}[0-9]{1,4}"}, "AB7"),
    "gbnf": ({"gbnf": 'root ::= "AB" [0-9]'}, "AB7"),
    "lark": ({"lark": 'start: "AB" /[0-9]/'}, "AB7"),
}
"""Constraints of a text, each with an answer of its form."""


class FakeConstraints:
    """A server that holds constraints of some kinds where it looks for them, and ignores all else.

    Args:
        place: `structured_outputs` or `grammar`.
        kinds: What it holds there; a grammar alone, where it stands by itself, is GBNF.
        text: What it says, as long as it is not asked for a constant.
    """

    def __init__(self, place: str, kinds: set[str], text: str) -> None:
        self._place, self._kinds, self._text = place, kinds, text

    def __call__(self, asked: Received) -> Act:
        given = asked.body.get(self._place, {})
        given = {"gbnf": given} if isinstance(given, str) else given
        held = [(kind, str(value)) for kind, value in given.items() if kind in self._kinds]
        if not held:
            return ignoring(asked)
        constant = re.search(r"(?<![0-9a-f])[0-9a-f]{8}(?![0-9a-f])", held[0][1])
        return answer(asked, constant[0] if constant else self._text)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", TEXTS)
def test_a_server_that_takes_a_constraint_of_a_text_is_seen_to_hold_that_very_kind(api: Any, kind: str) -> None:
    document, text = TEXTS[kind]
    schema = FieldSchema.load(document)
    held = FakeConstraints("structured_outputs", {"grammar" if kind in ("gbnf", "lark") else kind}, text)
    other = FakeConstraints("structured_outputs", {"json"}, text)
    for behave, enforced, status in ((held, "server", "ok"), (other, "checked", "invalid")):
        with FakeServer(behave) as server:
            vlm = remote(server.base_url, api=api, dialect="vllm", probe=True)
            vlm.prepare(schema.ground(0))
            assert vlm.enforced == enforced
            result = ask(vlm, asked=0, schema=schema)
            assert (result.status, server.received[-1].path.endswith("/responses")) == (status, api == "responses")
            assert ("must match" in server.received[-1].prompt) == (kind == "regex" and enforced == "checked")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["choice", "gbnf"])
def test_a_grammar_reaches_llama_cpp_on_both_apis(api: Any, kind: str) -> None:
    document, text = TEXTS[kind]
    schema = FieldSchema.load(document)
    with FakeServer(FakeConstraints("grammar", {"gbnf"}, text)) as server:
        vlm = remote(server.base_url, api=api, dialect="llama.cpp", probe=True)
        vlm.prepare(schema.ground(0))
        assert vlm.enforced == "server"
        assert ask(vlm, asked=0, schema=schema).status == "ok"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("dialect", "kinds"), [("json_schema", ("regex", "gbnf", "lark")), ("llama.cpp", ("regex", "lark"))]
)
def test_a_text_whose_form_is_not_sent_is_only_checked(api: Any, dialect: str, kinds: tuple[str, ...]) -> None:
    """A JSON object stands for it, and that the server holds the object says nothing of the text in it."""
    for kind in kinds:
        document, text = TEXTS[kind]
        schema = FieldSchema.load(document)
        for said, status in ((text, "ok"), ("none", "invalid")):

            def saying(asked: Received, said: str = said) -> Act:
                return answer(asked, json.dumps({"text": said}))

            with FakeServer(saying) as server:
                vlm = remote(server.base_url, api=api, dialect=dialect, probe=True)
                vlm.prepare(schema.ground(0))
                assert vlm.enforced == "checked"
                result = ask(vlm, asked=0, schema=schema)
                prompt = server.received[-1].prompt
            assert result.status == status
            assert next(iter(document.values())) in prompt, "nobody else tells the model"


@pytest.mark.parametrize("api", APIS)
def test_labels_are_proven_where_a_json_object_stands_for_them(api: Any) -> None:
    schema = FieldSchema.load({"choices": ["red", "green"]})
    for behave, enforced in ((holding, "server"), (ignoring, "checked")):
        with FakeServer(behave) as server:
            vlm = remote(server.base_url, api=api, dialect="json_schema", probe=True)
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
        vlm = remote(server.base_url, probe=True, timeout_s=0.5, probe_timeout_s=60)
        with pytest.raises(ServerError, match="holds the schema could not be seen: "):
            vlm.prepare(GROUNDED)
    assert (vlm.proof, vlm.enforced) == (None, "checked")


@pytest.mark.parametrize("fault", ["busy", "closed", "html"])
def test_a_fault_that_stays_is_no_verdict_on_pictures(fault: str) -> None:
    with FakeServer(lambda asked: FAULTS[fault](asked) if asked.pictures else holding(asked)) as server:
        vlm = remote(server.base_url, probe=True, timeout_s=0.5, probe_timeout_s=60)
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


def test_tokens_of_a_probe_that_a_server_does_not_tell_count_as_the_whole_budget() -> None:
    with FakeServer(silent) as server:
        vlm = remote(server.base_url, probe=True, pictures=False)
        vlm.prepare(GROUNDED)
        budgets = [asked.budget for asked in server.received]
    assert vlm.tokens == sum(budgets) > 0


def test_probes_are_paid_for_out_of_the_same_limit() -> None:
    with FakeServer() as server:
        vlm = remote(server.base_url, probe=True, tokens_per_run=100)
        vlm.prepare(GROUNDED)
        assert vlm.tokens > 100
        skipped = ask(vlm)
    assert (skipped.status, skipped.reason) == ("skipped", "the limit of 100 tokens is spent")


def test_blanks_that_use_up_the_first_budget_are_no_verdict() -> None:
    """Where whitespace is free, a server may fill up with it ahead of the constant."""

    def behave(asked: Received) -> Act:
        schema = asked.schema
        text = "I see a picture." if schema is None else json.dumps(small_instance(schema))
        text = text.replace("{", "{" + "\n\t" * 60, 1) if schema else text
        return answer(asked, text[: asked.budget * 2], finish="length" if asked.budget < 100 else "stop")

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, probe=True)
        vlm.prepare(GROUNDED)
    assert (vlm.dialect.name, vlm.enforced) == ("json_schema", "server")


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("text", "how"), [("", "empty"), ("  \n" * 900, "empty"), ('{ "mark"', "cut")])
def test_an_answer_that_says_nothing_is_no_verdict(
    text: str, how: str, api: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a model that thinks for longer than the budget, or under a mask that lets it fill up with blanks."""

    def behave(asked: Received) -> Act:
        return answer(asked, text, finish="length") if asked.schema else holding(asked)

    with FakeServer(behave) as server:
        for dialect, found in (("auto", "json_schema"), ("vllm", "vllm")):
            caplog.clear()
            vlm = remote(server.base_url, api=api, dialect=dialect, probe=True)
            vlm.prepare(GROUNDED)
            assert vlm.proof is not None
            assert (vlm.proof.held, vlm.proof.enforces, vlm.enforced) == ("unknown", False, "checked")
            assert vlm.dialect.name == found, "what is not refused is sent all the same"
            assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
                f"whether {vlm.name} holds the schema could not be seen: what it said was {how}, within 512 tokens; "
                "its answers are only checked afterwards"
            ]
        code, told = check(base_url=server.base_url, api=api)
    assert code == 3
    assert f"schema hazard with 20 objects: UNKNOWN (what it said was {how}, within 512 tokens)" in " ".join(
        told.split()
    )


def test_a_dialect_that_is_seen_to_hold_goes_before_one_that_is_not_seen() -> None:
    def behave(asked: Received) -> Act:
        in_body = "response_format" in asked.body
        return holding(asked) if in_body or not asked.schema else answer(asked, "", finish="length")

    with FakeServer(behave) as server:
        vlm = remote(server.base_url, api="responses", probe=True)
        vlm.prepare(GROUNDED)
    assert (vlm.dialect.name, vlm.enforced) == ("llama.cpp", "server")


def test_all_of_it_together_has_an_end() -> None:
    """A server that hangs at the schema, while one answer may take an hour."""
    with FakeServer(lambda asked: FAULTS["hang"](asked) if asked.schema else holding(asked)) as server:
        vlm = remote(server.base_url, probe=True, timeout_s=3600, probe_timeout_s=2)
        with pytest.raises(ServerError, match="no answer in time: all questions of a check together may take 2 s"):
            vlm.prepare(GROUNDED)
    assert (vlm.proof, vlm.enforced) == (None, "checked")


class FakeEndlessHeaders(socketserver.BaseRequestHandler):
    """Sends one header after the other, each in time, and never an answer."""

    def handle(self) -> None:
        self.request.recv(2**16)
        self.request.sendall(b"HTTP/1.1 200 OK\r\n")
        while not self.server.is_over.wait(0.02):  # type: ignore[attr-defined]
            try:
                self.request.sendall(b"X: y\r\n")
            except OSError:
                return


@contextmanager
def endless_headers() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), FakeEndlessHeaders) as server:
        server.is_over = threading.Event()  # type: ignore[attr-defined]
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.is_over.set()  # type: ignore[attr-defined]
            server.shutdown()
            serving.join()


def test_a_server_whose_headers_never_end_is_given_up() -> None:
    with endless_headers() as base_url:
        vlm = remote(base_url, probe=True, timeout_s=3600, probe_timeout_s=1)
        with pytest.raises(ServerError, match="no answer in time: all questions of a check together may take 1 s"):
            vlm.prepare(GROUNDED)


def test_what_is_left_unset_is_three_times_an_answer() -> None:
    given = [remote("http://127.0.0.1:9/v1", timeout_s=7), remote("http://127.0.0.1:9/v1", probe_timeout_s=5)]
    assert [vlm._line.patience.probe_s for vlm in given] == [21, 5]
