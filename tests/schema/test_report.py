"""Each keyword of a schema stands in exactly one section of the report, and where it says held, it is held."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hazardlens.errors import SchemaError
from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.findings import step
from hazardlens.schema.report import schema_report
from hazardlens.schema.spelling import read_strict
from hazardlens.schema.validation import validator_for
from tests.schema.conftest import with_field
from tests.schema.test_sound import SCHEMAS

Load = Callable[..., FieldSchema]
SECTIONS = {
    "held by the mask while the answer is written": "held",
    "held by the mask in another form": "rewritten",
    "narrowed by the mask": "closed",
    "only checked afterwards": "checked",
    "without effect on what is valid": "silent",
}
SHORT = {"type": "string", "maxLength": 5}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
HARD = {"type": "string", "maxLength": 4, "pattern": "^a(?=b)"}
DEFS = {
    "used": DIGIT,
    "unused": DIGIT,
    "denied": {"pattern": "^a"},
    "both": {"type": "string", "maxLength": 3, "pattern": "^b"},
    "tree": {"type": "object", "properties": {"t": {"$ref": "#/$defs/tree"}}, "additionalProperties": False},
    "any": {"$dynamicAnchor": "here", "type": "null"},
}
CASES: list[tuple[str, Any, dict[str, str]]] = [
    ("unknown format", {**SHORT, "format": "colour"}, {"format": "silent", "type": "held", "maxLength": "held"}),
    ("pattern too long", {**SHORT, "pattern": "^a", "minLength": 100, "maxLength": 200}, {"pattern": "checked"}),
    ("loose end", {"type": "string"}, {"type": "closed"}),
    (
        "counted properties",
        {"type": "object", "properties": {"a": DIGIT, "b": DIGIT}, "additionalProperties": False, "minProperties": 1},
        {"minProperties": "checked", "properties/a/type": "held", "additionalProperties": "held"},
    ),
    (
        "contains",
        {"type": "array", "items": DIGIT, "maxItems": 3, "contains": {"const": 1}, "minContains": 2},
        {"contains": "closed", "minContains": "closed", "contains/const": "closed", "items/type": "held"},
    ),
    (
        "too many of a kind",
        {"type": "array", "items": DIGIT, "minItems": 3, "contains": {"const": 1}, "maxContains": 2, "maxItems": 4},
        {"contains": "closed", "maxContains": "checked"},
    ),
    ("without contains", {"type": "array", "items": DIGIT, "maxItems": 3, "minContains": 2}, {"minContains": "silent"}),
    ("enum", {"enum": [1, 2], "not": {"const": 2}}, {"enum": "held", "not": "held", "not/const": "held"}),
    ("not", {**DIGIT, "not": {"multipleOf": 2}}, {"not": "checked", "not/multipleOf": "checked", "type": "held"}),
    (
        "condition",
        {**DIGIT, "if": {"minimum": 3}, "then": {"multipleOf": 2}},
        {"if": "rewritten", "then": "rewritten", "if/minimum": "rewritten", "then/multipleOf": "rewritten"},
    ),
    (
        "condition too hard",
        {**DIGIT, "if": {"multipleOf": 2}, "else": {"minimum": 3}},
        {"if": "checked", "else": "checked", "if/multipleOf": "checked", "else/minimum": "checked"},
    ),
    (
        "condition denied where the mask cannot",
        {**SHORT, "if": {"const": "a"}, "then": {"minLength": 1}},
        {"if": "checked", "then": "checked", "type": "held"},
    ),
    ("no condition", {**SHORT, "then": {"minLength": 2}}, {"then": "silent", "then/minLength": "silent"}),
    ("condition alone", {**SHORT, "if": {"minLength": 2}}, {"if": "silent", "if/minLength": "silent"}),
    ("content", {**SHORT, "contentEncoding": "base64"}, {"contentEncoding": "silent"}),
    (
        "content of a form",
        {**SHORT, "contentMediaType": "application/json", "contentSchema": DIGIT},
        {"contentMediaType": "silent", "contentSchema": "silent", "contentSchema/type": "silent"},
    ),
    ("dynamic reference", {"$dynamicRef": "#here"}, {"$dynamicRef": "held"}),
    (
        "map",
        {"type": "object", "properties": {"a": DIGIT}, "additionalProperties": SHORT},
        {"type": "held", "additionalProperties": "closed", "additionalProperties/maxLength": "closed"},
    ),
    (
        "names",
        {"type": "object", "properties": {"a": DIGIT}, "additionalProperties": False, "propertyNames": SHORT},
        {"propertyNames": "rewritten", "propertyNames/maxLength": "rewritten"},
    ),
    (
        "unevaluated",
        {"type": "object", "properties": {"a": DIGIT}, "required": ["b"], "unevaluatedProperties": HARD},
        {"unevaluatedProperties": "closed", "unevaluatedProperties/pattern": "checked"},
    ),
    ("overlap", {"oneOf": [SHORT, HARD]}, {"oneOf": "checked", "oneOf/0/maxLength": "held"}),
    (
        "too many ways",
        {**DIGIT, "allOf": [{"anyOf": [{"minimum": n}, {"maximum": n}]} for n in range(9)]},
        {"allOf/8/anyOf": "checked", "allOf/8/anyOf/0/minimum": "checked", "allOf/0/anyOf": "held"},
    ),
    ("unknown", {**SHORT, "maxlength": 3, "x-unit": "m"}, {"maxlength": "silent", "x-unit": "silent"}),
    ("draft", {**SHORT, "$schema": "http://json-schema.org/draft-07/schema#"}, {"$schema": "silent"}),
    (
        "reference",
        {"$ref": "#/$defs/used"},
        {"$ref": "held", "/$defs/used/type": "held", "/$defs/unused/type": "silent"},
    ),
    ("back to itself", {"$ref": "#/$defs/tree"}, {"/$defs/tree/properties/t/$ref": "held"}),
    (
        "reference inside what is only checked",
        {**SHORT, "not": {"$ref": "#/$defs/denied"}},
        {"not": "checked", "not/$ref": "checked", "/$defs/denied/pattern": "checked"},
    ),
    (
        "the worst of two uses",
        {"anyOf": [{"$ref": "#/$defs/both"}, {**DIGIT, "not": {"allOf": [{"$ref": "#/$defs/both"}]}}]},
        {"anyOf/0/$ref": "held", "/$defs/both/pattern": "checked"},
    ),
]


@pytest.mark.parametrize(("fragment", "expected"), [row[1:] for row in CASES], ids=[row[0] for row in CASES])
def test_where_keywords_stand(one_field: Load, fragment: Any, expected: dict[str, str]) -> None:
    schema = one_field(fragment, **{"$defs": DEFS})
    stands = {key: schema.keywords[key if key.startswith("/") else f"/properties/x/{key}"] for key in expected}
    assert stands == expected
    told(schema)


def told(schema: FieldSchema) -> dict[str, str]:
    """The section of each keyword in the printed report, in which it stands once."""
    report = schema_report(schema, objects=0, count_tokens=None, model="")
    seen: Counter[str] = Counter()
    found: dict[str, str] = {}
    section = ""
    for line in report.splitlines():
        title = re.match(r"(\w.*): ", line + " ")
        if title:
            section = SECTIONS.get(title[1], "")
        elif section and re.match(r"  /", line):
            place, _, names = line[2:].partition(": ")
            for name in names.split(", ") if names else ():
                pointer = f"{place.removesuffix('/')}/{name}"
                seen[pointer] += 1
                found[pointer] = section
    assert seen == dict.fromkeys(every_keyword(schema.document), 1)
    assert found == schema.keywords
    assert ("checked" in found.values()) is any(finding.level == "checked" for finding in schema.findings)
    return found


def every_keyword(node: Any, pointer: str = "") -> Iterator[str]:
    for keyword, value in node.items() if isinstance(node, dict) else ():
        place = step(pointer, keyword)
        yield place
        if keyword in ("properties", "patternProperties", "dependentSchemas", "$defs"):
            for name, part in value.items():
                yield from every_keyword(part, step(place, name))
        elif keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
            for index, part in enumerate(value):
                yield from every_keyword(part, step(place, index))
        elif keyword not in ("const", "enum", "dependentRequired"):
            yield from every_keyword(value, place)


EXTRAS: list[dict[str, Any]] = [
    {},
    {},
    {"title": "a"},
    {"format": "colour"},
    {"format": "uuid"},
    {"contentEncoding": "base64"},
    {"x-y": 1},
    {"then": {"const": 1}},
    {"maxContains": 1},
]


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    fragment=SCHEMAS.filter(lambda one: isinstance(one, dict)), extra=st.sampled_from(EXTRAS), seed=st.integers(0, 999)
)
def test_each_keyword_stands_once_and_what_the_mask_breaks_is_said_to_be_only_checked(
    sample: Callable[[GroundedSchema, random.Random], str], fragment: dict[str, Any], extra: dict[str, Any], seed: int
) -> None:
    document = with_field({**extra, **fragment})
    try:
        schema = FieldSchema.load(document)
    except SchemaError:
        assume(False)
    stands = told(schema)
    checked = [pointer for pointer, standing in stands.items() if standing == "checked"]
    rng = random.Random(seed)
    for _ in range(3):
        value = read_strict(sample(schema.ground(0), rng))
        for error in validator_for(document).iter_errors(value):
            broken = step("", *error.absolute_schema_path)
            assert any(within(broken, one) or within(one, broken) for one in checked), (value, broken, stands)


def within(pointer: str, outer: str) -> bool:
    return pointer == outer or pointer.startswith(outer + "/")
