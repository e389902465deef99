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


LONG = [f"{letter}{'x' * 60}" for letter in "abcdefghij"]
ROW = {
    "type": "object",
    "properties": {f"p{k}": {"enum": LONG} for k in range(8)},
    "required": [f"p{k}" for k in range(8)],
}
NEST = {"type": "object", "properties": {"x": {"enum": LONG}, "inner": {"$ref": "#/$defs/nest"}}, "required": ["x"]}


@pytest.mark.parametrize(
    ("document", "is_kept"),
    [
        (
            {"type": "object", "properties": {"rows": {"type": "array", "items": ROW, "minItems": 12, "maxItems": 12}}},
            True,
        ),
        ({"type": "object", "properties": {"nest": {"$ref": "#/$defs/nest"}}, "$defs": {"nest": NEST}}, False),
    ],
)
def test_what_a_large_answer_needs_is_found_once_and_what_grows_without_end_is_let_go(
    factory: MaskFactory, document: dict[str, Any], is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hazardlens.vlm.mask._PLACES_OF_ENDLESS", 2_000)
    grounded = FieldSchema.load({**document, "required": [*document["properties"]]}).ground(0)
    factory.session(grounded)
    closing = factory._compiled[grounded.key][1]
    text = '{"nest": ' + 40 * f'{{"x": "{LONG[0]}", "inner": '
    place = closing.need(closing.start) if is_kept else closing.follow(closing.start, text.encode())
    assert place
    assert closing.size > 2_000
    factory.session(grounded)
    assert (factory._compiled[grounded.key][1] is closing) == is_kept
    monkeypatch.setattr("hazardlens.vlm.mask._PLACES_KEPT", 2_000)
    factory.session(grounded)
    assert (factory._compiled[grounded.key][1] is closing) == is_kept, "the one in use is never too much"
    factory.session(FieldSchema.load({"choices": ["none", "fire"]}).ground(0))
    assert (grounded.key in factory._compiled) == (not is_kept), "those used longest ago give way"


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_memory_is_flat_over_ten_thousand_schemas(factory: MaskFactory) -> None:
    levels = levels_mb(factory, 10_000)
    assert max(levels[1:]) < 1.05 * levels[0], levels
