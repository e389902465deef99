"""Reads a field schema from wherever the user keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hazardlens.errors import SchemaError
from hazardlens.resources import data_path, shipped_names
from hazardlens.schema.spelling import read_strict

if TYPE_CHECKING:
    from pydantic import BaseModel

# The record's own schema is shipped beside the field schemas and is none.
_NOT_FIELDS = frozenset({"record"})
_NOTATIONS = {".lark": "lark", ".gbnf": "gbnf"}


def read_document(source: str | Path | Mapping[str, Any] | type[BaseModel]) -> tuple[str, dict[str, Any]]:
    """The name and the document of a schema.

    Args:
        source: Name of a shipped schema, path of a JSON file or of a grammar, a mapping as it is or as JSON, or a
            pydantic model class.

    Raises:
        SchemaError: It is missing or no JSON object.
    """
    if isinstance(source, str) and source.lstrip().startswith("{"):
        source = _read_inline(source)
    if isinstance(source, Mapping):
        document = _plain(source)
        title = document.get("title")
        return (title if isinstance(title, str) and title else "schema"), document
    if isinstance(source, type):
        return source.__name__, _plain(_from_model(source))
    if not isinstance(source, str | Path):
        raise SchemaError(
            f"a schema cannot be read from {type(source).__name__}",
            help="Give a shipped name, a path, a mapping or a pydantic model class.",
        )
    path = _find(source)
    if path.suffix in _NOTATIONS:
        return path.stem, {_NOTATIONS[path.suffix]: _read_text(path)}
    return path.stem, _read_file(path)


def field_schema_names() -> tuple[str, ...]:
    """Names of the shipped field schemas."""
    return tuple(name for name in shipped_names("schemas") if name not in _NOT_FIELDS)


def _read_inline(text: str) -> dict[str, Any]:
    try:
        return _object(read_strict(text), "the schema")
    except ValueError as error:
        raise SchemaError(f"the schema {text[:60]!r} is not JSON: {error}", help="Mend it, or give a path.") from error


def _find(source: str | Path) -> Path:
    text = str(source)
    if isinstance(source, Path) or text.endswith((".json", *_NOTATIONS)) or "/" in text or "\\" in text:
        return Path(source)
    if text not in field_schema_names():
        raise SchemaError(
            f"no schema called '{text}'",
            help=f"Shipped are: {', '.join(field_schema_names())}. Your own file ends in .json, .lark or .gbnf.",
        )
    return data_path("schemas", f"{text}.json")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise SchemaError(
            f"no schema file '{path}'", help=f"Shipped are: {', '.join(field_schema_names())}."
        ) from error
    except OSError as error:
        raise SchemaError(f"the schema file '{path}' cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SchemaError(f"'{path}' is not UTF-8 text: {error}", help="Save it as UTF-8.") from error


def _read_file(path: Path) -> dict[str, Any]:
    text = _read_text(path)
    try:
        value = read_strict(text)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"'{path}' is not JSON: line {error.lineno}, column {error.colno}: {error.msg}", help="Mend it there."
        ) from error
    except ValueError as error:
        raise SchemaError(f"'{path}' is not strict JSON: {error}", help="Mend it there.") from error
    return _object(value, str(path))


def _plain(mapping: Mapping[str, Any]) -> dict[str, Any]:
    try:
        value = read_strict(json.dumps(dict(mapping), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"the schema is not plain JSON: {error}", help="Use only JSON's own types.") from error
    return _object(value, "the schema")


def _object(value: object, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SchemaError(
            f"{name} holds {type(value).__name__}, not an object", help='A schema starts with {"type": "object"}.'
        )
    return value


def _from_model(model: type) -> dict[str, Any]:
    from pydantic import BaseModel
    from pydantic.errors import PydanticUserError

    if not issubclass(model, BaseModel):
        raise SchemaError(f"{model.__name__} is no pydantic model", help="Derive it from pydantic.BaseModel.")
    try:
        return model.model_json_schema()
    except PydanticUserError as error:
        raise SchemaError(f"{model.__name__} has no JSON Schema: {error.message}") from error
