"""What an answer still needs, counted by hand: a run of fixed text costs its words, a choice a token per byte."""

from collections.abc import Callable
from typing import Any

import pytest

from hazardlens.schema import FieldSchema
from hazardlens.schema.closing import Closing

Load = Callable[..., FieldSchema]
TEXT = {"type": "string", "maxLength": 9}
FLAG = {"type": "boolean"}


def closing(schema: FieldSchema) -> Closing:
    return schema.ground(0).closing(lambda run: 1 if run else 0)


@pytest.mark.parametrize(
    ("fragment", "tokens"),
    [
        ({"const": "only"}, 1),
        (FLAG, 3),
        ({"enum": ["none", "fire"]}, 3),
        ({"enum": ["fire", "fired", "four"]}, 5),
        (TEXT, 1),
        ({**TEXT, "minLength": 4}, 6),
        ({"type": "integer", "minimum": -10, "maximum": 99}, 5),
        ({"type": "string", "pattern": "^[a-z]{3}$"}, 20),
        ({"type": "array", "items": FLAG, "maxItems": 9}, 1),
        ({"type": "array", "items": FLAG, "minItems": 1, "maxItems": 9}, 3),
        ({"type": "array", "items": FLAG, "minItems": 2, "maxItems": 2}, 5),
        ({"type": "object", "properties": {"a": FLAG, "b": TEXT}, "additionalProperties": False}, 1),
        ({"type": "object", "properties": {"a": FLAG, "b": TEXT}, "required": ["a"]}, 3),
        ({"anyOf": [{"const": None}, FLAG]}, 3),
        ({"anyOf": [{"type": "array", "items": FLAG, "maxItems": 1}, {"const": "x"}]}, 3),
    ],
)
def test_need_at_the_start(one_field: Load, fragment: Any, tokens: int) -> None:
    found = closing(one_field(fragment))
    assert found.need(found.start).tokens == tokens


@pytest.mark.parametrize(
    ("written", "tokens", "run"),
    [
        ('{"x": "', 1, b'"}'),
        ('{"x": "some', 1, b'"}'),
        ('{"x": "some\\', 2, b""),
        ('{"x": "some\\u00', 3, b""),
        ('{"x": "so\\u0001', 1, b'"}'),
        ('{"x": "é', 1, b'"}'),
    ],
)
def test_need_inside_text(one_field: Load, written: str, tokens: int, run: bytes) -> None:
    found = closing(one_field(TEXT))
    need = found.need(found.follow(found.start, written.encode()))
    assert (need.tokens, need.run) == (tokens, run)


def test_half_a_character_is_completed_first(one_field: Load) -> None:
    found = closing(one_field(TEXT))
    place = found.follow(found.start, '{"x": "😀'.encode()[:-2])
    assert (found.need(place).tokens, found.need(place).run) == (3, b"")


def test_what_was_begun_is_finished_and_what_does_not_fit_is_nowhere(one_field: Load) -> None:
    parts = {"a": TEXT, "b": FLAG}
    found = closing(one_field({"type": "object", "properties": parts, "additionalProperties": False}))
    begun = found.follow(found.start, b'{"x": {"a')
    assert found.need(begun).run == b'": ""}}'
    assert found.follow(found.start, b'{"y') == 0


def test_choices_are_told_with_their_place_in_the_answer_and_what_is_left(one_field: Load) -> None:
    item = {"type": "object", "properties": {"a/b": {"enum": ["near", "none", 1]}}, "required": ["a/b"]}
    found = closing(one_field({"type": "array", "items": item, "minItems": 2, "maxItems": 2}))
    place = found.follow(found.start, b'{"x": [{"a/b": 1}, {"a/b": "n')
    assert found.choices(place) == {"/x/1/a~1b": {"near": b'ear"', "none": b'one"'}}
    assert not found.is_free(place)
