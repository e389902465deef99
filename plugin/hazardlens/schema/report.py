"""What a schema's mask enforces, told to a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hazardlens.schema.fields import FieldSchema
from hazardlens.schema.findings import Level, step
from hazardlens.schema.grounded import GroundedSchema
from hazardlens.schema.keywords import HELD


def schema_report(schema: FieldSchema, *, objects: int, count_tokens: Callable[[bytes], int] | None, model: str) -> str:
    """What a schema's mask enforces, what is only checked afterwards, and the tokens that an answer takes.

    Args:
        schema: The schema.
        objects: Number of detections to count an answer's length for.
        count_tokens: A tokenizer's count, or None to give bytes, which no tokenizer exceeds.
        model: Whose tokenizer it is.
    """
    grounded = schema.ground(objects)
    by_level: dict[str, list[str]] = {"closed": [], "rewritten": [], "checked": [], "note": []}
    for finding in schema.findings:
        by_level[finding.level].append(str(finding))
    levels = {finding.pointer: finding.level for finding in schema.findings if finding.level != "note"}
    held = list(_held(schema.document, "", levels)) if schema.constraint == "json" else [f"/{schema.constraint}"]
    sections = [
        ("held by the mask while the answer is written", held),
        ("held by the mask in another form", by_level["rewritten"]),
        ("narrowed by the mask", by_level["closed"]),
        ("only checked afterwards", by_level["checked"]),
        ("notes", by_level["note"]),
    ]
    lines = [f"{schema.name}: {schema.title}"]
    for title, entries in sections:
        lines += [f"{title}: {len(entries) or 'nothing'}", *(f"  {entry}" for entry in entries)]
    about = f" about {objects} objects" if schema.has_detections else ""
    if count_tokens is None:
        least, most = grounded.shortest_tokens(len), grounded.longest_bytes
        unit = "tokens, one per byte; give --vlm to count as a model does"
    else:
        least, most = grounded.shortest_tokens(count_tokens), _longest_tokens(grounded, count_tokens)
        unit = f"tokens of {model}"
    longest = "without end; the budget ends it" if most is None else f"at most {most} {unit}"
    lines += [f"longest answer{about}: {longest}", f"least vlm.max_new_tokens{about}: {least} {unit}"]
    return "\n".join(lines)


def _longest_tokens(grounded: GroundedSchema, count_tokens: Callable[[bytes], int]) -> int | None:
    return grounded.longest_tokens(lambda text: count_tokens(text.encode()))


def _held(node: Any, pointer: str, levels: Mapping[str, Level]) -> Iterator[str]:
    """Places and keywords that the mask holds as they stand; what was found of others goes by their pointers."""
    if not isinstance(node, dict):
        return
    own = [key for key in node if key in HELD and step(pointer, key) not in levels]
    if own:
        yield f"{pointer or '/'}: {', '.join(own)}"
    for key, value in node.items():
        place = step(pointer, key)
        if levels.get(place) == "checked":
            continue
        if key in ("properties", "$defs", "patternProperties"):
            for name, part in value.items():
                yield from _held(part, step(place, name), levels)
        elif key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for index, part in enumerate(value):
                yield from _held(part, step(place, index), levels)
        elif key == "items":
            yield from _held(value, place, levels)
