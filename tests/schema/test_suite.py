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
    """The schema as the one field of an object; it keeps its own references, as an embedded document does."""
    own = {"$id": "urn:example:suite", **schema} if isinstance(schema, dict) else schema
    document = {"type": "object", "properties": {"x": own}, "required": ["x"], "additionalProperties": False}
    try:
        return FieldSchema.load({"$id": "https://example.com/", **document})
    except SchemaError:
        return None


def judged(grounded: GroundedSchema, data: Any) -> tuple[bool, bool]:
    """Whether the mask takes an instance, and whether the check does."""
    text = spell({"x": canonical(data)})
    # llguidance takes minutes over 309 digits that are to be a multiple of 0.123456789.
    longest = grounded.longest_bytes
    is_written = (longest is None or len(text.encode()) <= longest) and probe.accepts(grounded.grammar(), text)
    try:
        grounded.parse(text)
    except AnswerError:
        return is_written, False
    return is_written, True


def how(schema: FieldSchema | None) -> str:
    """What becomes of a schema: the worst that was found of it."""
    if schema is None:
        return "refused"
    levels = {finding.level for finding in schema.findings}
    return next((level for level in ("checked", "closed", "rewritten") if level in levels), "held")


def test_no_invalid_instance_passes_and_the_docs_tell_what_becomes_of_each(shared_file: Callable[[str], Path]) -> None:
    passed: Counter[tuple[bool, bool]] = Counter()
    found: dict[str, Counter[str]] = {}
    for file in sorted(shared_file(SUITE).glob("*.json")):
        own = found[file.stem] = Counter()
        for group in json.loads(file.read_text(encoding="utf-8")):
            schema = load(group["schema"])
            own[how(schema)] += 1
            for test in group["tests"] if schema else ():
                is_written, is_taken = judged(schema.ground(0), test["data"])
                name = (file.stem, group["description"], test["description"])
                # Neither mask and check together let anything invalid through, nor the mask alone where it holds all.
                assert test["valid"] or not (is_written and is_taken), name
                assert test["valid"] or not is_written or how(schema) == "checked", name
                passed[test["valid"], is_written and is_taken] += 1
    every = sum(found.values(), Counter())
    assert every.total() == 383
    assert every["held"] + every["rewritten"] + every["closed"] >= 310
    assert passed[True, True] >= 400
    assert passed[False, False] >= 430
    table = "\n".join(row(name, own) for name, own in [*found.items(), ("all", every)])
    assert table in Path("docs/schemas.md").read_text(encoding="utf-8"), table


def row(name: str, found: Counter[str]) -> str:
    levels = ("held", "rewritten", "closed", "checked", "refused")
    return f"| {name} | " + " | ".join(str(found[level] or "") for level in levels) + " |"
