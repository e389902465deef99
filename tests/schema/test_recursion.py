"""Schemas that hold themselves: held by the mask at any depth, judged, described, and closed."""

from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from hazardlens.errors import SchemaError
from hazardlens.schema import AnswerError, FieldSchema, probe
from tests.random_schema import RECURSIVE
from tests.schema.conftest import with_field

Load = Callable[..., FieldSchema]
CASES: list[tuple[str, list[str], list[str]]] = [
    ("tree", ['{"name": "a"}', '{"name": "a", "left": {"name": "bc", "left": {"name": "a"}}}'], ['{"left": {}}', "{}"]),
    ("nest", ["[]", "[[], [[[]]]]"], ["[[], [], [], [], []]", "[[1]]", "["]),
    ("sum", ["7", '{"a": {"a": "x"}, "b": {"a": 1}}', '{"a": {"a": 2}, "c": 1}'], ['{"b": 1}', '{"a": "q"}']),
    ("both", ["null", '[{"in": null}, {"name": "a", "in": [{"in": null}]}]'], ["[]", '[{"name": "a"}]']),
]


@pytest.mark.parametrize(("name", "good", "bad"), CASES)
def test_mask_check_and_plain_document_agree(one_field: Load, name: str, good: list[str], bad: list[str]) -> None:
    grounded = one_field({"$ref": f"#/$defs/{name}"}, **{"$defs": RECURSIVE}).ground(0)
    assert grounded.longest_bytes is None
    closing = grounded.closing(len)
    for text in good:
        answer = f'{{"x": {text}}}'
        assert probe.accepts(grounded.grammar(), answer), text
        jsonschema.validate(grounded.parse(answer), grounded.document)
        assert closing.need(closing.follow(closing.start, answer.encode())).tokens == 0
    for text in bad:
        assert not probe.accepts(grounded.grammar(), f'{{"x": {text}}}'), text
        with pytest.raises(AnswerError):
            grounded.parse(f'{{"x": {text}}}')


SHORTEST = {"tree": '{"name": "bc"}', "nest": "[]", "sum": '{"a": "yz"}', "both": "null"}


@pytest.mark.parametrize(("name", "text"), SHORTEST.items())
def test_the_least_budget_is_that_of_the_shortest_way_out(one_field: Load, name: str, text: str) -> None:
    grounded = one_field({"$ref": f"#/$defs/{name}"}, **{"$defs": RECURSIVE}).ground(0)
    assert grounded.shortest_tokens(len) == len(f'{{"x": {text}}}')


def test_a_way_that_shares_its_beginning_with_a_shorter_one_does_not_hide_it(one_field: Load) -> None:
    grounded = one_field({"$ref": "#/$defs/sum"}, **{"$defs": RECURSIVE}).ground(0)
    closing = grounded.closing(len)
    place = closing.follow(closing.start, b'{"x": {"a": {"a": {"a": ')
    assert closing.need(place).tokens == len('"yz"}' + 2 * ', "b": {"a": "yz"}}' + "}")


def test_what_can_never_end_is_left_out_where_it_may_be_and_refused_where_it_must_not() -> None:
    endless = {"type": "object", "properties": {"more": {"$ref": "#/$defs/e"}}, "required": ["more"]}
    document: dict[str, Any] = {
        "type": "object",
        "properties": {
            "a": {"type": "boolean"},
            "b": {"$ref": "#/$defs/e"},
            "c": {"anyOf": [{"$ref": "#/$defs/e"}, {"type": "null"}]},
            "d": {"type": "array", "items": {"$ref": "#/$defs/e"}, "maxItems": 2},
        },
        "required": ["a", "c", "d"],
        "additionalProperties": False,
        "$defs": {"e": {**endless, "additionalProperties": False}},
    }
    schema = FieldSchema.load(document)
    assert ("/$defs/e/properties/more/$ref", "note") in {(one.pointer, one.level) for one in schema.findings}
    grammar = schema.ground(0).grammar()
    assert probe.accepts(grammar, '{"a": true, "c": null, "d": []}')
    assert not probe.accepts(grammar, '{"a": true, "c": null, "d": [{"more": {}}]}')
    with pytest.raises(SchemaError, match="/\\$defs/e/properties/more/\\$ref: never satisfiable: it requires itself"):
        FieldSchema.load({**document, "required": ["b"]})


