"""Many different schemas, one after the other, leave no memory behind."""

from typing import Any

import pytest

from hazardlens.schema import FieldSchema
from hazardlens.vlm.mask import MaskFactory
from tests.memory import resident_mb
from tests.random_vlm import END, tokenizer

TENTHS = 10


def schema(number: int) -> dict[str, Any]:
    """A small schema that no other number has, of each kind in turn."""
    word = f"w{number}"
    item = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "state": {"enum": ["none", word]}},
        "required": ["id", "state"],
        "additionalProperties": False,
    }
    fields: dict[str, Any] = {"note": {"type": "string", "maxLength": 9 + number % 50}, word: {"type": "boolean"}}
    kinds: list[dict[str, Any]] = [
        {"choices": ["none", word]},
        {"properties": fields},
        {"properties": {"detections": {"type": "array", "items": item}}},
        {"regex": f"{word}-[0-9]{{1,3}}"},
        {"properties": {"state": {"enum": ["none", word]}, "age": {"type": "integer", "maximum": number}}},
        {"lark": f'start: "{word}" | "(" start ")"'},
    ]
    kind = kinds[number % len(kinds)]
    return {"type": "object", "required": [*kind["properties"]], **kind} if "properties" in kind else kind


def levels_mb(factory: MaskFactory, schemas: int) -> list[float]:
    """Resident memory after each tenth of so many schemas, in MB."""
    levels = []
    for number in range(schemas):
        grounded = FieldSchema.load(schema(number)).ground(number % 4)
        factory.session(grounded).allowed()
        factory.shortest_tokens(grounded)
        if (number + 1) % (schemas // TENTHS) == 0:
            levels.append(resident_mb())
    return levels


@pytest.fixture
def factory() -> MaskFactory:
    words = tokenizer("<image>")
    return MaskFactory(words, vocab_rows=480, eos_token_ids=[words.convert_tokens_to_ids(END)])


def test_no_more_than_some_compiled_schemas_are_kept(factory: MaskFactory) -> None:
    keys = {FieldSchema.load({"choices": ["none", f"w{number}"]}).ground(0).key for number in range(70)}
    assert len(keys) == 70
    for number in range(70):
        factory.session(FieldSchema.load({"choices": ["none", f"w{number}"]}).ground(0))
    assert len(factory._compiled) == 64


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_memory_is_flat_over_ten_thousand_schemas(factory: MaskFactory) -> None:
    levels = levels_mb(factory, 10_000)
    assert max(levels[1:]) < 1.05 * levels[0], levels
