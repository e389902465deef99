from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hazardlens.schema import FieldSchema

SHIPPED = ("hazard", "plant", "retail", "traffic")


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_schema_is_clean(name: str) -> None:
    schema = FieldSchema.load(name)
    Draft202012Validator.check_schema(schema.document)
    assert schema.findings == ()
    assert schema.has_detections
    assert schema.title
    assert schema.description
    assert next(iter(schema.frame_properties)) == "notes"
    assert schema.object_properties
    fields: list[dict[str, Any]] = [*schema.frame_properties.values(), *schema.object_properties.values()]
    assert all(len(field["description"]) > 20 for field in fields)


@pytest.mark.parametrize("name", SHIPPED)
def test_choices_are_explained(name: str) -> None:
    schema = FieldSchema.load(name)
    for field in schema.frame_properties.values():
        unexplained = [value for value in field.get("enum", []) if value not in field["description"]]
        assert unexplained == []


def test_rank() -> None:
    schema = FieldSchema.load("hazard")
    assert schema.rank("severity") == ["none", "low", "medium", "high", "critical"]
    assert FieldSchema.load("traffic").rank("role") == ["none", "endangered", "involved", "responder"]
    assert schema.rank("notes") is None
    assert schema.rank("absent") is None


def test_describe() -> None:
    text = FieldSchema.load("hazard").describe()
    frame, objects = text.split("\n\n")
    assert frame.splitlines()[1].startswith("- notes (text, up to 240 characters): One or two sentences")
    assert "- severity (one of: none, low, medium, high, critical): " in frame
    assert "- hazard (one of: none, fire, " in objects
    assert "- id" not in objects


@pytest.mark.parametrize(
    ("fragment", "line"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 9}, "- x (whole number, at least 0, at most 9)"),
        (
            {"type": "number", "minimum": 0.5, "maximum": 1, "multipleOf": 0.1},
            "- x (number, at least 0.5, at most 1, a multiple of 0.1)",
        ),
        ({"type": "boolean", "description": "Is it\n  so?"}, "- x (true or false): Is it so?"),
        ({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}, "- x (one of: a, or null)"),
        ({"const": 3}, "- x (always 3)"),
        ({"type": "string", "format": "date", "maxLength": 10}, "- x (text, a date, up to 10 characters)"),
        ({"type": "array", "maxItems": 2, "items": {"enum": ["a", "b"]}}, "- x (list, up to 2 of: one of: a, b)"),
        (
            {"type": "object", "properties": {"y": {"const": 1, "description": "Why."}}},
            "- x (object)\n  - y (always 1): Why.",
        ),
    ],
)
def test_describe_kinds(fragment: Any, line: str) -> None:
    schema = FieldSchema.load({"type": "object", "properties": {"x": fragment}})
    assert schema.describe() == f"For the picture as a whole:\n{line}"
