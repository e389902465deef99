"""The convention of the property `detections`: found, checked, and grounded to a number of objects."""

from __future__ import annotations

from typing import Any

from hazardlens.errors import SchemaError
from hazardlens.schema.combine import Schema
from hazardlens.schema.findings import Findings, step
from hazardlens.schema.validation import validator_for

DETECTIONS = "detections"
"""Name of the property that holds one entry per detection asked about."""

_HELP = 'Write {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}, ...}}}.'
_REPLACED = frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems", "type"})


def find_item(root: Schema, places: dict[int, str], findings: Findings) -> Schema | None:
    """The schema of one entry of `detections`, or None where there are no detections or they are malformed.

    Args:
        root: The resolved document.
        places: JSON pointers of its subschemas.
        findings: Where what is malformed is noted.
    """
    if DETECTIONS not in root.get("properties", {}):
        return None
    listed = root["properties"][DETECTIONS]
    place = places.get(id(listed), "/properties/detections")
    if not isinstance(listed, dict) or listed.get("type") != "array" or "prefixItems" in listed:
        findings.add(place, "error", "detections must be an array of objects", _HELP)
        return None
    item = listed.get("items")
    at = places.get(id(item), step(place, "items"))
    if not isinstance(item, dict) or item.get("type") != "object" or "id" not in item.get("properties", {}):
        findings.add(at, "error", "detections must be an array of objects with an integer id", _HELP)
        return None
    return item if _check_item(item, at, places, findings) else None


def _check_item(item: Schema, at: str, places: dict[int, str], findings: Findings) -> bool:
    number = item["properties"]["id"]
    place = places.get(id(number), step(at, "properties", "id"))
    if not isinstance(number, dict) or number.get("type") != "integer":
        findings.add(place, "error", "the id of a detection must be an integer", 'Write {"type": "integer"}.')
        return False
    if not validator_for(number).is_valid(0):
        findings.add(place, "error", "ids start at 0, which this id does not allow", 'Write {"type": "integer"}.')
        return False
    if next(iter(item["properties"])) != "id":
        findings.add(place, "note", "id stands after other fields", "Put id first, so that a model knows its object.")
    return True


def check_required(root: Schema, item: Schema, places: dict[int, str], findings: Findings) -> None:
    """Note what grounding makes required that the schema does not."""
    message = "not required by the schema: the mask always writes it"
    if DETECTIONS not in root.get("required", []):
        place = places.get(id(root["properties"][DETECTIONS]), "/properties/detections")
        findings.add(place, "closed", message, "Add detections to required.")
    if "id" not in item.get("required", []):
        place = places.get(id(item["properties"]["id"]), "")
        findings.add(place, "closed", message, "Add id to required.")


def counts(root: Schema) -> list[int]:
    """The numbers of detections to check a schema with: none and one, where it allows both."""
    listed = root["properties"][DETECTIONS]
    low = listed.get("minItems", 0)
    return [low, 1] if low == 0 and listed.get("maxItems", 1) > 0 else [low]


def grounded_places(document: Schema, root: Schema, item: Schema, places: dict[int, str]) -> dict[int, str]:
    """JSON pointers of the subschemas that grounding made, by `id()`."""
    listed = document["properties"][DETECTIONS]
    entries = listed.get("prefixItems", [])
    of_item, of_id = places.get(id(item), ""), places.get(id(item["properties"]["id"]), "")
    found = {id(listed): places.get(id(root["properties"][DETECTIONS]), "")}
    found.update({id(entry): of_item for entry in entries})
    found.update({id(entry["properties"]["id"]): of_id for entry in entries})
    return found


def ground(root: Schema, item: Schema, count: int, entries: list[Schema] | None = None) -> Schema:
    """The document for a frame with `count` detections asked about, whose ids are 0..count-1.

    Args:
        root: The resolved document.
        item: The schema of one entry.
        count: Number of detections.
        entries: The schemas of entries 0, 1, ... that were made before; it is prolonged.

    Raises:
        SchemaError: The schema itself does not allow so many, or so few.
    """
    listed = root["properties"][DETECTIONS]
    low, high = listed.get("minItems", 0), listed.get("maxItems", count)
    if not low <= count <= high or (count and not validator_for(item["properties"]["id"]).is_valid(count - 1)):
        raise SchemaError(
            f"/properties/detections: the schema does not allow {count} detections",
            help="Take minItems, maxItems and bounds of id out: the number of detections follows from the frame.",
        )
    properties = {**root["properties"], DETECTIONS: _grounded(listed, item, count, [] if entries is None else entries)}
    required = dict.fromkeys([*root.get("required", []), DETECTIONS])
    return {**root, "properties": properties, "required": list(required)}


def _grounded(listed: Schema, item: Schema, count: int, entries: list[Schema]) -> dict[str, Any]:
    kept = {key: value for key, value in listed.items() if key not in _REPLACED}
    if count == 0:
        return {**kept, "type": "array", "maxItems": 0}
    entries += [_entry(item, index) for index in range(len(entries), count)]
    return {**kept, "type": "array", "prefixItems": entries[:count], "items": False, "minItems": count}


def _entry(item: Schema, index: int) -> dict[str, Any]:
    required = dict.fromkeys(["id", *item.get("required", [])])
    return {**item, "properties": {**item["properties"], "id": {"const": index}}, "required": list(required)}
