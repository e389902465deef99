"""Dialects: a table of what goes over the wire, held against the documented limits, and the way back."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer

from hazardlens.errors import PipelineError, SchemaError
from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.spelling import spell
from hazardlens.testing import small_instance
from hazardlens.vlm.remote.dialects import DIALECTS, Dialect, Limits, dialect
from hazardlens.vlm.remote.forms import form_for, size_of
from hazardlens.vlm.remote.restoring import restored
from hazardlens.vlm.remote.wire import NAME, merged, wire

HAZARD = FieldSchema.load("hazard")
COUNTS = (0, 1, 20, 100)
APIS = ("chat.completions", "responses")
OPTIONAL = FieldSchema.load(
    {
        "type": "object",
        "properties": {
            "speed": {"type": "number", "minimum": 0, "maximum": 90, "multipleOf": 0.5},
            "plate": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{4}$", "maxLength": 6},
            "seen": {"anyOf": [{"type": "null"}, {"enum": ["front", "back"]}]},
            "pair": {"type": "array", "prefixItems": [{"type": "integer", "minimum": 0, "maximum": 9}, {"const": "x"}],
                     "items": False, "minItems": 2},
        },
        "required": ["speed", "seen"],
        "additionalProperties": False,
    }
)  # fmt: skip


def nodes(document: Any) -> list[dict[str, Any]]:
    if isinstance(document, list):
        return [node for part in document for node in nodes(part)]
    if not isinstance(document, dict):
        return []
    return [document, *(node for part in document.values() for node in nodes(part))]


def objects(document: Any) -> list[dict[str, Any]]:
    return [node for node in nodes(document) if node.get("type") == "object"]


def keywords(document: Any) -> set[str]:
    """Keywords that stand anywhere, names of properties and definitions left out."""
    if isinstance(document, list):
        return {key for part in document for key in keywords(part)}
    if not isinstance(document, dict):
        return set()
    found = set(document)
    for key, part in document.items():
        found |= keywords(list(part.values()) if key in ("properties", "$defs") else part)
    return found


def documents(arguments: Any) -> list[dict[str, Any]]:
    """Schemas that stand in a request."""
    found = []
    for node in nodes(arguments):
        found += [node[key] for key in ("schema", "parameters") if isinstance(node.get(key), dict)]
        if "json" in node:
            found.append(node["json"])
    return found


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("api", APIS)
def test_openai_strict_keeps_every_documented_rule(count: int, api: Any) -> None:
    wired = wire(HAZARD.ground(count), dialect("openai"), api)
    (document,) = documents(wired.arguments)
    assert document["type"] == "object"
    assert "anyOf" not in document
    for node in objects(document):
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])
    assert not keywords(document) & {"allOf", "not", "if", "dependentRequired", "dependentSchemas", "prefixItems"}
    size = size_of(document)
    assert size.properties <= 5_000
    assert size.depth <= 10
    assert size.enum_values <= 1_000
    assert size.characters <= 120_000
    assert "/: the rule across fields" in wired.checked
    assert [node["strict"] for node in nodes(wired.arguments) if "strict" in node] == [True]


def test_the_size_of_a_keyed_schema_hardly_grows_with_the_detections() -> None:
    sizes = [size_of(form_for(HAZARD.ground(count), dialect("openai")).document) for count in COUNTS]
    assert sizes[3].enum_values == sizes[1].enum_values
    assert sizes[3].properties == sizes[1].properties + 99
    assert sizes[0].properties < sizes[1].properties


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("row", DIALECTS.values(), ids=lambda row: row.name)
@pytest.mark.parametrize("api", APIS)
def test_every_row_carries_the_schema_and_what_it_leaves_out_is_said(count: int, row: Dialect, api: Any) -> None:
    wired = wire(HAZARD.ground(count), row, api)
    sent = documents(wired.arguments)
    if row.wire(api) in ("none", "json_object"):
        assert not sent
        assert "JSON Schema" in wired.told
        return
    (document,) = sent
    jsonschema.Draft202012Validator.check_schema(document)
    left = {keyword for keyword in row.leaves_out if "." not in keyword}
    assert not keywords(document) & left
    if "maxLength" in left:
        assert any(told.endswith(": maxLength") for told in wired.checked)
    if count and row.keyed:
        (listed,) = [node["properties"]["detections"] for node in objects(document) if "notes" in node["properties"]][
            :1
        ]
        assert list(listed["properties"]) == [str(index) for index in range(count)]
        assert list(document["$defs"]) == ["object"]


@pytest.mark.parametrize(
    ("name", "api", "place"),
    [
        ("openai", "chat.completions", ["response_format", "json_schema", "schema"]),
        ("openai", "responses", ["text", "format", "schema"]),
        ("vllm", "chat.completions", ["response_format", "json_schema", "schema"]),
        ("llama.cpp", "chat.completions", ["response_format", "json_schema", "schema"]),
        ("llama.cpp", "responses", ["extra_body", "response_format", "json_schema", "schema"]),
        ("function", "chat.completions", ["tools", 0, "function", "parameters"]),
        ("function", "responses", ["tools", 0, "parameters"]),
    ],
)
def test_where_the_schema_stands(name: str, api: Any, place: list[Any]) -> None:
    found: Any = wire(HAZARD.ground(2), dialect(name), api).arguments
    for step in place:
        found = found[step]
    spelling = {"x-guidance": found["x-guidance"]} if dialect(name).spelled else {}
    assert found == {**form_for(HAZARD.ground(2), dialect(name)).document, **spelling}


def test_one_that_can_be_told_how_json_is_spelled_is_told_the_masks_spelling() -> None:
    (document,) = documents(wire(HAZARD.ground(2), dialect("vllm"), "chat.completions").arguments)
    words = LLTokenizer("byte")
    anything = LLMatcher.grammar_from_json_schema({"x-guidance": document["x-guidance"]})
    for text, taken in ((spell({"a": [1, True], "b": "x"}), True), ('{"a":[1]}', False), ('{"a":  1}', False)):
        matcher = LLMatcher(words, anything)
        tokens = words.tokenize_bytes(text.encode())
        assert (matcher.try_consume_tokens(tokens) == len(tokens)) is taken


@pytest.mark.parametrize("name", ["json_object", "prompt", "transformers"])
def test_where_no_schema_can_stand_the_prompt_tells_it(name: str) -> None:
    wired = wire(HAZARD.ground(2), dialect(name), "chat.completions")
    document = json.loads(wired.told.partition("\n")[2])
    assert document["$defs"]["object"]
    assert wired.checked == ("/: everything",)


def test_choices_and_expressions_reach_the_servers_that_take_them() -> None:
    choices = FieldSchema.load({"choices": ["red light", "green"]}).ground(0)
    regex = FieldSchema.load({"regex": "[A-Z]{2}[0-9]{1,4}"}).ground(0)
    of = {name: wire(choices, dialect(name), "chat.completions").arguments for name in DIALECTS}
    assert of["vllm"] == {"extra_body": {"structured_outputs": {"choice": ["red light", "green"]}}}
    assert of["llama.cpp"] == {"extra_body": {"grammar": 'root ::= "red light" | "green"'}}
    assert documents(of["openai"])[0]["properties"]["label"] == {"type": "string", "enum": ["red light", "green"]}
    assert wire(regex, dialect("vllm"), "responses").arguments == {
        "extra_body": {"structured_outputs": {"regex": "[A-Z]{2}[0-9]{1,4}"}}
    }
    nearest = wire(regex, dialect("openai"), "chat.completions")
    assert documents(nearest.arguments)[0]["properties"]["text"] == {"type": "string"}
    assert "/properties/text: the regular expression" in nearest.checked


@pytest.mark.parametrize(
    ("written", "takers"),
    [
        ({"gbnf": 'root ::= "AB" [0-9]'}, ("vllm", "llama.cpp")),
        ({"lark": 'start: "AB" /[0-9]/'}, ("vllm",)),
    ],
)
def test_a_grammar_reaches_the_servers_that_take_it_as_it_was_written(
    written: dict[str, str], takers: tuple[str, ...]
) -> None:
    schema = FieldSchema.load(written).ground(0)
    (text,) = written.values()
    for name in ("vllm", "llama.cpp", "openai"):
        made = wire(schema, dialect(name), "chat.completions")
        assert (text in json.dumps(made.arguments).encode().decode("unicode_escape")) == (name in takers)
        assert any("the grammar" in reason for reason in made.checked) == (name not in takers)
    assert schema.parse("AB7") == {"text": "AB7"}


def test_too_large_a_schema_is_an_error() -> None:
    tight = replace(dialect("openai"), limits=Limits(properties=20, depth=10, enum_values=1_000, characters=120_000))
    wire(HAZARD.ground(10), tight, "responses")
    with pytest.raises(SchemaError, match=r"20 detections .* dialect openai: properties 2\d, at most 20"):
        wire(HAZARD.ground(20), tight, "responses")
    wide = FieldSchema.load(
        {"type": "object", "properties": {f"f{i}": {"enum": [f"{i}-{j}" for j in range(60)]} for i in range(20)}}
    )
    with pytest.raises(SchemaError, match="enum values 1,200, at most 1,000"):
        wire(wide.ground(0), dialect("openai"), "chat.completions")
    wire(wide.ground(0), dialect("vllm"), "chat.completions")


def test_an_unknown_dialect_is_named() -> None:
    with pytest.raises(PipelineError, match="no dialect 'vlm'"):
        dialect("vlm")


def sent_instance(schema: GroundedSchema, row: Dialect) -> tuple[Any, str]:
    """A small instance of what is sent, as a server would write it."""
    document = form_for(schema, row).document
    value = small_instance(document)
    jsonschema.Draft202012Validator(document).validate(value)
    return value, json.dumps(value)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("row", DIALECTS.values(), ids=lambda row: row.name)
def test_an_answer_in_the_sent_form_becomes_one_in_the_schemas_own(count: int, row: Dialect) -> None:
    schema = HAZARD.ground(count)
    value, text = sent_instance(schema, row)
    if "minLength" in row.leaves_out:
        value["notes"] = "Nothing of note."
        text = json.dumps(value)
    fields = schema.parse(restored(text, schema))
    assert [entry["id"] for entry in fields["detections"]] == list(range(count))
    assert {"notes", "hazard", "severity", "detections"} == set(fields)


def test_optional_fields_are_nullable_and_their_nulls_are_left_out() -> None:
    schema = OPTIONAL.ground(0)
    form = form_for(schema, dialect("openai"))
    assert form.document["required"] == ["speed", "plate", "seen", "pair"]
    assert form.document["properties"]["plate"]["anyOf"][1] == {"type": "null"}
    said = '{"speed": 3.5, "plate": null, "seen": null, "pair": null}'
    assert json.loads(restored(said, schema)) == {"speed": 3.5, "seen": None}
    schema.parse(restored(said, schema))
    assert restored('{"speed": null, "seen": null}', schema) == '{"speed": null, "seen": null}'


def test_what_a_rule_across_fields_forbids_is_found_by_validation() -> None:
    schema = HAZARD.ground(0)
    said = '{"notes": "Nothing of note.", "hazard": "none", "severity": "high"}'
    jsonschema.Draft202012Validator(form_for(schema, dialect("openai")).document).validate(json.loads(said))
    with pytest.raises(ValueError, match="not valid under any"):
        schema.parse(restored(said, schema))


VALID = '{"notes": "Nothing of note.", "hazard": "none", "severity": "none", "detections": []}'


@pytest.mark.parametrize(
    "text",
    [
        VALID,
        f"```json\n{VALID}\n```",
        f"Here it is:\n```\n{VALID}\n```\nDone.",
        f"<think>Is {{that}} fire?</think>\n{VALID}",
        f"so it is fine</think>{VALID}",
        f"<think>hm</think>```json\n{VALID}\n```",
        VALID.replace("[]", "{}"),
        VALID.replace(', "detections": []', ""),
    ],
)
def test_what_stands_around_an_answer_is_taken_off(text: str) -> None:
    assert HAZARD.ground(0).parse(restored(text, HAZARD.ground(0)))["hazard"] == "none"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I see nothing.",
        VALID[:-5],
        f"{VALID}\n{VALID}",
        f"```json\n{VALID}\n```\n```json\n{VALID}\n```",
        VALID.replace("[]", '{"0": {"hazard": "none", "severity": "none"}}'),
        VALID.replace("[]", '{"x": {}}'),
        VALID.replace("Nothing", "\\ud800"),
        VALID.replace('"none", "sev', '"none", "hazard": "fire", "sev'),
        "[" * 100_000,
    ],
)
def test_nothing_is_mended(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|/|not valid"):
        HAZARD.ground(0).parse(restored(text, HAZARD.ground(0)))


def test_arguments_are_laid_over_each_other() -> None:
    ours = {"temperature": 0, "max_tokens": 9, "extra_body": {"grammar": "g", "cache": 1}}
    theirs = {"temperature": None, "extra_body": {"cache": 2}, "user": "me"}
    assert merged(ours, theirs) == {"max_tokens": 9, "extra_body": {"grammar": "g", "cache": 2}, "user": "me"}
    assert NAME.replace("_", "").isalnum()
