"""A field schema: what is asked of the VLM, loaded and checked once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from hazardlens.errors import SchemaError
from hazardlens.schema import detections, probe
from hazardlens.schema.bare import GroundedText, as_document, read_bare
from hazardlens.schema.compiler import Compiler
from hazardlens.schema.describe import choices, describe
from hazardlens.schema.findings import Finding, Findings
from hazardlens.schema.grounded import GroundedSchema, KnownShapes
from hazardlens.schema.load import read_document
from hazardlens.schema.resolve import Resolver
from hazardlens.schema.rules import mask_grammar
from hazardlens.schema.shapes import Never, Object, Shape
from hazardlens.schema.standing import Standing, standings
from hazardlens.schema.validation import metaschema_errors

if TYPE_CHECKING:
    from pydantic import BaseModel

_CACHED_GROUNDINGS = 128

Scope: TypeAlias = Literal["frame", "object"]
"""Whose fields: the frame's own, or those of each detection."""


class FieldSchema:
    """The fields that the VLM answers with. Made by `load`.

    Attributes:
        name: Name of the file, model or title it came from.
        document: The JSON Schema as loaded.
        findings: What the check found that does not stand in the way: what the mask closes, and what is only checked.
        has_detections: Whether it asks for fields of each detection.
        frame_properties: Schemas of the frame's own fields by name, references resolved.
        object_properties: Schemas of each detection's fields by name, without `id`; empty where there are none.
    """

    def __init__(self, name: str, document: dict[str, Any]) -> None:
        """Check `document`; prefer `load`.

        Raises:
            SchemaError: It cannot be held.
        """
        findings = Findings()
        self._bare = read_bare(document)
        document = document if self._bare is None else as_document(self._bare, document)
        self.name = name
        self.document = document
        _check_form(name, document, findings)
        resolver = Resolver(document, findings)
        self._root = resolver.resolve()
        findings.raise_errors(name)
        self._item = detections.find_item(self._root, resolver.places, findings)
        self.has_detections = self._item is not None
        own = self._root.get("properties", {})
        self.frame_properties = {key: value for key, value in own.items() if key != detections.DETECTIONS}
        entry = self._item["properties"] if self._item else {}
        self.object_properties = {key: value for key, value in entry.items() if key != "id"}
        self._digest = hashlib.sha256(json.dumps([document, repr(self._bare)]).encode()).hexdigest()
        if self._bare is None:
            self._check_shape(resolver, findings)
        findings.raise_errors(name)
        self._references = resolver.references
        self.findings: tuple[Finding, ...] = findings.benign()
        self._entries: list[dict[str, Any]] = []
        self._known = KnownShapes(self._entries)
        self._grounded = lru_cache(maxsize=_CACHED_GROUNDINGS)(self._ground)

    @classmethod
    def load(cls, source: str | Path | Mapping[str, Any] | type[BaseModel]) -> FieldSchema:
        """Load and check a schema.

        Args:
            source: Name of a shipped schema (`"hazard"`), path of a .json file, a mapping, or a pydantic model class.
                In place of JSON Schema, `{"choices": [...]}` asks for one of a few labels, the field `label`;
                `{"regex": "..."}` for text that the expression matches as a whole, and `{"lark": "..."}`,
                `{"gbnf": "..."}` or the path of a .lark or .gbnf file for text of a grammar, the field `text`.

        Raises:
            SchemaError: It is missing, malformed, or cannot be held; all places at fault are named.
        """
        name, document = read_document(source)
        try:
            return cls(name, document)
        except RecursionError as error:
            message = f"the schema '{name}' is nested too deeply"
            raise SchemaError(message, help="Name parts of it in $defs, and refer to them.") from error

    def __reduce__(self) -> tuple[type[FieldSchema], tuple[str, dict[str, Any]]]:
        return FieldSchema, (self.name, self.document)

    @property
    def title(self) -> str:
        """The schema's title, or its name."""
        return str(self.document.get("title") or self.name)

    @property
    def description(self) -> str:
        """The schema's description, or an empty text."""
        return str(self.document.get("description", ""))

    @property
    def form(self) -> str:
        """How a prompt asks for the answer."""
        return "one JSON object" if self._bare is None else self._bare.form

    @property
    def constraint(self) -> str:
        """What holds the answers: `json`, `choices`, `regex`, `lark` or `gbnf`."""
        return "json" if self._bare is None else self._bare.kind

    @cached_property
    def keywords(self) -> dict[str, Standing]:
        """What the mask does about each keyword of the document, by JSON pointer; empty where an answer is no JSON."""
        return standings(self.document, self.findings, self._references) if self._bare is None else {}

    def describe(self) -> str:
        """The fields in plain words, with their descriptions and allowed values, for a prompt."""
        return describe(self.frame_properties, self.object_properties)

    def rank(self, field: str, *, scope: Scope | None = None) -> list[Any] | None:
        """The values of a field in rank order, lowest first; None where it has no list of values.

        Args:
            field: Name of a field.
            scope: Whose field it is; None looks at the frame first, then at the detections.
        """
        own = choices(self.frame_properties.get(field)) if scope != "object" else None
        return choices(self.object_properties.get(field)) if own is None and scope != "frame" else own

    def ground(self, n: int) -> GroundedSchema:
        """The schema for a frame with `n` detections asked about; the same for any `n` where none are asked about.

        Raises:
            SchemaError: The schema limits `detections`, and does not allow `n`.
            ValueError: `n` is negative.
        """
        if n < 0:
            raise ValueError(f"expected a number of detections of 0 or more, got {n}")
        return self._grounded(n if self.has_detections else 0)

    def _ground(self, n: int) -> GroundedSchema:
        if self._bare is not None:
            return GroundedText((self._digest, n), self._root, self._bare)
        if self._item is None:
            return GroundedSchema((self._digest, n), self._root, n)
        document = detections.ground(self._root, self._item, n, self._entries)
        return GroundedSchema((self._digest, n), document, n, self._known)

    def _check_shape(self, resolver: Resolver, findings: Findings) -> None:
        places = resolver.places
        documents = [self._without_detections()]
        if self._item:
            detections.check_required(self._root, self._item, places, findings)
            documents = [detections.ground(self._root, self._item, count) for count in detections.counts(self._root)]
            for document in documents:
                places = {**places, **detections.grounded_places(document, self._root, self._item, places)}
        compiler = Compiler(places | {id(document): "" for document in documents}, findings, resolver.references)
        for document in documents:
            shape = compiler.whole(document)
            if isinstance(shape, Object) and not shape.properties:
                message = "the answer could only be empty: it names no property"
                findings.add("", "error", message, "Name the fields that it asks for.")
            elif not isinstance(shape, Never):
                _check_mask(shape, findings)
            for pointer, reason in shape.reasons if isinstance(shape, Never) else ():
                findings.add(pointer, "error", f"never satisfiable: {reason}", "Loosen one of what contradicts.")
        compiler.note_dead_branches()
        _check_order(self.frame_properties, places, findings)
        _check_order(self.object_properties, places, findings)

    def _without_detections(self) -> dict[str, Any]:
        if detections.DETECTIONS not in self._root.get("properties", {}):
            return self._root
        # Malformed ones are already an error, and must not hide others.
        required = [name for name in self._root.get("required", []) if name != detections.DETECTIONS]
        return {**self._root, "properties": self.frame_properties, "required": required}


