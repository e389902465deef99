from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hazardlens.errors import SchemaError
from hazardlens.schema import FieldSchema, probe

Load = Callable[..., FieldSchema]
X = "/properties/x"
SHORT = {"type": "string", "maxLength": 5}
DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


ERRORS: list[tuple[str, Any, str, str]] = [
    ("wrong type name", {"type": "text"}, X + "/type", "not JSON Schema"),
    ("wrong keyword value", {"type": "string", "maxLength": -1}, X + "/maxLength", "not JSON Schema"),
    ("bad pattern", {"type": "string", "maxLength": 3, "pattern": "("}, X + "/pattern", "not JSON Schema"),
    ("dangling reference", {"$ref": "#/$defs/absent"}, X + "/$ref", "refers to nothing"),
    ("dangling anchor", {"$ref": "#absent"}, X + "/$ref", "refers to nothing"),
    ("reference to no schema", {"$ref": "#/required"}, X + "/$ref", "refers to nothing"),
    ("remote reference", {"$ref": "https://example.com/a.json"}, X + "/$ref", "remote reference"),
    ("dynamic reference", {"$dynamicRef": "#a"}, X + "/$dynamicRef", "refers to nothing"),
    ("dynamic reference to two", {"$dynamicRef": "#both"}, X + "/$dynamicRef", "may lead to 2 places"),
    (
        "more properties than named",
        {"type": "object", "properties": {"a": DIGIT}, "minProperties": 2},
        X,
        "minProperties",
    ),
    (
        "contains nothing",
        {"type": "array", "contains": {"enum": []}, "items": DIGIT},
        X + "/items",
        "none of the values",
    ),
    (
        "contains without room",
        {"type": "array", "items": DIGIT, "maxItems": 1, "contains": {"const": 1}, "minContains": 2},
        X,
        "no room",
    ),
    ("contains too much", {"type": "array", "contains": DIGIT, "minContains": 2, "maxContains": 1}, X, "minContains"),
    ("names", {**closed(ab=DIGIT), "propertyNames": {"maxLength": 1}}, X + "/required", "nothing is allowed there"),
    (
        "nothing unevaluated",
        {"type": "object", "required": ["a"], "unevaluatedProperties": False},
        X + "/required",
        "nothing is allowed there",
    ),
    ("endless in a circle", {"$ref": "#/$defs/here"}, "/$defs/there/properties/a/$ref", "requires itself"),
    ("loop through anyOf", {"$ref": "#/$defs/loop"}, "/$defs/pool", "requires itself"),
    ("required self-reference", {"$ref": "#/$defs/endless"}, "/$defs/endless/properties/next/$ref", "requires itself"),
    ("reference to itself", {"$ref": "#/$defs/self"}, "/$defs/self/$ref", "requires itself"),
    ("reference upwards", closed(a={"$ref": "#/properties/x"}), X + "/properties/a/$ref", "requires itself"),
    ("lengths", {"type": "string", "minLength": 3, "maxLength": 2}, X, "minLength 3"),
    ("lengths in allOf", {"type": "string", "allOf": [{"minLength": 9}, {"maxLength": 2}]}, X, "minLength 9"),
    ("pattern and length", {"type": "string", "pattern": "^abcd$", "maxLength": 3}, X, "no string"),
    ("patterns", {"type": "string", "maxLength": 3, "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]}, X, "no string"),
    ("format and length", {"type": "string", "format": "date", "maxLength": 3}, X, "no string"),
    ("bounds", {"type": "integer", "minimum": 3, "maximum": 2}, X, "no number"),
    ("open bounds", {"type": "integer", "exclusiveMinimum": 2, "exclusiveMaximum": 3}, X, "no number"),
    ("bounds and step", {"type": "integer", "minimum": 1, "maximum": 4, "multipleOf": 5}, X, "no number"),
    ("float bounds and step", {"type": "number", "minimum": 0.1, "maximum": 0.2, "multipleOf": 0.25}, X, "no number"),
    ("bounds across a reference", {"$ref": "#/$defs/big", "maximum": 3}, X, "no number"),
    ("items", {"type": "array", "items": DIGIT, "minItems": 3, "maxItems": 2}, X, "minItems 3"),
    ("tuple", {"type": "array", "prefixItems": [DIGIT], "items": False, "minItems": 2}, X, "minItems 2"),
    (
        "unique items",
        {"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "maxItems": 4, "uniqueItems": True},
        X,
        "uniqueItems",
    ),
    ("empty enum", {"enum": []}, X, "none of the values"),
    ("enum outside type", {"type": "string", "enum": [1, 2]}, X, "none of the values"),
    ("const outside bounds", {"const": 5, "maximum": 3}, X, "none of the values"),
    ("const outside pattern", {"const": "a", "pattern": "b"}, X, "none of the values"),
    ("const that is denied", {"const": "a", "not": {"const": "a"}}, X, "none of the values"),
    ("enum and const", {"allOf": [{"const": 1}, {"enum": [2, 3]}]}, X + "/allOf/0", "none of the values"),
    ("types", {"type": "string", "allOf": [{"type": "integer"}]}, X, "exclude each other"),
    ("false", False, "/required", "nothing is allowed there"),
    ("required and false", {**closed(a=False)}, X + "/required", "nothing is allowed there"),
    ("undeclared", {**closed(a=DIGIT), "required": ["b"]}, X + "/required", "'b' is required"),
    ("too few properties", {**closed(a=DIGIT), "minProperties": 2}, X, "properties are possible"),
    ("too many required", {**closed(a=DIGIT, b=DIGIT), "maxProperties": 1}, X, "properties are possible"),
    ("dead branches", {"anyOf": [{"const": 5, "maximum": 3}, {"enum": []}]}, X + "/anyOf/0", "none of the values"),
    ("dead branches, second", {"anyOf": [{"const": 5, "maximum": 3}, {"enum": []}]}, X + "/anyOf/1", "none of the"),
    ("digits lost", {"const": -(2**63)}, X, "loses digits"),
    ("digits lost in depth", {"const": {"a": [2**60]}}, X, "loses digits"),
    ("step too fine", {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 1e-15}, X, "too many digits"),
]
DEFS = {
    "a/b": {"type": "string"},
    "here": closed(b={"$ref": "#/$defs/there"}),
    "there": closed(a={"$ref": "#/$defs/here"}),
    "loop": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/pool"}]},
    "pool": {"allOf": [{"$ref": "#/$defs/loop"}]},
    "one": {"$dynamicAnchor": "both", "type": "null"},
    "two": {"$id": "other", "$dynamicAnchor": "both", "type": "null"},
    "endless": closed(next={"$ref": "#/$defs/endless"}),
    "self": {"$ref": "#/$defs/self"},
    "big": {"type": "integer", "minimum": 10},
}


@pytest.mark.parametrize(
    ("fragment", "pointer", "message"), [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS]
)
def test_errors(one_field: Load, fragment: Any, pointer: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        one_field(fragment, **{"$defs": DEFS})
    lines = [line.strip() for line in str(caught.value).splitlines()[1:-1]]
    assert any(line.startswith(f"{pointer}: ") and message in line for line in lines), lines


@pytest.mark.parametrize("document", [{"type": "array"}, {}, {"enum": [1]}, {"type": ["object", "null"]}])
def test_root_must_be_an_object(document: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="must be an object"):
        FieldSchema.load(document)


def test_a_schema_that_asks_for_nothing_is_refused() -> None:
    for document in ({"type": "object"}, {"type": "object", "additionalProperties": {"type": "integer"}}):
        with pytest.raises(SchemaError, match="the answer could only be empty"):
            FieldSchema.load(document)


def test_all_errors_are_listed_at_once() -> None:
    document = closed(a={"type": "string", "minLength": 2, "maxLength": 1}, b={"enum": []}, c={"const": 2**60})
    document["properties"]["d"] = {"type": "integer"}
    with pytest.raises(SchemaError) as caught:
        FieldSchema.load(document)
    for pointer in ("/properties/a: ", "/properties/b: ", "/properties/c: "):
        assert pointer in str(caught.value)
    assert "/properties/d" not in str(caught.value)


FINDINGS: list[tuple[str, Any, str, str, str]] = [
    ("integer", {"type": "integer"}, X, "closed", "9007199254740991"),
    ("half-bounded integer", {"type": "integer", "minimum": 3}, X, "closed", "between 3 and"),
    ("number", {"type": "number"}, X, "closed", "1000000000"),
    ("number digits", {"type": "number", "minimum": 0, "maximum": 1}, X, "closed", "multiples of 0.001"),
    ("open object", {"type": "object", "properties": {"a": DIGIT}}, X, "closed", "only those it names"),
    ("open by word", {**closed(a=DIGIT), "additionalProperties": True}, X, "closed", "only those it names"),
    ("no type", {"maxLength": 3}, X, "closed", "takes string"),
    ("two types", {"maxLength": 3, "maximum": 3}, X, "closed", "takes string and number"),
    ("string", {"type": "string"}, X, "closed", "ends it at 256"),
    ("long string", {"type": "string", "minLength": 300}, X, "closed", "ends it at 300"),
    ("open pattern", {"type": "string", "pattern": "^a+$"}, X, "closed", "ends it at 256"),
    ("costly pattern", {"type": "string", "pattern": "^a"}, X, "closed", "ends it at"),
    ("array", {"type": "array", "items": DIGIT}, X, "closed", "ends it at 16 items"),
    ("array of anything", {"type": "array", "maxItems": 3}, X + "/items", "closed", "any value"),
    ("tuple with open end", {"type": "array", "prefixItems": [DIGIT]}, X, "closed", "16 items"),
    ("object", {"type": "object"}, X, "closed", "only those it names"),
    ("map", {"type": "object", "additionalProperties": DIGIT}, X, "closed", "only those it names"),
    ("patterned map", {"type": "object", "patternProperties": {"^a": DIGIT}}, X, "closed", "only those it names"),
    (
        "closed patterned map",
        {"type": "object", "patternProperties": {"^a": DIGIT}, "additionalProperties": False},
        X,
        "closed",
        "only those it names",
    ),
    ("anything", {}, X, "closed", "any value"),
    ("true", True, X, "closed", "any value"),
    ("undeclared but open", {"type": "object", "required": ["b"]}, X + "/properties/b", "closed", "any value"),
    ("nested", closed(a=closed(b={"type": "string"})), X + "/properties/a/properties/b", "closed", "a string"),
    ("in a branch", {"anyOf": [DIGIT, {"type": "string"}]}, X + "/anyOf/1", "closed", "a string"),
    ("in items", {"type": "array", "maxItems": 2, "items": {"type": "string"}}, X + "/items", "closed", "a string"),
    ("endless format", {"type": "string", "format": "email"}, X, "closed", "254"),
    (
        "unique items",
        {"type": "array", "items": DIGIT, "maxItems": 2, "uniqueItems": True},
        X + "/uniqueItems",
        "checked",
        "not held",
    ),
    (
        "unique tuple",
        {"type": "array", "prefixItems": [DIGIT, DIGIT], "items": False, "uniqueItems": True},
        X + "/uniqueItems",
        "checked",
        "not held",
    ),
    ("not", {**DIGIT, "not": {"const": 3}}, X + "/not", "checked", "not held"),
    ("if", {**DIGIT, "if": {"minimum": 3}, "then": {"multipleOf": 2}}, X + "/if", "rewritten", "if/then/else"),
    ("undecided if", {**DIGIT, "if": {"multipleOf": 2}, "then": {"minimum": 3}}, X + "/if", "checked", "if/then/else"),
    (
        "contains",
        {"type": "array", "items": DIGIT, "maxItems": 2, "contains": {"const": 1}},
        X + "/contains",
        "closed",
        "in front",
    ),
    (
        "maxContains",
        {"type": "array", "items": DIGIT, "minItems": 3, "contains": {"const": 1}, "maxContains": 2},
        X + "/contains",
        "checked",
        "maxContains",
    ),
    (
        "unique choices",
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True},
        X + "/uniqueItems",
        "closed",
        "at most once, in order",
    ),
    (
        "dependentRequired",
        {**closed(a=DIGIT), "dependentRequired": {"a": []}},
        X + "/dependentRequired",
        "rewritten",
        "",
    ),
    (
        "dependentSchemas",
        {**closed(a=DIGIT), "dependentSchemas": {"a": True}},
        X + "/dependentSchemas",
        "rewritten",
        "",
    ),
    ("propertyNames", {**closed(a=DIGIT), "propertyNames": {"maxLength": 2}}, X + "/propertyNames", "rewritten", ""),
    (
        "unevaluatedProperties",
        {"type": "object", "properties": {"a": DIGIT}, "unevaluatedProperties": False},
        X + "/unevaluatedProperties",
        "rewritten",
        "",
    ),
    (
        "unevaluatedItems",
        {"type": "array", "items": DIGIT, "maxItems": 1, "unevaluatedItems": False},
        X + "/unevaluatedItems",
        "rewritten",
        "",
    ),
    (
        "minProperties",
        {"type": "object", "properties": {"a": DIGIT, "b": DIGIT}, "additionalProperties": False, "minProperties": 1},
        X,
        "checked",
        "minProperties",
    ),
    ("overlapping oneOf", {"oneOf": [SHORT, {"type": "string", "maxLength": 3}]}, X + "/oneOf", "rewritten", "denied"),
    ("oneOf with a pattern", {"oneOf": [SHORT, {**SHORT, "pattern": "a"}]}, X + "/oneOf", "checked", "anyOf"),
    ("look-around", {"type": "string", "maxLength": 4, "pattern": "^a(?=b)"}, X + "/pattern", "checked", "look-ahead"),
    (
        "back-reference",
        {"type": "string", "maxLength": 4, "pattern": "(a)\\1"},
        X + "/pattern",
        "checked",
        "backreferences",
    ),
    ("oneOf of list and range", {"oneOf": [{"enum": [0, 1]}, DIGIT]}, X + "/oneOf", "checked", "anyOf"),
    ("oneOf of no type", {"oneOf": [{"maxLength": 3}, DIGIT]}, X + "/oneOf", "checked", "anyOf"),
    (
        "oneOf of narrowed numbers",
        {"oneOf": [{"type": "number"}, {"type": "number", "minimum": 2e9, "maximum": 3e9}]},
        X + "/oneOf",
        "rewritten",
        "denied",
    ),
    (
        "pattern beyond its budget",
        {"type": "string", "pattern": "^a", "minLength": 100, "maxLength": 200},
        X,
        "checked",
        "at this length",
    ),
    ("calendar", {"type": "string", "format": "date"}, X + "/format", "checked", "calendar"),
    (
        "format of the check only",
        {"type": "string", "maxLength": 4, "format": "regex"},
        X + "/format",
        "checked",
        "regex",
    ),
    (
        "too many ways",
        {**DIGIT, "allOf": [{"anyOf": [{"minimum": n}, {"maximum": n}]} for n in range(9)]},
        X + "/allOf/8/anyOf",
        "checked",
        "more than 256",
    ),
    ("unknown format", {"type": "string", "maxLength": 4, "format": "colour"}, X + "/format", "note", "colour"),
    ("misspelled", {**SHORT, "maxlength": 4}, X + "/maxlength", "note", "unknown keyword"),
    ("dead branch", {"anyOf": [DIGIT, {"const": 5, "maximum": 3}]}, X + "/anyOf/1", "note", "never hold"),
    (
        "dead option",
        {"type": "object", "properties": {"a": {"enum": []}}, "additionalProperties": False},
        X + "/properties/a",
        "note",
        "never there",
    ),
]


@pytest.mark.parametrize(
    ("fragment", "pointer", "level", "message"), [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS]
)
def test_findings(one_field: Load, fragment: Any, pointer: str, level: str, message: str) -> None:
    findings = one_field(fragment).findings
    assert any(
        finding.pointer == pointer and finding.level == level and message in finding.message for finding in findings
    ), findings


HELD: list[tuple[str, Any]] = [
    ("enum with any keyword", {"enum": [1, 2, 3], "not": {"const": 2}, "type": "integer"}),
    ("bounded pattern", {"type": "string", "pattern": "^[a-z]{3,5}$"}),
    ("bounded alternatives", {"type": "string", "pattern": "^a$|^bc$"}),
    ("uuid", {"type": "string", "format": "uuid"}),
    ("tuple", {"type": "array", "prefixItems": [DIGIT], "items": False}),
    ("single unique item", {"type": "array", "items": DIGIT, "maxItems": 1, "uniqueItems": True}),
    ("disjoint oneOf", {"oneOf": [SHORT, DIGIT, {"type": "null"}]}),
    ("discriminated oneOf", {"oneOf": [closed(k={"const": 1}, v=DIGIT), closed(k={"const": 2}, v=SHORT)]}),
    ("exact minProperties", {**closed(a=DIGIT, b=DIGIT), "required": [], "minProperties": 2}),
    ("exact maxProperties", {**closed(a=DIGIT, b=DIGIT), "required": ["a"], "maxProperties": 1}),
    ("no properties", {"type": "object", "additionalProperties": False}),
    ("extension", {**SHORT, "x-unit": "m"}),
    ("forbidden option", {**closed(a=False), "required": []}),
    ("nullable", {"type": ["integer", "null"], "minimum": 0, "maximum": 3}),
    ("anchor", {"$ref": "#short"}),
    ("address", {"$ref": "other#/$defs/s"}),
    ("dynamic reference to one place", {"$dynamicRef": "#single"}),
    ("recursion", {"$ref": "#/$defs/tree"}),
    ("step", {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.01}),
]


@pytest.mark.parametrize("fragment", [row[1] for row in HELD], ids=[row[0] for row in HELD])
def test_held_without_a_finding(one_field: Load, fragment: Any) -> None:
    defs = {
        "s": {"$anchor": "short", **SHORT},
        "other": {"$id": "other", "$defs": {"s": SHORT}},
        "single": {"$dynamicAnchor": "single", "type": "null"},
        "tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}, "additionalProperties": False},
    }
    assert one_field(fragment, **{"$defs": defs}).findings == ()


ITEM = closed(id={"type": "integer"}, kind={"enum": ["a", "b"]})
D = "/properties/detections"
DETECTIONS: list[tuple[str, Any, str]] = [
    ("no array", {"type": "object"}, D),
    ("optional array", {"anyOf": [{"type": "array", "items": ITEM}, {"type": "null"}]}, D),
    ("tuple", {"type": "array", "prefixItems": [ITEM]}, D),
    ("true", True, D),
    ("no items", {"type": "array"}, D + "/items"),
    ("strings", {"type": "array", "items": SHORT}, D + "/items"),
    ("no id", {"type": "array", "items": closed(kind=DIGIT)}, D + "/items"),
    ("id of text", {"type": "array", "items": closed(id=SHORT)}, D + "/items/properties/id"),
    ("id from 1", {"type": "array", "items": closed(id={"type": "integer", "minimum": 1})}, D + "/items/properties/id"),
    ("through a reference", {"type": "array", "items": {"$ref": "#/$defs/thing"}}, "/$defs/thing/properties/id"),
    (
        "unbounded field",
        {"type": "array", "items": closed(id={"type": "integer"}, t={"const": 2**60})},
        D + "/items/properties/t",
    ),
]


@pytest.mark.parametrize(("listed", "pointer"), [row[1:] for row in DETECTIONS], ids=[row[0] for row in DETECTIONS])
def test_detections_that_break_the_convention(listed: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        FieldSchema.load({**closed(detections=listed), "$defs": {"thing": closed(id=SHORT)}})
    assert f"\n  {pointer}: " in str(caught.value)


def test_detections_do_not_hide_other_errors() -> None:
    with pytest.raises(SchemaError) as caught:
        FieldSchema.load(closed(text={"type": "string", "enum": []}, detections={"type": "object"}))
    assert "/properties/text: never satisfiable" in str(caught.value)
    assert "/properties/detections: " in str(caught.value)


def test_a_schema_is_checked_with_and_without_detections() -> None:
    listed = {"type": "array", "items": ITEM}
    calm, busy = {"properties": {"x": {"const": 0}}}, {"properties": {"detections": {"items": False}}}
    schema = FieldSchema.load(closed(x=DIGIT, detections=listed) | {"oneOf": [calm, busy]})
    assert [(finding.pointer, finding.level) for finding in schema.findings] == [("/oneOf", "checked")]
    with pytest.raises(SchemaError, match="never satisfiable"):
        FieldSchema.load(closed(x=DIGIT, detections=listed) | {"allOf": [busy]})


@pytest.mark.parametrize("least", [0, 1])
def test_how_many_detections_are_of_a_kind_is_only_checked_and_never_forced_on_the_first(least: int) -> None:
    kind = {"contains": {"properties": {"kind": {"const": "a"}}}, "minContains": least, "maxContains": 2, "minItems": 1}
    schema = FieldSchema.load(closed(detections={"type": "array", "items": ITEM, **kind}))
    assert {schema.keywords[f"{D}/{keyword}"] for keyword in kind if keyword != "minItems"} == {"checked"}
    for kinds, is_right in {"aba": True, "bab": True, "bba": True, "bbb": least == 0, "aaa": False}.items():
        entries = ", ".join(f'{{"id": {number}, "kind": "{kind}"}}' for number, kind in enumerate(kinds))
        text = f'{{"detections": [{entries}]}}'
        assert probe.accepts(schema.ground(3).grammar(), text), kinds
        assert schema.ground(3).takes(text) is is_right, kinds


def test_detections_and_id_become_required() -> None:
    listed = {"type": "array", "items": {**ITEM, "required": ["kind"]}}
    schema = FieldSchema.load({**closed(detections=listed), "required": []})
    assert [(finding.pointer, finding.level) for finding in schema.findings] == [
        (D, "closed"),
        (D + "/items/properties/id", "closed"),
    ]


@pytest.mark.parametrize(
    ("document", "pointer", "message"),
    [
        (closed(level={"enum": [1, 2]}, notes=SHORT), "/properties/notes", "free text after"),
        (
            closed(detections={"type": "array", "items": closed(id={"type": "integer"}, k={"enum": [1, 2]}, t=SHORT)}),
            D + "/items/properties/t",
            "free text after",
        ),
        (
            closed(detections={"type": "array", "items": closed(k={"enum": [1, 2]}, id={"type": "integer"})}),
            D + "/items/properties/id",
            "Put id first",
        ),
    ],
)
def test_advice_on_order(document: dict[str, Any], pointer: str, message: str) -> None:
    (finding,) = FieldSchema.load(document).findings
    assert (finding.pointer, finding.level) == (pointer, "note")
    assert message in str(finding)
