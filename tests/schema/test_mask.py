from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer

from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.probe import refusal

Accepts = Callable[[GroundedSchema, str], bool]
Sample = Callable[[GroundedSchema, random.Random], str]
Load = Callable[..., FieldSchema]
SHIPPED = ("hazard", "plant", "retail", "traffic")
SHORT = {"type": "string", "maxLength": 5}

FIRE = '{"id": 0, "hazard": "fire", "severity": "low"}'
NONE = '{"id": 1, "hazard": "none", "severity": "none"}'
HEAD = '{"notes": "A worker by the truck.", "hazard": "none", "severity": "none", "detections": '
HAZARD_TEXTS: list[tuple[str, str, bool]] = [
    ("valid", f"{HEAD}[{FIRE}, {NONE}]}}", True),
    ("no hazard with severity", f"{HEAD}[{FIRE}, {NONE}]}}".replace('ty": "none"', 'ty": "low"', 1), False),
    ("object without hazard, with severity", f'{HEAD}[{FIRE}, {NONE[:-7]}low"}}]}}', False),
    ("hazard without severity", f'{HEAD}[{FIRE[:-6]}none"}}, {NONE}]}}', False),
    ("wrong id", f"{HEAD}[{FIRE}, {NONE.replace('1', '2')}]}}", False),
    ("missing object", f"{HEAD}[{FIRE}]}}", False),
    ("extra object", f"{HEAD}[{FIRE}, {NONE}, {NONE.replace('1', '2')}]}}", False),
    ("object twice", f"{HEAD}[{FIRE}, {FIRE}]}}", False),
    ("swapped", f"{HEAD}[{NONE}, {FIRE}]}}", False),
    ("extra space", f"{HEAD} [{FIRE}, {NONE}]}}", False),
    ("compact", f"{HEAD}[{FIRE},{NONE}]}}", False),
    ("leading blank", f" {HEAD}[{FIRE}, {NONE}]}}", False),
    ("trailing text", f"{HEAD}[{FIRE}, {NONE}]}} ", False),
    ("cut", f"{HEAD}[{FIRE}, {NONE}]", False),
    ("invented field", f'{HEAD}[{FIRE}, {NONE}], "more": 1}}', False),
    ("chat token in a string", f"{HEAD}[{FIRE}, {NONE}]}}".replace("truck", "<image>"), False),
    ("short notes", f"{HEAD}[{FIRE}, {NONE}]}}".replace("A worker by the truck.", "x"), False),
]


@pytest.mark.parametrize(("text", "good"), [row[1:] for row in HAZARD_TEXTS], ids=[row[0] for row in HAZARD_TEXTS])
def test_hazard_mask(accepts: Accepts, text: str, good: bool) -> None:
    assert accepts(FieldSchema.load("hazard").ground(2), text) is good


def test_chat_token_may_be_spelled_but_not_used(tokens: LLTokenizer) -> None:
    grammar = FieldSchema.load("hazard").ground(0).grammar()
    special, spelled = (
        tokens.tokenize_str("<image>"),
        [token for char in "<image>" for token in tokens.tokenize_str(char)],
    )
    head = tokens.tokenize_str('{"notes": "A ')
    assert len(special) == 1
    assert LLMatcher(tokens, grammar).try_consume_tokens(head + special) == len(head)
    assert LLMatcher(tokens, grammar).try_consume_tokens(head + spelled) == len(head + spelled)


