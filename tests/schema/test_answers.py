from __future__ import annotations

import pytest

from hazardlens.schema import AnswerError, FieldSchema, GroundedSchema

GOOD = '{"notes": "Nothing to see.", "hazard": "none", "severity": "none", "detections": []}'


@pytest.fixture(scope="module")
def grounded() -> GroundedSchema:
    return FieldSchema.load("hazard").ground(0)


@pytest.mark.parametrize("text", [GOOD, f"\n {GOOD}\n", GOOD.replace(": ", ":"), GOOD.replace("see", "\\u00e9")])
def test_good_answers(grounded: GroundedSchema, text: str) -> None:
    assert grounded.parse(text)["hazard"] == "none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("I see no hazard.", "not JSON"),
        (GOOD[:-1], "not JSON"),
        (GOOD + " Done.", "Extra data"),
        (GOOD + GOOD, "Extra data"),
        (f"```json\n{GOOD}\n```", "not JSON"),
        (GOOD.replace('"none",', '"fire", "hazard": "none",', 1), "key given twice: 'hazard'"),
        (GOOD.replace("[]", "NaN"), "not a JSON number: NaN"),
        (GOOD.replace("[]", "-Infinity"), "not a JSON number: -Infinity"),
        (GOOD.replace("[]", "1e999"), "number out of range"),
        (GOOD.replace("[]", "1" * 5000), "number out of range"),
        (GOOD.replace("[]", "[" * 200_000), "nested too deeply"),
        (GOOD.replace("see", "\\ud800"), "surrogate"),
        (GOOD.replace("see", "\ud800"), "surrogate"),
        (GOOD.replace("see", "a\nb"), "control character"),
        ("[]", "/: "),
        ("null", "/: "),
        (GOOD.replace('"severity": "none"', '"severity": "low"'), "/: "),
        (GOOD.replace('"hazard": "none"', '"hazard": "ufo"'), "/hazard: 'ufo' is not one of"),
        (GOOD.replace("[]", '[{"id": 0}]'), "/detections: "),
        (GOOD.replace("Nothing to see.", "x" * 9000), "/notes: .* is too long|/notes: "),
        ('{"hazard": "none"}', "'notes' is a required property"),
    ],
)
def test_bad_answers(grounded: GroundedSchema, text: str, message: str) -> None:
    with pytest.raises(AnswerError, match=message) as caught:
        grounded.parse(text)
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize(
    ("fragment", "value", "good"),
    [
        ({"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2, "uniqueItems": True}, [1, 1], False),
        ({"enum": [1, 2], "if": {"const": 1}, "then": {"minimum": 2}}, 1, False),
        ({"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.01}, 0.07, True),
        ({"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.01}, 0.075, False),
        ({"type": "string", "format": "date"}, "2023-02-29", False),
        ({"type": "string", "format": "date"}, "2024-02-29", True),
        ({"type": "string", "maxLength": 9, "pattern": "^a(?=b)"}, "ac", False),
        ({"type": "string", "maxLength": 9, "pattern": "^a(?=b)"}, "ab", True),
    ],
)
def test_validation_has_the_last_word(fragment: object, value: object, good: bool) -> None:
    other = {"const": 0}
    document = {"type": "object", "properties": {"x": {"anyOf": [fragment, other]}}, "required": ["x"]}
    assert (FieldSchema.load(document).ground(0).validate({"x": value}) == []) is good
