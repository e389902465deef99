from __future__ import annotations

import enum
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal, Optional

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field

import hazardlens.schema
from hazardlens.errors import InputError, SchemaError
from hazardlens.resources import data_path, shipped_names
from hazardlens.schema import FieldSchema

SHIPPED = ("hazard", "plant", "retail", "traffic")


def test_exports() -> None:
    assert set(hazardlens.schema.__all__) == {
        "AnswerError",
        "FieldSchema",
        "Finding",
        "GroundedSchema",
        "ITEM_SEPARATOR",
        "KEY_SEPARATOR",
    }


def test_import_is_light() -> None:
    code = (
        "import sys, hazardlens.schema; print(sorted({'torch', 'transformers', 'cv2', 'pydantic'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_shipped_names() -> None:
    assert set(SHIPPED) <= set(shipped_names("schemas"))


@pytest.mark.parametrize("name", ["absent.json", "../pyproject.toml", "/etc/hostname"])
def test_data_path_refuses(name: str) -> None:
    with pytest.raises(InputError, match=r"hazard"):
        data_path("schemas", name)


@pytest.mark.parametrize("form", ["name", "text path", "path", "mapping"])
def test_sources_agree(form: str) -> None:
    path = data_path("schemas", "hazard.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    source: Any = {"name": "hazard", "text path": str(path), "path": path, "mapping": document}[form]
    schema = FieldSchema.load(source)
    assert schema.document == document
    assert schema.name == ("Site hazard" if form == "mapping" else "hazard")
    assert schema.title == "Site hazard"
    assert schema.description.startswith("Hazards")


def test_mapping_is_copied() -> None:
    document = json.loads(data_path("schemas", "hazard.json").read_text(encoding="utf-8"))
    schema = FieldSchema.load(document)
    document["properties"].clear()
    assert "notes" in schema.document["properties"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n  "type": "object",\n}', "line 3, column 1"),
        (b"[]", "holds list, not an object"),
        (b"true", "holds bool, not an object"),
        (b"", "line 1, column 1"),
        (b'{"type": "object"} x', "line 1, column 20"),
        (b'{"type": "object", "type": "object"}', "key given twice: 'type'"),
        (b'{"type": "object", "maxProperties": NaN}', "not a JSON number: NaN"),
        (b'{"title": "\\ud800"}', "surrogate"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(content)
    with pytest.raises(SchemaError, match=message) as caught:
        FieldSchema.load(path)
    assert "mine.json" in str(caught.value)
    assert caught.value.help


def test_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(b"\xef\xbb\xbf" + data_path("schemas", "hazard.json").read_bytes())
    assert FieldSchema.load(path).name == "mine"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("hazzard", "Shipped are: hazard, "),
        ("record", "no schema called 'record'"),
        ("absent.json", "no schema file"),
        (3, "cannot be read from int"),
        (int, "no pydantic model"),
        ({"type": {1, 2}}, "not plain JSON"),
        ({"maximum": float("inf")}, "not plain JSON"),
    ],
)
def test_refused_sources(source: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        FieldSchema.load(source)


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="cannot be read"):
        FieldSchema.load(tmp_path)


class Level(enum.Enum):
    NONE = "none"
    LOW = "low"


class Thing(BaseModel):
    id: int
    colour: Literal["red", "blue"]
    weight: Optional[Literal["light", "heavy"]]  # noqa: UP045


class Site(BaseModel):
    """A site."""

    model_config = ConfigDict(extra="forbid")
    notes: str = Field(max_length=50, description="What is seen.")
    level: Level
    people: int = Field(ge=0, le=20)
    comment: str | None = Field(default=None, max_length=9, pattern="^[a-z]*$")
    detections: list[Thing]


def test_rank_of_a_field_that_frame_and_detections_share() -> None:
    entry = {"id": {"type": "integer"}, "level": {"enum": ["minor", "major"]}, "size": {"enum": ["s", "l"]}}
    item = {"type": "object", "properties": entry, "required": list(entry), "additionalProperties": False}
    own = {"level": {"enum": ["low", "high"]}, "size": {"type": "integer"}, "alarm": {"enum": [False, True]}}
    properties = {**own, "detections": {"type": "array", "items": item}}
    schema = FieldSchema.load(
        {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    )
    ranks = {
        name: [schema.rank(name, scope=scope) for scope in (None, "frame", "object")]
        for name in ("level", "size", "alarm")
    }
    assert ranks == {
        "level": [["low", "high"], ["low", "high"], ["minor", "major"]],
        "size": [["s", "l"], None, ["s", "l"]],
        "alarm": [[False, True], [False, True], None],
    }


def test_pydantic_model() -> None:
    schema = FieldSchema.load(Site)
    assert schema.name == "Site"
    assert schema.rank("level") == ["none", "low"]
    assert schema.rank("colour") == ["red", "blue"]
    assert schema.rank("weight") == ["light", "heavy"]
    assert schema.rank("people") is None
    assert list(schema.object_properties) == ["colour", "weight"]
    assert [(finding.pointer, finding.level) for finding in schema.findings if finding.level == "closed"] == [
        ("/$defs/Thing", "closed")
    ]
    answer = {"notes": "n", "level": "low", "people": 1, "detections": [{"id": 0, "colour": "red", "weight": None}]}
    grounded = schema.ground(1)
    assert grounded.validate(answer) == []
    assert Site.model_validate(answer).detections[0].weight is None
    assert grounded.validate({**answer, "detections": [{"id": 1, "colour": "red", "weight": None}]})


def test_a_pydantic_model_without_bounds_gets_some_and_is_told() -> None:
    class Loose(BaseModel):
        text: str
        thing: dict[str, int]
        many: list[int]

    findings = FieldSchema.load(Loose).findings
    assert {("/properties/text", "closed"), ("/properties/thing", "closed"), ("/properties/many", "closed")} <= {
        (finding.pointer, finding.level) for finding in findings
    }


def test_pydantic_model_without_schema() -> None:
    class Odd(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        thing: pydantic.SkipValidation[Path.__class__]  # type: ignore[valid-type]
        call: object = Field(default_factory=object)
        run: type(lambda: None)  # type: ignore[valid-type]

    with pytest.raises(SchemaError, match="has no JSON Schema"):
        FieldSchema.load(Odd)
