"""What a schema's mask enforces, told to a person."""

from __future__ import annotations

from collections.abc import Callable

from hazardlens.schema.fields import FieldSchema
from hazardlens.schema.findings import Finding
from hazardlens.schema.grounded import GroundedSchema
from hazardlens.schema.standing import Standing

_SECTIONS: tuple[tuple[Standing, str], ...] = (
    ("held", "held by the mask while the answer is written"),
    ("rewritten", "held by the mask in another form"),
    ("closed", "narrowed by the mask"),
    ("checked", "only checked afterwards"),
    ("silent", "without effect on what is valid"),
)


def schema_report(schema: FieldSchema, *, objects: int, count_tokens: Callable[[bytes], int] | None, model: str) -> str:
    """What a schema's mask enforces, what is only checked afterwards, and the tokens that an answer takes.

    Each keyword stands in one section, after the JSON pointer of its place.

    Args:
        schema: The schema.
        objects: Number of detections to count an answer's length for.
        count_tokens: A tokenizer's count, or None to give bytes, which no tokenizer exceeds.
        model: Whose tokenizer it is.
    """
    grounded = schema.ground(objects)
    lines = [f"{schema.name}: {schema.title}"]
    for standing, title in _SECTIONS:
        places = _places(schema, standing)
        lines.append(f"{title}: {sum(len(names) or 1 for names, _ in places.values()) or 'nothing'}")
        for place, (names, told) in places.items():
            lines.append(f"  {place or '/'}" + (f": {', '.join(names)}" if names else ""))
            lines += [f"    {_said(finding, place)}" for finding in told]
    notes = [str(finding) for finding in schema.findings if finding.level == "note"]
    lines += [f"notes: {len(notes) or 'none'}", *(f"  {note}" for note in notes)]
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


def _places(schema: FieldSchema, standing: Standing) -> dict[str, tuple[list[str], list[Finding]]]:
    """By place, the keywords that stand so, and what was found of them."""
    if schema.constraint != "json":
        return {f"/{schema.constraint}": ([], [])} if standing == "held" else {}
    places: dict[str, tuple[list[str], list[Finding]]] = {}
    for pointer, own in schema.keywords.items():
        if own == standing:
            place, _, name = pointer.rpartition("/")
            places.setdefault(place, ([], []))[0].append(name)
    for finding in schema.findings:
        if finding.level == standing:
            stands = [pointer for pointer in finding.about if schema.keywords.get(pointer, standing) == standing]
            if stands or not finding.about:
                place = stands[0].rpartition("/")[0] if stands else finding.pointer
                places.setdefault(place, ([], []))[1].append(finding)
    return places


def _said(finding: Finding, place: str) -> str:
    return str(finding).removeprefix(f"{place or '/'}: ")