def _check_form(name: str, document: dict[str, Any], findings: Findings) -> None:
    for pointer, message in metaschema_errors(document):
        findings.add(pointer, "error", f"not JSON Schema 2020-12: {message}", "Correct it.")
    findings.raise_errors(name)
    if "$ref" not in document and document.get("type") != "object":
        findings.add("", "error", "the answer must be an object", 'Add "type": "object".')


def _check_order(fields: dict[str, Any], places: dict[int, str], findings: Findings) -> None:
    decided = ""
    for name, schema in fields.items():
        if choices(schema) is not None:
            decided = decided or name
        elif decided and isinstance(schema, dict) and schema.get("type") == "string" and not _is_formal(schema):
            message = f"free text after the choice {decided!r}: a model cannot reason before it decides"
            findings.add(places.get(id(schema), ""), "note", message, "Put free text first.")


def _is_formal(schema: dict[str, Any]) -> bool:
    return any(key in schema for key in ("const", "enum", "format", "pattern"))


def _check_mask(shape: Shape, findings: Findings) -> None:
    reason = probe.grammar_refusal(mask_grammar(shape))
    if not reason:
        return
    for part in shape.parts():
        if probe.grammar_refusal(mask_grammar(part)):
            _check_mask(part, findings)
            return
    findings.add(shape.pointer, "error", f"llguidance cannot hold this: {reason}", "Make it simpler.")