def test_it_is_described_once(one_field: Load) -> None:
    text = one_field({"$ref": "#/$defs/tree"}, **{"$defs": RECURSIVE}).describe()
    assert text.count("left") == 1
    assert "left (object), made as above" in text
    nest = one_field({"$ref": "#/$defs/nest"}, **{"$defs": RECURSIVE}).describe()
    assert nest.count("list") < 6


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
ONES = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "maxItems": 4}


@pytest.mark.parametrize("draft", [DRAFT_7, DRAFT_2020])
@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ({**ONES, "contains": {"const": 1}, "maxContains": 2}, "[1, 2, 3]", "[1, 1, 1]"),
        ({"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 1}, "0.07", "0.001"),
    ],
)
def test_every_level_is_judged_alike_whatever_draft_is_named(draft: str, field: Any, good: str, bad: str) -> None:
    root = {"$schema": draft, **with_field(field)}
    root["properties"]["child"] = {"$ref": "#"}
    grounded = FieldSchema.load(root).ground(0)
    assert probe.accepts(grounded.grammar(), f'{{"x": {good}, "child": {{"x": {good}}}}}')
    grounded.parse(f'{{"x": {good}, "child": {{"x": {good}}}}}')
    for text in (f'{{"x": {bad}}}', f'{{"x": {good}, "child": {{"x": {bad}}}}}'):
        with pytest.raises(AnswerError):
            grounded.parse(text)


def test_a_draft_named_in_a_subschema_changes_nothing(one_field: Load) -> None:
    part = {"$schema": DRAFT_7, "$id": "urn:example:old", **ONES, "contains": {"const": 1}, "maxContains": 2}
    for fragment in (part, {"anyOf": [part, {"type": "null"}]}):
        grounded = one_field(fragment).ground(0)
        grounded.parse('{"x": [1, 2, 3]}')
        with pytest.raises(AnswerError):
            grounded.parse('{"x": [1, 1, 1]}')


@pytest.mark.parametrize("depth", [100, 300, 900, 3000])
def test_an_answer_nested_too_deeply_to_be_judged_is_an_invalid_one(one_field: Load, depth: int) -> None:
    grounded = one_field({"$ref": "#/$defs/tree"}, **{"$defs": RECURSIVE}).ground(0)
    text = '{"x": ' + '{"name": "a", "left": ' * depth + '{"name": "bc"}' + "}" * depth + "}"
    assert probe.accepts(grounded.grammar(), text)
    assert grounded.takes(text) is (depth == 100)
    if depth > 100:
        with pytest.raises(AnswerError, match="nested too deeply"):
            grounded.parse(text)


@pytest.mark.parametrize("depth", [50, 200, 600])
def test_a_schema_nested_too_deeply_is_refused(one_field: Load, depth: int) -> None:
    fragment: dict[str, Any] = {"type": "null"}
    for _ in range(depth):
        fragment = {"type": "array", "items": fragment, "maxItems": 1}
    if depth == 50:
        assert one_field(fragment).ground(0).takes('{"x": []}')
    else:
        with pytest.raises(SchemaError, match="nested too deeply"):
            one_field(fragment)


def test_references_into_what_names_another_draft_are_followed_all_the_same_and_that_is_told(one_field: Load) -> None:
    old = {"$schema": DRAFT_7, "$id": "urn:example:old", "$defs": {"n": {"$anchor": "here", "type": "null"}}}
    schema = one_field({"$ref": "urn:example:old#here"}, **{"$defs": {"old": old}})
    assert schema.ground(0).takes('{"x": null}')
    (note,) = schema.findings
    assert (note.pointer, note.level) == ("/$defs/old/$schema", "note")
    assert "read as draft 2020-12" in note.message
