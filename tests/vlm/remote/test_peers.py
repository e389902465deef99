"""Real servers: what each is believed to do is seen, and what they do wrong is survived."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hazardlens
from hazardlens.errors import ServerError
from hazardlens.record import FrameRecord
from hazardlens.resources import data_path, shipped_model
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeDetector
from hazardlens.testing.video import draw_video
from hazardlens.vlm.base import Question, Reply, Shown, View
from hazardlens.vlm.local import LocalVlm
from hazardlens.vlm.remote.connection import Connection, Endpoint, messages_for
from hazardlens.vlm.remote.loop import submit
from hazardlens.vlm.remote.model import RemoteVlm
from hazardlens.vlm.remote.pictures import data_uri
from tests import random_gguf
from tests.random_vlm import build
from tests.servers.peers import NAME, llama_cpp, smollm2, transformers_serve, vllm
from tests.vlm.remote.asking import HAZARD, ask, check, opened, question

APIS = ("chat.completions", "responses")
SMALL = FieldSchema.load(
    {
        "type": "object",
        "properties": {"notes": {"type": "string", "maxLength": 20}, "hazard": {"enum": ["none", "fire", "spill"]}},
        "required": ["notes", "hazard"],
        "additionalProperties": False,
    }
)
TEXTS = [
    {"choices": ["red light", "green"]},
    {"regex": "[A-Z]{2}[0-9]{1,4}"},
    {"gbnf": 'root ::= "AB" [0-9] | "none"'},
    {"lark": 'start: "AB" /[0-9]/ | "none"'},
]
pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def remote(base_url: str, *, model: str = NAME, **settings: Any) -> RemoteVlm:
    return RemoteVlm(model, base_url=base_url, **{"timeout_s": 240, "tries": 2, **settings})


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with llama_cpp(smollm2(), tmp_path_factory.mktemp("llama") / "log") as base_url:
        yield base_url


@pytest.mark.parametrize("api", APIS)
def test_llama_cpp_is_known_and_holds_the_schema(llama: str, api: Any) -> None:
    vlm = remote(llama, api=api, pictures=False, max_new_tokens=400)
    vlm.prepare(HAZARD.ground(1))
    assert (vlm.dialect.name, vlm.enforced) == ("llama.cpp", "server")
    result = ask(vlm, asked=1)
    assert result.status == "ok", result.reason
    assert result.reply is not None
    assert result.reply.input_tokens
    assert result.fields is not None
    assert [entry["id"] for entry in result.fields["detections"]] == [0]


@pytest.mark.parametrize("api", APIS)
def test_sampled_answers_of_llama_cpp_are_valid(llama: str, api: Any) -> None:
    vlm = remote(llama, api=api, pictures=False, temperature=1.0, dialect="llama.cpp", probe=False)
    vlm.enforced = "server"
    answers = [ask(vlm, index, asked=0, schema=SMALL) for index in range(10)]
    assert [answer.status for answer in answers] == ["ok"] * 10, [answer.reason for answer in answers]
    assert {answer.attempts for answer in answers} == {1}


def test_the_row_of_servers_that_are_not_known_holds_the_schema_on_chat(llama: str) -> None:
    """What `auto` tries first, on a server that does not say what it is."""
    vlm = remote(llama, dialect="json_schema", pictures=False, max_new_tokens=400)
    vlm.prepare(HAZARD.ground(1))
    assert vlm.enforced == "server"
    result = ask(vlm, asked=1)
    assert (result.status, result.attempts) == ("ok", 1), result.reason
    assert [entry["id"] for entry in (result.fields or {})["detections"]] == [0]


def test_llama_cpp_takes_labels_as_a_grammar(llama: str) -> None:
    schema = FieldSchema.load({"choices": ["red light", "green light"]})
    vlm = remote(llama, pictures=False)
    vlm.prepare(schema.ground(0))
    assert vlm.enforced == "server"
    result = ask(vlm, asked=0, schema=schema)
    assert result.status == "ok", result.reason
    assert result.fields is not None
    assert result.fields["label"] in ("red light", "green light")


def test_llama_cpp_drops_a_schema_where_it_does_not_look_and_is_found_out(llama: str) -> None:
    vlm = remote(llama, api="responses", dialect="json_schema", pictures=False)
    vlm.prepare(SMALL.ground(0))
    assert vlm.enforced == "checked"


def test_a_model_without_eyes_is_refused_before_the_first_frame(llama: str) -> None:
    with pytest.raises(ServerError, match="takes no pictures"):
        remote(llama).prepare(SMALL.ground(0))


@pytest.mark.parametrize("api", APIS)
def test_an_answer_that_llama_cpp_cut_is_not_taken_for_whole(llama: str, api: Any) -> None:
    vlm = remote(llama, api=api, dialect="llama.cpp", pictures=False, max_new_tokens=3, probe=False)
    assert ask(vlm, asked=0, schema=SMALL).status == "truncated"


@pytest.fixture(scope="module")
def seeing(random_vlm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("seeing")
    text, mmproj = random_gguf.build(random_vlm_folder, folder)
    with llama_cpp(text, folder / "log", mmproj=mmproj) as base_url:
        yield base_url


@pytest.mark.parametrize("api", APIS)
def test_llama_cpp_with_eyes_is_seen_to_look_and_to_hold_the_schema(seeing: str, api: Any) -> None:
    vlm = remote(seeing, api=api, max_new_tokens=1500)
    vlm.prepare(HAZARD.ground(2))
    assert vlm.proof is not None
    assert (vlm.dialect.name, vlm.proof.images, vlm.enforced) == ("llama.cpp", "yes", "server")
    assert vlm.proof.why.startswith("tokens with a picture and with a larger one: ")
    result = ask(vlm)
    assert result.status == "ok", result.reason
    assert [entry["id"] for entry in (result.fields or {})["detections"]] == [0, 1]


def test_pictures_of_one_size_change_what_llama_cpp_says(seeing: str) -> None:
    """The same picture twice gives the same probabilities, another one others."""
    connection = Connection(Endpoint(model=NAME, base_url=seeing))
    found = []
    for seed in (0, 0, 1):
        noise = np.random.default_rng(seed).integers(0, 256, (64, 64, 3), np.uint8)
        messages = messages_for("Tell what you see.", [data_uri(noise, quality=90)], "chat.completions")
        said: Any = connection.call(messages, {"max_tokens": 1, "logprobs": True, "top_logprobs": 3, "temperature": 0})
        found.append([one.logprob for one in said.choices[0].logprobs.content[0].top_logprobs])
    submit(connection.close_async()).result()
    assert found[0] == pytest.approx(found[1], abs=1e-3)
    assert max(abs(np.subtract(found[0], found[2]))) > 5e-3


@pytest.mark.parametrize("api", APIS)
def test_sampled_answers_to_pictures_are_valid_on_llama_cpp_or_refused_by_its_own_parser(seeing: str, api: Any) -> None:
    """Random weights: only the mask makes an answer valid. Some of them the server fails to read itself, with a 500."""
    request = {"extra_body": {"seed": 1}}
    settings = {"temperature": 1.0, "probe": False, "max_new_tokens": 400, "tries": 1, "breaker_failures": 100}
    vlm = remote(seeing, api=api, dialect="llama.cpp", request=request, **settings)
    vlm.enforced = "server"
    answers = [ask(vlm, index, asked=0, schema=SMALL) for index in range(20)]
    failed = [str(answer.reason) for answer in answers if answer.status != "ok"]
    assert all("HTTP 500" in reason and "does not match the expected" in reason for reason in failed), failed
    assert len(failed) <= 15


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("schema", TEXTS, ids=lambda schema: next(iter(schema)))
def test_llama_cpp_holds_labels_and_gbnf_and_nothing_else_is_claimed(seeing: str, schema: Any, api: Any) -> None:
    fields = FieldSchema.load(schema)
    vlm = remote(seeing, api=api, dialect="llama.cpp", max_new_tokens=200)
    vlm.prepare(fields.ground(0))
    result = ask(vlm, asked=0, schema=fields)
    if "choices" in schema or "gbnf" in schema:
        assert (vlm.enforced, result.status) == ("server", "ok"), result.reason
        assert result.attempts == 1
    else:
        assert vlm.enforced == "checked"
        assert result.status == "invalid", "random weights do not write what only the prompt asks for"
        assert result.fields is None


def test_check_tells_that_llama_cpp_looks_and_holds(seeing: str) -> None:
    code, told = check(model=NAME, base_url=seeing, timeout_s=240)
    assert code == 0, told
    assert "pictures: seen (tokens with a picture and with a larger one: " in told
    assert "schema hazard with 20 objects: held by the server" in told
    assert "dialect: llama.cpp (run by the full tests)" in told


@pytest.mark.parametrize("api", APIS)
def test_a_video_is_asked_about_on_llama_cpp_and_the_fields_are_merged(seeing: str, api: str, tmp_path: Path) -> None:
    clip = draw_video(tmp_path / "clip.mp4", frames=12, rate=10)
    settings = {"model": NAME, "base_url": seeing, "api": api, "concurrency": 2, "timeout_s": 240}
    pipeline = {"vlm": {**settings, "max_new_tokens": 1500}, "ask": {"every_s": 0.5}, "schema": "hazard"}
    records = list(hazardlens.process(clip, pipeline=pipeline, detector=FakeDetector(), out=tmp_path / "out"))
    asked = [record for record in records if record.vlm.trigger]
    assert [record.frame for record in asked] == [0, 5, 10]
    for record in asked:
        assert (record.vlm.status, record.vlm.enforced) == ("ok", "server"), record.vlm.reason
        assert set(record.fields or {}) == {"notes", "hazard", "severity"}
        assert record.detections
        assert all(set(one.fields or {}) == {"hazard", "severity"} for one in record.detections if one.asked)


@pytest.fixture(scope="module")
def served(random_vlm_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with transformers_serve(random_vlm_folder, tmp_path_factory.mktemp("serve") / "log") as base_url:
        yield base_url


@pytest.mark.parametrize("api", APIS)
def test_transformers_ignores_schemas_and_is_found_out(served: str, random_vlm_folder: Path, api: Any) -> None:
    for dialect in ("transformers", "auto"):
        vlm = remote(served, model=str(random_vlm_folder), api=api, dialect=dialect, max_new_tokens=60)
        vlm.prepare(SMALL.ground(0))
        assert vlm.proof is not None
        assert (vlm.proof.enforces, vlm.enforced) == (False, "checked")
    result = ask(vlm, asked=0, schema=SMALL)
    assert result.status in ("invalid", "truncated", "error"), "random weights say nothing of the form"
    assert result.fields is None


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = build(tmp_path_factory.mktemp("paged"), heads=2)
    with vllm(folder, tmp_path_factory.mktemp("vllm") / "log", context=4096) as base_url:
        yield base_url


@pytest.mark.parametrize("api", APIS)
def test_vllm_holds_the_schema_and_eyes_that_cannot_be_proven_are_not_claimed(paged: str, api: Any) -> None:
    """This model takes as many tokens for any picture, and random weights give nearly the same probabilities."""
    vlm = remote(paged, api=api, max_new_tokens=1500)
    vlm.prepare(HAZARD.ground(2))
    assert vlm.proof is not None
    assert (vlm.proof.images, vlm.enforced) == ("unknown", "server")
    result = ask(vlm)
    assert result.status == "ok", result.reason
    assert question().asked == len((result.fields or {})["detections"])


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("schema", TEXTS, ids=lambda schema: next(iter(schema)))
def test_vllm_takes_labels_expressions_and_grammars(paged: str, schema: dict[str, Any], api: Any) -> None:
    fields = FieldSchema.load(schema)
    vlm = remote(paged, api=api, dialect="vllm", max_new_tokens=40)
    vlm.prepare(fields.ground(0))
    assert vlm.enforced == "server"
    result = ask(vlm, asked=0, schema=fields)
    assert result.status == "ok", result.reason


@pytest.mark.parametrize("api", APIS)
def test_the_row_of_servers_that_are_not_known_holds_the_schema_on_vllm(paged: str, api: Any) -> None:
    vlm = remote(paged, api=api, dialect="json_schema", max_new_tokens=1500)
    vlm.prepare(HAZARD.ground(2))
    assert vlm.enforced == "server"
    result = ask(vlm)
    assert result.status == "ok", result.reason
    assert [entry["id"] for entry in (result.fields or {})["detections"]] == [0, 1]


class SentVlm(LocalVlm):
    """A local VLM that sees what a server is sent: pictures that were JPEGs."""

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        sent = {name: image for name in ("image", "crops") if (image := getattr(shown, name)) is not None}
        sent = {name: np.asarray(opened(data_uri(image, quality=85))) for name, image in sent.items()}
        return super().ask(question, replace(shown, **sent), stop)


def test_the_demo_vlm_says_on_vllm_what_it_says_here(tmp_path: Path) -> None:
    """Greedy, with one spelling of JSON and the same pictures on both sides: the same fields on 95 % of 50 frames."""
    folder = shipped_model("demo-vlm")
    if folder is None:
        pytest.skip("needs the demo VLM in assets/models")
    view = View(longest_side_px=512, crops_px=64, describe_fields=False)
    clip = data_path("assets", "demo/site.mp4")
    answers = []
    with vllm(folder, tmp_path / "log") as base_url:
        there = remote(base_url, dialect="vllm", max_new_tokens=800, view=view)
        for vlm in (SentVlm(folder, device="cpu", view=view), there):
            with hazardlens.process(clip, pipeline="demo", vlm=vlm, every=0.2) as run:
                asked = (record for record in run if record.vlm.trigger)
                answers.append([_said(record) for record in itertools.islice(asked, 50)])
    assert there.enforced == "server"
    ours, theirs = answers
    assert len(ours) == len(theirs) == 50
    assert sum(one == other for one, other in zip(ours, theirs, strict=True)) >= 48


def _said(record: FrameRecord) -> object:
    assert record.vlm.status == "ok", record.vlm.reason
    return record.fields, [detection.fields for detection in record.detections]
