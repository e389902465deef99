"""Real servers: what each is believed to do is seen, and what they do wrong is survived."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hazardlens.errors import ServerError
from hazardlens.schema import FieldSchema
from hazardlens.vlm.remote.model import RemoteVlm
from tests.random_vlm import build
from tests.servers.peers import NAME, llama_cpp, smollm2, transformers_serve, vllm
from tests.vlm.remote.asking import HAZARD, ask, question

APIS = ("chat.completions", "responses")
SMALL = FieldSchema.load(
    {
        "type": "object",
        "properties": {"notes": {"type": "string", "maxLength": 20}, "hazard": {"enum": ["none", "fire", "spill"]}},
        "required": ["notes", "hazard"],
        "additionalProperties": False,
    }
)
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


@pytest.mark.parametrize("schema", [{"choices": ["red light", "green"]}, {"regex": "[A-Z]{2}[0-9]{1,4}"}])
def test_vllm_takes_labels_and_expressions(paged: str, schema: dict[str, Any]) -> None:
    fields = FieldSchema.load(schema)
    vlm = remote(paged, dialect="vllm", max_new_tokens=40)
    vlm.prepare(fields.ground(0))
    assert vlm.enforced == "server"
    result = ask(vlm, asked=0, schema=fields)
    assert result.status == "ok", result.reason
