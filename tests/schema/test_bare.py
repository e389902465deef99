"""Answers that are no JSON: a few labels, and text that an expression matches."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from hazardlens.errors import SchemaError
from hazardlens.schema import AnswerError, FieldSchema, GroundedSchema

LABELS = ["none", "fire", "fired", 'a "b" \\c', "é😀"]
PLATE = "[A-Z]{1,2}-[0-9]{1,3}"


@pytest.mark.parametrize(
    ("document", "good", "bad"),
    [
        ({"choices": LABELS}, LABELS, ["", "fir", "fires", "none ", '"none"', "nonefire"]),
        ({"regex": PLATE}, ["B-1", "AB-123"], ["", "B-", "ABC-1", "B-1234", "b-1", " B-1"]),
        ({"regex": r"a/b\\\.\""}, ['a/b\\."'], ["a/b"]),
        ({"regex": "|no+".replace("+", "{1,2}")}, ["", "no", "noo"], ["n", "nooo"]),
    ],
)
def test_mask_and_check_take_the_same(
    accepts: Callable[[GroundedSchema, str], bool], document: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    schema = FieldSchema.load(document)
    grounded = schema.ground(7)
    (field,) = schema.frame_properties
    for text in good:
        assert accepts(grounded, text)
        assert grounded.parse(text) == {field: text}
        assert len(text.encode()) <= grounded.longest_bytes
    for text in bad:
        assert not accepts(grounded, text)
        with pytest.raises(AnswerError):
            grounded.parse(text)


@pytest.mark.parametrize("document", [{"choices": LABELS}, {"regex": "[^x]{1,4}"}])
def test_half_a_surrogate_pair_is_no_text_of_any_form(document: dict[str, Any]) -> None:
    with pytest.raises(AnswerError):
        FieldSchema.load(document).ground(0).parse("\ud800")


def test_an_answer_as_json_is_taken_too_and_judged_alike() -> None:
    grounded = FieldSchema.load({"regex": PLATE}).ground(0)
    assert grounded.parse('{"text": "B-1"}') == {"text": "B-1"}
    for text in ('{"text": "B-12345"}', '{"text": "b-1"}', '{"label": "B-1"}', "{"):
        with pytest.raises(AnswerError):
            grounded.parse(text)


@pytest.mark.parametrize("document", [{"choices": LABELS}, {"regex": PLATE}])
def test_random_walks_of_the_mask_are_taken(
    sample: Callable[[GroundedSchema, random.Random], str], document: dict[str, Any]
) -> None:
    grounded = FieldSchema.load(document).ground(0)
    said = {sample(grounded, random.Random(seed)) for seed in range(20)}
    assert len(said) > 3
    for text in said:
        grounded.parse(text)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"choices": []}, "expected a list of labels"),
        ({"choices": "none"}, "expected a list of labels"),
        ({"choices": ["a", True]}, "expected a list of labels"),
        ({"choices": ["a", " b"]}, "expected a list of labels"),
        ({"choices": ["a", "b\nc"]}, "expected a list of labels"),
        ({"choices": ["a", ""]}, "expected a list of labels"),
        ({"choices": ["a", "a"]}, "given twice"),
        ({"choices": ["a"], "regex": "a"}, "choices and regex"),
        ({"regex": 3}, "expected a regular expression"),
        ({"regex": "(a"}, "/regex: .*unclosed group"),
        ({"regex": "a(?=b)"}, "/regex: .*look-around"),
        ({"regex": "a+"}, "without end"),
        ({"regex": r"[^\s\S]"}, "/regex: no text matches it"),
        ({"regex": r"a[a&&b]{1,3}"}, "/regex: no text matches it"),
        ({"choices": ["a"], "type": "object"}, "choices cannot stand beside type"),
    ],
)
def test_what_cannot_be_held_is_refused_with_its_place(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        FieldSchema.load(document)


def test_labels_are_ranked_described_and_given_as_json_on_the_command_line() -> None:
    schema = FieldSchema.load('{"choices": ["none", "fire"], "title": "Fire", "description": "What burns."}')
    assert schema.title == "Fire"
    assert schema.rank("label") == ["none", "fire"]
    assert schema.describe().endswith("- label (one of: none, fire): What burns.")
    with pytest.raises(SchemaError, match="not JSON"):
        FieldSchema.load('{"choices": [}')
