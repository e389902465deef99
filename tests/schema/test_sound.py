"""Whatever is rewritten or narrowed: what the mask writes satisfies the schema as it was written."""

import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from hazardlens.errors import SchemaError
from hazardlens.schema import FieldSchema, GroundedSchema

SMALL: list[Any] = [
    {"const": 1},
    {"const": True},
    {"enum": ["a", "bc", 2]},
    {"type": "boolean"},
    {"type": "integer", "minimum": 0, "maximum": 4},
    {"type": "integer", "exclusiveMinimum": 2, "maximum": 6},
    {"minimum": 2},
    {"maximum": 3},
    {"type": "string", "maxLength": 2},
    {"minLength": 1},
    {"multipleOf": 2, "type": "integer", "maximum": 8, "minimum": 0},
    {"pattern": "^a"},
    {"type": ["string", "null"], "maxLength": 1},
    True,
    {},
]
NAMES = st.sampled_from(["a", "b", "cd"])


def parts(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    names = st.lists(NAMES, unique=True, max_size=2)
    maps = st.dictionaries(NAMES, inner, max_size=3)
    number = st.integers(0, 2)
    arrays = {
        "prefixItems": lists,
        "items": inner,
        "contains": inner,
        "minContains": number,
        "maxContains": st.integers(1, 2),
        "unevaluatedItems": inner,
        "minItems": number,
        "maxItems": st.integers(1, 4),
        "uniqueItems": st.booleans(),
    }
    objects = {
        "properties": maps,
        "patternProperties": st.dictionaries(st.sampled_from(["a", "d$"]), inner, max_size=1),
        "additionalProperties": inner | st.just(False),
        "unevaluatedProperties": inner | st.just(False),
        "required": names,
        "propertyNames": st.sampled_from([{"maxLength": 1}, {"enum": ["a", "cd"]}, {"pattern": "c"}]),
        "dependentRequired": st.dictionaries(NAMES, names, max_size=2),
        "dependentSchemas": maps,
        "minProperties": number,
    }
    logic = {
        "allOf": lists,
        "anyOf": lists,
        "oneOf": lists,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }

    def some(keywords: dict[str, st.SearchStrategy[Any]], most: int) -> st.SearchStrategy[dict[str, Any]]:
        chosen = st.lists(st.sampled_from(sorted(keywords)), unique=True, max_size=most)
        return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))

    return st.builds(
        lambda *dicts: {key: value for one in dicts for key, value in one.items()},
        some(arrays, 4) | some(objects, 4),
        some(logic, 2),
        st.sampled_from([{}, {}, {"type": "array"}, {"type": "object"}, {"type": ["array", "object", "integer"]}]),
    )


SCHEMAS = st.recursive(st.sampled_from(SMALL), parts, max_leaves=6)
ITSELF = {"$ref": "#/properties/x"}
RECURSIVE = st.recursive(st.sampled_from([*SMALL, ITSELF, ITSELF]), parts, max_leaves=5)
QUIET = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


def load(fragment: Any) -> tuple[FieldSchema, Any]:
    document = {"type": "object", "properties": {"x": fragment}, "required": ["x"], "additionalProperties": False}
    try:
        return FieldSchema.load(document), jsonschema.Draft202012Validator(document)
    except SchemaError:
        assume(False)
        raise


def judge(schema: FieldSchema, validator: Any, text: str) -> None:
    """What the mask wrote is valid where nothing is only checked, and else the check says what another one says."""
    value = json.loads(text)
    errors = [error.message for error in validator.iter_errors(value)]
    assert bool(errors) is bool(schema.ground(0).validate(value)), (value, errors)
    if all(finding.level != "checked" for finding in schema.findings):
        assert not errors, (value, errors, schema.findings, schema.ground(0).mask_document)


@settings(max_examples=120, **QUIET)
@given(fragment=SCHEMAS, seed=st.integers(0, 2**20))
def test_what_the_mask_writes_satisfies_the_schema(
    sample: Callable[[GroundedSchema, random.Random], str], fragment: Any, seed: int
) -> None:
    (schema, validator), rng = load(fragment), random.Random(seed)
    for _ in range(3):
        judge(schema, validator, sample(schema.ground(0), rng))


@settings(max_examples=40, **QUIET)
@given(fragment=RECURSIVE.filter(lambda one: "$ref" in json.dumps(one)), seed=st.integers(0, 2**20))
def test_what_the_mask_writes_of_a_schema_that_holds_itself_ends_in_time_and_satisfies_it(
    fragment: Any, seed: int
) -> None:
    (schema, validator), rng = load(fragment), random.Random(seed)
    grounded = schema.ground(0)
    for more in (0, 20):
        judge(schema, validator, walk(grounded, rng, grounded.shortest_tokens(len) + more))


def walk(grounded: GroundedSchema, rng: random.Random, room: int) -> str:
    """Bytes at random that the mask allows, as long as the way to the end still fits."""
    matcher, closing = LLMatcher(LLTokenizer("byte"), grounded.grammar(), log_level=0), grounded.closing(len)
    place, text = closing.start, b""
    while not matcher.is_stopped():
        bias = matcher.compute_logit_bias()
        ways = {byte: closing.follow(place, bytes([byte])) for byte in range(256) if bias[byte]}
        fitting = [byte for byte, after in ways.items() if closing.need(after).tokens <= room - len(text) - 1]
        if matcher.is_accepting() and (not fitting or rng.random() < 0.3):
            break
        byte = rng.choice(fitting)
        assert matcher.consume_token(byte)
        place, text = ways[byte], text + bytes([byte])
    return text.decode()