CASES: list[tuple[str, Any, list[str], list[str]]] = [
    ("pattern with maxLength", {"type": "string", "pattern": "ab", "maxLength": 3}, ['"cab"'], ['"abcd"', '"xx"']),
    ("reference with a sibling", {"$ref": "#/$defs/n", "maximum": 3}, ["0", "3"], ["4", "-1"]),
    ("number", {"type": "number"}, ["0.5", "-1.125", "7"], ["1e999", "-1.5E+10", "9" * 400, "0." + "1" * 40]),
    ("integer", {"type": "integer"}, ["7", "-9007199254740991"], ["9007199254740992", "1" * 400, "1.0", "1e3"]),
    ("range", {"type": "number", "minimum": 0, "exclusiveMaximum": 1}, ["0", "0.999"], ["1", "1.0", "0.9999"]),
    ("surrogates", {"type": "string", "maxLength": 4}, ['"é😀"', '"\\n"'], ['"\\ud800"', '"\\ud83d\\ude00"', '"\\/"']),
    (
        "hard choices",
        {"enum": ['a"b', "c\\d", "😀", "\x7f", "\n"]},
        ['"a\\"b"', '"c\\\\d"', '"😀"', '"\\u007f"', '"\\n"'],
        ['"a"'],
    ),
    ("whole floats", {"enum": [1.0, -0.0, 1e3, 1e-7]}, ["1", "0", "1000", "0.0000001"], ["1.0", "1e3"]),
    (
        "object choice",
        {"enum": [{"b": [1, None], "a": "x"}]},
        ['{"b": [1, null], "a": "x"}'],
        ['{"a": "x", "b": [1, null]}'],
    ),
    (
        "unique items are checked later",
        {"type": "array", "items": {"type": "integer"}, "maxItems": 2, "uniqueItems": True},
        ["[1, 1]", "[]"],
        ['["a"]'],
    ),
    (
        "unique choices",
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
        ['["a"]', '["a", "c"]', '["b", "c"]'],
        ["[]", '["a", "a"]', '["c", "a"]', '["a", "b", "c"]'],
    ),
    (
        "contains",
        {"type": "array", "items": {"enum": [1, 2, 3]}, "maxItems": 3, "contains": {"const": 2}, "maxContains": 2},
        ["[2]", "[2, 1]", "[2, 2]"],
        ["[]", "[1]", "[1, 3]", "[2, 2, 2]"],
    ),
    (
        "contains behind a tuple",
        {"prefixItems": [{"const": 1}], "items": {"type": "boolean"}, "contains": {"const": True}},
        ["[1, true]", "[1, true, false]"],
        ["[1]", "[1, false]", "[true]"],
    ),
    (
        "one of two ranges",
        {"type": "integer", "oneOf": [{"minimum": 2}, {"maximum": 5}], "minimum": 0, "maximum": 9},
        ["0", "1", "6", "9"],
        ["2", "4", "5"],
    ),
    ("conditional text", {**SHORT, "if": {"minLength": 3}, "then": {"pattern": "^a"}}, ['"xy"', '"abc"'], ['"xyz"']),
    ("not of a type", {"type": ["integer", "string"], "maxLength": 2, "not": {"type": "number"}}, ['"1"'], ["1"]),
    (
        "unevaluated properties",
        {
            "type": "object",
            "properties": {"a": {"const": 1}},
            "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]}, {"properties": {"c": {"const": 1}}}],
            "unevaluatedProperties": False,
        },
        ['{"a": 1, "b": 1}', '{"a": 1, "c": 1}', "{}"],
        ['{"b": 1, "c": 1}', '{"d": 1}', '{"c": 1, "b": 2}'],
    ),
    (
        "unevaluated items",
        {"prefixItems": [{"const": 1}], "allOf": [{"prefixItems": [True, {"const": 2}]}], "unevaluatedItems": False},
        ["[]", "[1, 2]"],
        ["[1, 2, 3]", "[2]"],
    ),
    (
        "names",
        {"properties": {"a": {"const": 1}, "bc": {"const": 1}}, "propertyNames": {"maxLength": 1}},
        ["{}"],
        ['{"bc": 1}'],
    ),
    ("anything", {}, ["null", "true", "1.5", '"a"'], ["[]", "{}"]),
    ("filtered choice", {"enum": [1, 2, 3], "not": {"const": 2}, "maximum": 2}, ["1"], ["2", "3"]),
    ("oneOf as anyOf", {"oneOf": [SHORT, {"type": "integer", "minimum": 0, "maximum": 1}]}, ['"a"', "1"], ["2"]),
    ("closed", {"type": "object", "properties": {"a": SHORT}}, ["{}", '{"a": "b"}'], ['{"b": 1}']),
    (
        "tuple",
        {"type": "array", "prefixItems": [{"const": 1}, SHORT], "items": False, "minItems": 1},
        ["[1]", '[1, "a"]'],
        ["[]", '[1, "a", 1]'],
    ),
    (
        "branches with own fields",
        {
            "type": "object",
            "properties": {"k": SHORT},
            "required": ["k"],
            "anyOf": [
                {"properties": {"k": {"const": "a"}}},
                {"properties": {"k": {"const": "b"}, "v": {"const": 1}}, "required": ["v"]},
            ],
        },
        ['{"k": "a"}', '{"k": "b", "v": 1}'],
        ['{"k": "b"}', '{"k": "a", "v": 1}', '{"k": "c"}'],
    ),
    ("nullable", {"anyOf": [SHORT, {"type": "null"}]}, ["null", '""'], ["0"]),
    ("boolean", {"type": "boolean"}, ["true", "false"], ["null", "1"]),
    (
        "only number left",
        {"type": ["number", "string"], "allOf": [{"type": "integer"}], "minimum": 0, "maximum": 1},
        ["0"],
        ["0.5", '"a"'],
    ),
    ("few digits", {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.01}, ["0.07", "1"], ["0.001"]),
    (
        "common multiple",
        {"type": "integer", "minimum": 0, "maximum": 20, "multipleOf": 2, "allOf": [{"multipleOf": 1.5}]},
        ["6", "12"],
        ["2", "3"],
    ),
    ("one number", {"type": "number", "minimum": 0.25, "maximum": 0.25}, ["0.25"], ["0.250", "0"]),
]


