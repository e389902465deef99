"""The grammar that is written from a shape takes what llguidance makes of its JSON Schema, byte by byte."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from hazardlens.errors import SchemaError
from hazardlens.schema import FieldSchema, GroundedSchema, probe
from tests.random_schema import RECURSIVE, schemas

Load = Callable[..., FieldSchema]
COUNTS = (0, 1, 2, 10, 11, 20, 100)
MOST_BYTES = 12_000
WORDS = LLTokenizer("byte")


def check_walk(grounded: GroundedSchema, rng: random.Random, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Write one answer by chance; at each byte, both grammars must allow the same bytes, and force the same text."""
    texts = probe.grammar(grounded.mask_document), grounded.grammar()
    matchers = [LLMatcher(WORDS, text, log_level=0) for text in texts]
    masks = allocate_token_bitmask(2, WORDS.vocab_size)
    written = b""
    while len(written) < most_bytes and not any(matcher.is_stopped() for matcher in matchers):
        for row, matcher in enumerate(matchers):
            fill_next_token_bitmask(matcher, masks, row)
            assert not matcher.is_error(), matcher.get_error()
        allowed, own = (
            set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()) for mask in masks
        )
        assert allowed == own, (written, [bytes([token]) for token in allowed ^ own if token < 256])
        assert len({matcher.compute_ff_bytes() for matcher in matchers}) == 1, written
        chosen = rng.choice(sorted(allowed))
        if chosen == WORDS.eos_token:
            break
        assert all(matcher.consume_token(chosen) for matcher in matchers), written
        written += bytes([chosen])
    assert len({matcher.is_stopped() for matcher in matchers}) == 1, written
    return written


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", ["hazard", "plant", "retail", "traffic"])
def test_shipped_schemas(name: str, count: int) -> None:
    grounded = FieldSchema.load(name).ground(count)
    for seed in range(1 if count > 20 else 3):
        text = check_walk(grounded, random.Random(seed)).decode()
        assert len(grounded.parse(text)["detections"]) == count


A = {"type": "object", "additionalProperties": False, "required": ["a"]}
HARD: list[tuple[str, Any]] = [
    ("numbers that begin alike", {"enum": [1, 10, 100, 1.5, -1, 0]}),
    ("a number or any", {"anyOf": [{"const": 1}, {"type": "integer", "minimum": 0, "maximum": 120}]}),
    (
        "objects that begin alike",
        {
            "anyOf": [
                {**A, "properties": {"a": {"const": 1}, "b": {"const": 2}}},
                {**A, "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "c": {"const": 3}}},
                {**A, "properties": {"a": {"const": 10}}},
            ]
        },
    ),
    (
        "values that are objects",
        {
            "anyOf": [
                {"enum": [{"a": [1, {"b": None}]}, {"a": [1, 2]}, {}, [], [[]], [{}], "a", {"c": 1}]},
                {**A, "properties": {"a": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 3}}},
                {"type": "array", "items": {"enum": [True, "x"]}, "maxItems": 2},
            ]
        },
    ),
    (
        "optional properties",
        {"type": "object", "properties": {name: {"enum": [0, name]} for name in "abcd"}, "required": ["c"]},
    ),
    ("no property", {"type": "object", "additionalProperties": False}),
    ("all optional", {"type": "object", "properties": {name: {"const": 0} for name in "abc"}}),
    (
        "tuple with an open end",
        {"prefixItems": [{"const": 1}, {"const": "a"}], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 6},
    ),
    ("tuple in part optional", {"prefixItems": [{"const": k} for k in range(4)], "items": False, "minItems": 2}),
    ("long tuple", {"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 5, "maxItems": 9}),
    ("list of one", {"type": "array", "items": {"const": 2}, "maxItems": 1}),
    ("list of some", {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 4}),
    ("unique", {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3, "uniqueItems": True}),
    ("text or choice", {"anyOf": [{"type": "string", "maxLength": 3}, {"enum": ["none", "ab", 5]}]}),
    ("hard names", {"type": "object", "properties": {'é"\n': {"const": 'a"b\\😀'}}, "required": ['é"\n']}),
    ("wide", {"type": "object", "properties": {f"p{k}": {"const": k} for k in range(100)}}),
    *[(name, {"$ref": f"#/$defs/{name}"}) for name in RECURSIVE],
]


@pytest.mark.parametrize("fragment", [row[1] for row in HARD], ids=[row[0] for row in HARD])
def test_hard_schemas(one_field: Load, fragment: Any) -> None:
    grounded = one_field(fragment, **{"$defs": RECURSIVE}).ground(0)
    for seed in range(8):
        check_walk(grounded, random.Random(seed), most_bytes=400)


@pytest.mark.parametrize("count", [0, 1, 2, 11])
@pytest.mark.parametrize("fragment", [row[1] for row in HARD[2:6]], ids=[row[0] for row in HARD[2:6]])
def test_hard_schemas_in_detections(fragment: Any, count: int) -> None:
    item = {"type": "object", "properties": {"id": {"type": "integer"}, "x": fragment}, "required": ["id", "x"]}
    listed = {
        "type": "array",
        "items": {**item, "anyOf": [{"properties": {"id": {"maximum": 8}}}, {"minProperties": 2}]},
    }
    grounded = FieldSchema.load({"type": "object", "properties": {"detections": listed}}).ground(count)
    for seed in range(5):
        check_walk(grounded, random.Random(seed))


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(document=schemas(), count=st.sampled_from([0, 1, 3]), seed=st.integers(0, 2**32))
def test_random_schemas(document: dict[str, Any], count: int, seed: int) -> None:
    try:
        schema = FieldSchema.load(document)
    except SchemaError:
        assume(False)
    assume(schema.constraint == "json")
    check_walk(schema.ground(count), random.Random(seed), most_bytes=600)
