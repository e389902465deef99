"""What is rewritten says the same: the mask takes an instance if and only if the schema as written does."""

import itertools
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.spelling import spell

Accepts = Callable[[GroundedSchema, str], bool]
A, B = {"enum": ["x", "y", "z"]}, {"type": "boolean"}
BASE = {"type": "object", "properties": {"a": A, "b": B, "c": {"enum": [1, 2]}}, "additionalProperties": False}
IS_X = {"properties": {"a": {"const": "x"}}, "required": ["a"]}
CASES: dict[str, dict[str, Any]] = {
    "if then": {"if": IS_X, "then": {"required": ["b"]}},
    "if else": {"if": IS_X, "else": {"properties": {"b": {"const": True}}}},
    "if then else": {
        "if": {"properties": {"a": {"enum": ["x", "y"]}}},
        "then": {"required": ["c"], "properties": {"c": {"const": 2}}},
        "else": {"required": ["b"]},
    },
    "if required": {"if": {"required": ["a", "b"]}, "then": {"properties": {"c": False}}},
    "if any": {"if": {"anyOf": [IS_X, {"required": ["c"]}]}, "then": {"required": ["b"]}},
    "if all": {"if": {"allOf": [IS_X, {"required": ["c"]}]}, "then": {"required": ["b"]}, "else": {"required": ["a"]}},
    "if not": {"if": {"not": IS_X}, "then": {"required": ["b", "c"]}},
    "if true": {"if": True, "then": {"required": ["b"]}},
    "if false": {"if": False, "then": False, "else": {"required": ["b"]}},
    "not": {"not": {"properties": {"a": {"const": "x"}, "b": {"const": True}}, "required": ["a", "b"]}},
    "not required": {"not": {"required": ["a"]}},
    "not any": {"not": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}},
    "dependentRequired": {"dependentRequired": {"a": ["b"], "b": ["c"]}},
    "dependentSchemas": {"dependentSchemas": {"a": {"properties": {"b": {"const": False}}}, "c": False}},
    "if of a type": {"if": {"type": "object"}, "then": {"required": ["b"]}},
    "if with lengths": {"if": {"properties": {"a": {"minLength": 2}}, "required": ["a"]}, "else": {"required": ["b"]}},
    "dependentRequired of what cannot be": {"dependentRequired": {"a": ["undeclared"]}},
    "oneOf": {"oneOf": [IS_X, {"required": ["b"]}, {"properties": {"c": {"const": 1}}, "required": ["c"]}]},
    "propertyNames": {"propertyNames": {"enum": ["a", "c"]}},
    "all at once": {
        "not": {"required": ["a", "b", "c"]},
        "dependentRequired": {"c": ["b"]},
        "if": {"properties": {"b": {"const": True}}, "required": ["b"]},
        "then": {"required": ["c"]},
    },
}
PARTS = {"a": [None, "x", "y", "z"], "b": [None, True, False], "c": [None, 1, 2]}


@pytest.mark.parametrize("keywords", CASES.values(), ids=CASES)
def test_the_mask_takes_what_the_schema_takes(accepts: Accepts, keywords: dict[str, Any]) -> None:
    document = {**BASE, **keywords}
    schema = FieldSchema.load(document)
    judge = jsonschema.Draft202012Validator(document)
    levels = {finding.pointer.split("/")[1]: finding.level for finding in schema.findings if finding.level != "note"}
    assert levels == {keyword: "rewritten" for keyword in keywords if keyword not in ("then", "else")}
    grounded = schema.ground(0)
    taken = 0
    for values in itertools.product(*PARTS.values()):
        instance = {name: value for name, value in zip(PARTS, values, strict=True) if value is not None}
        good = judge.is_valid(instance)
        assert accepts(grounded, spell(instance)) is good, instance
        taken += good
    assert 0 < taken < 36


@pytest.mark.parametrize(
    "keywords",
    [
        {"if": {"properties": {"a": {"pattern": "x"}}}, "then": {"required": ["b"]}},
        {"if": {"minProperties": 2}, "then": {"required": ["b"]}},
        {"not": {"properties": {"a": {"pattern": "x"}}}},
    ],
)
def test_what_cannot_be_said_exactly_is_checked_afterwards(keywords: dict[str, Any]) -> None:
    (finding,) = FieldSchema.load({**BASE, **keywords}).findings
    assert (finding.level, finding.pointer) == ("checked", f"/{next(iter(keywords))}")