@pytest.mark.parametrize(("fragment", "good", "bad"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_fragments(one_field: Load, accepts: Accepts, fragment: Any, good: list[str], bad: list[str]) -> None:
    grounded = one_field(fragment, **{"$defs": {"n": {"type": "integer", "minimum": 0}}}).ground(0)
    for text in good:
        assert accepts(grounded, f'{{"x": {text}}}'), text
    for text in bad:
        assert not accepts(grounded, f'{{"x": {text}}}'), text


SAMPLED: list[tuple[str, Any]] = [
    ("number", {"type": "number"}),
    ("unit", {"type": "number", "minimum": 0, "maximum": 1}),
    ("open unit", {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}),
    ("narrow", {"type": "number", "minimum": 0.1, "maximum": 0.1003}),
    ("wide", {"type": "number", "minimum": -1e300, "maximum": 1e300}),
    ("large open end", {"type": "number", "minimum": 0, "exclusiveMaximum": 9007199254740991}),
    ("below", {"type": "number", "maximum": -3.5}),
    ("above", {"type": "number", "exclusiveMinimum": 1e12}),
    ("halves", {"type": "number", "minimum": -10, "maximum": 10, "multipleOf": 2.5}),
    ("sevenths", {"type": "number", "minimum": 0, "multipleOf": 0.7}),
    ("integer", {"type": "integer"}),
    ("odd bounds", {"type": "integer", "minimum": 0.5, "maximum": 17.2, "multipleOf": 3}),
    ("text", {"type": "string", "maxLength": 40}),
    ("two patterns", {"type": "string", "maxLength": 9, "allOf": [{"pattern": "^a"}, {"pattern": "b$"}]}),
    ("digits", {"type": "string", "pattern": "^\\d{2,4}$"}),
    *[(name, {"type": "string", "format": name}) for name in ("uuid", "ipv4", "ipv6", "email", "hostname", "uri")],
    *[(name, {"type": "string", "format": name}) for name in ("time", "date-time", "duration")],
    ("list", {"type": "array", "maxItems": 4, "items": {"anyOf": [{"type": "null"}, {"type": "boolean"}, SHORT]}}),
    ("options", {"type": "object", "properties": {"a": SHORT, "b": {"enum": [1, 2.5]}}, "maxProperties": 2}),
    (
        "hard names",
        {"type": "object", "properties": {'é"\n\x7f': {"const": {"\x7f": "\x7f"}}}, "required": ['é"\n\x7f']},
    ),
]


@pytest.mark.parametrize("fragment", [row[1] for row in SAMPLED], ids=[row[0] for row in SAMPLED])
def test_sampled_fragments_are_valid(one_field: Load, sample: Sample, fragment: Any) -> None:
    schema = one_field(fragment)
    grounded = schema.ground(0)
    rng = random.Random(7)
    for _ in range(40):
        text = sample(grounded, rng)
        assert grounded.validate(grounded.parse(text)) == []
        assert len(text.encode()) <= grounded.longest_bytes
        if "multipleOf" not in json.dumps(fragment):
            jsonschema.validate(json.loads(text), schema.document)


@pytest.mark.parametrize("count", [0, 1, 5, 30])
@pytest.mark.parametrize("name", SHIPPED)
def test_sampled_answers_are_valid(name: str, count: int, sample: Sample, bpe: Tokenizer) -> None:
    grounded = FieldSchema.load(name).ground(count)

    def count_tokens(text: str) -> int:
        return len(bpe.encode(text, add_special_tokens=False).ids)

    most = grounded.longest_tokens(count_tokens)
    assert most <= grounded.longest_bytes
    rng = random.Random(count)
    for _ in range(3):
        text = sample(grounded, rng)
        value = grounded.parse(text)
        jsonschema.validate(value, grounded.document)
        assert len(text.encode()) <= grounded.longest_bytes
        assert count_tokens(text) <= most


@pytest.mark.parametrize("count", [0, 1, 20])
def test_tokens_of_choices_spelled_in_small_pieces(
    count: int, most_tokens: Callable[[GroundedSchema, random.Random], int], bpe: Tokenizer
) -> None:
    item = {"type": "object", "properties": {"id": {"type": "integer"}, "ok": {"type": "boolean"}}, "required": ["ok"]}
    level = {"enum": ["vehicle_proximity", "missing_ppe"]}
    properties = {"hazard": level, "severity": level, "detections": {"type": "array", "items": item}}
    schema = FieldSchema.load({"type": "object", "properties": properties, "required": ["hazard", "severity"]})
    grounded = schema.ground(count)
    most = grounded.longest_tokens(lambda text: len(bpe.encode(text, add_special_tokens=False).ids))
    assert most < grounded.longest_bytes
    for seed in range(5):
        assert most_tokens(grounded, random.Random(seed)) <= most


def test_rule_across_frame_and_objects(accepts: Accepts) -> None:
    document = json.loads(json.dumps(FieldSchema.load("hazard").document))
    calm = document["anyOf"][0]["properties"]
    calm["detections"] = {"items": {"properties": {"hazard": {"const": "none"}}}}
    grounded = FieldSchema.load(document).ground(2)
    assert accepts(grounded, f"{HEAD}[{NONE.replace('1', '0')}, {NONE}]}}")
    assert not accepts(grounded, f"{HEAD}[{FIRE}, {NONE}]}}")
    alarm = HEAD.replace('"none"', '"fire"', 1).replace('"none"', '"low"')
    assert accepts(grounded, f"{alarm}[{FIRE}, {NONE}]}}")


def test_longest_is_reached() -> None:
    grounded = FieldSchema.load("hazard").ground(1)
    worst = {"hazard": "vehicle_proximity", "severity": "critical"}
    text = json.dumps({"notes": "\x01" * 240, **worst, "detections": [{"id": 0, **worst}]}, ensure_ascii=False)
    assert grounded.parse(text)["notes"] == "\x01" * 240
    assert len(text.encode()) == grounded.longest_bytes


@pytest.mark.parametrize("count", [0, 1, 5, 20, 100])
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_masks_are_taken_by_llguidance(name: str, count: int) -> None:
    assert refusal(FieldSchema.load(name).ground(count).mask_document) == ""


def test_ids_and_keys_cost_no_step() -> None:
    matcher = LLMatcher(LLTokenizer("byte"), FieldSchema.load("hazard").ground(2).grammar())
    written = f"{HEAD}[{FIRE}, {NONE.partition('none')[0]}"
    before = written.rindex("}, {")
    assert matcher.try_consume_tokens(list(written[:before].encode())) == before
    assert matcher.compute_ff_bytes().decode() == written[before:]
