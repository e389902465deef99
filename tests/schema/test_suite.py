"""The official JSON Schema test suite: no instance that it calls invalid may pass mask and check."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from llguidance import LLMatcher

from hazardlens.errors import SchemaError
from hazardlens.schema import AnswerError, FieldSchema, GroundedSchema, probe
from hazardlens.schema.spelling import canonical, spell

SUITE = "data/json-schema-test-suite/draft2020-12"
DOCS = Path("docs/schemas.md")


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
    """What becomes of a schema: whether the mask says all of it, in another form or less than it, or leaves it out."""
    if schema is None:
        return "refused"
    levels = {finding.level for finding in schema.findings}
    if "checked" in levels:
        return "checked"
    return " and ".join(level for level in ("rewritten", "closed") if level in levels) or "held"


LEVELS = ("held", "rewritten", "closed", "rewritten and closed", "checked", "refused")


def test_no_invalid_instance_passes_and_the_docs_tell_what_becomes_of_each(shared_file: Callable[[str], Path]) -> None:
    passed: Counter[tuple[bool, bool]] = Counter()
    found: dict[str, Counter[str]] = {}
    for keyword, group in groups(shared_file(SUITE)):
        schema = load(group["schema"])
        found.setdefault(keyword, Counter())[how(schema)] += 1
        for test in group["tests"] if schema else ():
            is_written, is_taken = judged(schema.ground(0), test["data"])
            name = (keyword, group["description"], test["description"])
            # The check alone, which is all that holds a server's model, takes nothing invalid; nor does the mask alone
            # let anything invalid through where it holds all.
            assert test["valid"] or not is_taken, name
            assert test["valid"] or not is_written or how(schema) == "checked", name
            passed[test["valid"], is_written and is_taken] += 1
    every = sum(found.values(), Counter())
    assert every.total() == 383
    assert every.total() - every["checked"] - every["refused"] >= 310
    assert passed[True, True] >= 410
    assert passed[False, False] >= 440
    table = "\n".join(
        row(name, [own[level] or "" for level in LEVELS]) for name, own in [*found.items(), ("all", every)]
    )
    assert table in DOCS.read_text(encoding="utf-8"), table


def test_the_docs_compare_the_mask_alone_with_that_of_llguidance(shared_file: Callable[[str], Path]) -> None:
    counts: dict[str, Counter[str]] = {"mask": Counter(), "llguidance": Counter()}
    for _, group in groups(shared_file(SUITE)):
        schema = load(group["schema"])
        plain = str(LLMatcher.grammar_from_json_schema(json.dumps(group["schema"])))
        if schema:
            written = [(test["valid"], judged(schema.ground(0), test["data"])[0]) for test in group["tests"]]
            counts["mask"].update(tally(written))
        if not probe.grammar_refusal(plain):
            # The one text that is too long is a number of 309 digits, which llguidance takes minutes over.
            texts = [spell(canonical(test["data"])) for test in group["tests"]]
            let = [len(text) < 300 and probe.accepts(plain, text) for text in texts]
            valid = [test["valid"] for test in group["tests"]]
            counts["llguidance"].update(tally(list(zip(valid, let, strict=True))))
    lines = {
        "schemas that it takes, of 383": "taken",
        "of these, sound: no invalid instance is let through": "sound",
        "of these, exact: every valid instance is let through as well": "exact",
        "valid instances that are let through, of 765": "valid",
        "invalid instances that are let through, of 534": "invalid",
    }
    table = "\n".join(row(said, [own[key] for own in counts.values()]) for said, key in lines.items())
    assert table in DOCS.read_text(encoding="utf-8"), table
    assert counts["mask"]["sound"] > 1.8 * counts["llguidance"]["sound"]
    assert counts["mask"]["exact"] > counts["llguidance"]["exact"]


def groups(folder: Path) -> Iterator[tuple[str, Any]]:
    for file in sorted(folder.glob("*.json")):
        for group in json.loads(file.read_text(encoding="utf-8")):
            yield file.stem, group


def tally(judged: list[tuple[bool, bool]]) -> dict[str, int]:
    """Of one schema, with whether each instance is valid and is let through."""
    sound = all(valid for valid, is_let in judged if is_let)
    exact = sound and all(is_let for valid, is_let in judged if valid)
    let = Counter(valid for valid, is_let in judged if is_let)
    return {"taken": 1, "sound": int(sound), "exact": int(exact), "valid": let[True], "invalid": let[False]}


def row(name: str, cells: Sequence[object]) -> str:
    return f"| {name} | " + " | ".join(map(str, cells)) + " |"
