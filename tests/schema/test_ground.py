from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hazardlens.errors import SchemaError
from hazardlens.schema import FieldSchema

NONE = {"hazard": "none", "severity": "none"}
COUNTS = [0, 1, 5, 20, 100]


def answer(count: int) -> dict[str, Any]:
    return {"notes": "Nothing to be seen.", **NONE, "detections": [{"id": i, **NONE} for i in range(count)]}


@pytest.fixture(scope="module")
def hazard() -> FieldSchema:
    return FieldSchema.load("hazard")


@pytest.mark.parametrize("count", COUNTS)
def test_exactly_the_detections_asked_about(hazard: FieldSchema, count: int) -> None:
    grounded = hazard.ground(count)
    assert grounded.count == count
    assert grounded.validate(answer(count)) == []
    assert grounded.validate(answer(count + 1))
    if count:
        assert grounded.validate(answer(count - 1))
        assert grounded.validate({**answer(count), "detections": [*answer(count)["detections"][::-1], {}]})


@pytest.mark.parametrize("count", COUNTS)
def test_document_is_plain_json_schema(hazard: FieldSchema, count: int) -> None:
    document = hazard.ground(count).document
    Draft202012Validator.check_schema(document)
    assert Draft202012Validator(document).is_valid(answer(count))
    listed = document["properties"]["detections"]
    if count == 0:
        assert listed["maxItems"] == 0
        assert "prefixItems" not in listed
    else:
        assert [entry["properties"]["id"] for entry in listed["prefixItems"]] == [{"const": i} for i in range(count)]
        assert (listed["items"], listed["minItems"]) == (False, count)
        assert all("anyOf" in entry for entry in listed["prefixItems"])


@pytest.mark.parametrize(
    ("detections", "pointer"),
    [
        ([{"id": 1, **NONE}, {"id": 0, **NONE}], "/detections/0/id"),
        ([{"id": 0, **NONE}, {"id": 0, **NONE}], "/detections/1/id"),
        ([{"id": 0, **NONE}], "/detections"),
        ([{"id": 0, **NONE}, {"id": 1, **NONE}, {"id": 2, **NONE}], "/detections"),
        ([{"id": 0, **NONE}, {"id": 1, "hazard": "none", "severity": "low"}], "/detections/1"),
        ([{"id": 0, **NONE}, {"id": 1, "hazard": "none"}], "/detections/1"),
        ([{"id": 0, **NONE}, {"id": 1, **NONE, "more": 1}], "/detections/1"),
    ],
    ids=["swapped", "twice", "missing", "extra", "contradiction", "field missing", "field invented"],
)
def test_what_is_wrong_is_named(hazard: FieldSchema, detections: list[Any], pointer: str) -> None:
    messages = hazard.ground(2).validate({**answer(2), "detections": detections})
    assert any(message.startswith(pointer + ": ") for message in messages), messages


def test_grounding_is_cached_by_count(hazard: FieldSchema) -> None:
    assert hazard.ground(3) is hazard.ground(3)
    assert hazard.ground(3).key != hazard.ground(4).key
    assert hazard.ground(3).key == FieldSchema.load("hazard").ground(3).key
    assert hazard.ground(3).key != FieldSchema.load("traffic").ground(3).key
    assert len({hazard.ground(n).key for n in range(200)}) == 200
    assert hazard._grounded.cache_info().currsize == 128


def test_grounding_leaves_the_document_alone(hazard: FieldSchema) -> None:
    hazard.ground(5)
    assert "prefixItems" not in hazard.document["properties"]["detections"]


def test_without_detections_every_count_is_the_same() -> None:
    schema = FieldSchema.load(
        {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    )
    assert not schema.has_detections
    assert schema.object_properties == {}
    assert schema.ground(0) is schema.ground(7)
    assert schema.ground(7).count == 0
    assert schema.ground(7).document == schema.document


@pytest.mark.parametrize(
    ("limits", "id_schema", "good", "bad"),
    [
        ({"maxItems": 3}, {"type": "integer"}, 3, 4),
        ({"minItems": 2}, {"type": "integer"}, 2, 1),
        ({}, {"type": "integer", "maximum": 3}, 4, 5),
    ],
)
def test_limits_of_the_schema_are_kept(limits: dict[str, int], id_schema: Any, good: int, bad: int) -> None:
    item = {"type": "object", "properties": {"id": id_schema}, "required": ["id"], "additionalProperties": False}
    schema = FieldSchema.load(
        {
            "type": "object",
            "properties": {"detections": {"type": "array", "items": item, **limits}},
            "required": ["detections"],
            "additionalProperties": False,
        }
    )
    assert schema.ground(good).validate({"detections": [{"id": i} for i in range(good)]}) == []
    with pytest.raises(SchemaError, match=f"does not allow {bad} detections"):
        schema.ground(bad)


def test_negative_count_is_refused(hazard: FieldSchema) -> None:
    with pytest.raises(ValueError, match="got -1"):
        hazard.ground(-1)
