"""The official JSON Schema test suite: no instance that it calls invalid may pass mask and check."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hazardlens.errors import SchemaError
from hazardlens.schema import AnswerError, FieldSchema, GroundedSchema, probe
from hazardlens.schema.spelling import canonical, spell

SUITE = "data/json-schema-test-suite/draft2020-12"


def load(schema: Any) -> FieldSchema | None:
    document = {"type": "object", "properties": {"x": schema}, "required": ["x"], "additionalProperties": False}
    try:
        return FieldSchema.load(document)
    except SchemaError:
        return None


def passes(grounded: GroundedSchema, data: Any) -> bool:
    text = spell({"x": canonical(data)})
    # llguidance takes minutes over 309 digits that are to be a multiple of 0.123456789.
    longest = grounded.longest_bytes
    if (longest is not None and len(text.encode()) > longest) or not probe.accepts(grounded.grammar(), text):
        return False
    try:
        grounded.parse(text)
    except AnswerError:
        return False
    return True


def test_no_invalid_instance_passes(shared_file: Callable[[str], Path]) -> None:
    passed: Counter[tuple[bool, bool]] = Counter()
    loaded = 0
    for file in sorted(shared_file(SUITE).glob("*.json")):
        for group in json.loads(file.read_text(encoding="utf-8")):
            schema = load(group["schema"])
            if schema is None:
                continue
            loaded += 1
            for test in group["tests"]:
                good = passes(schema.ground(0), test["data"])
                assert test["valid"] or not good, (file.stem, group["description"], test["description"])
                passed[test["valid"], good] += 1
    assert loaded >= 80
    assert passed[True, True] >= 100
    assert passed[False, False] >= 125
