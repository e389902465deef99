"""How sure a model is of the verdicts in an answer, taken apart into frame and objects, and named for a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from hazardlens.record import Confidence, confidence_key
from hazardlens.schema.detections import DETECTIONS

Own: TypeAlias = dict[str, Confidence]
"""Confidences of one frame or object, by JSON pointer in its fields."""


def take_apart(confidence: Mapping[str, Confidence] | None) -> tuple[Own | None, dict[int, Own]]:
    """Confidences of the frame's own fields and, by id, of each object; None where nothing is known.

    Args:
        confidence: By JSON pointer in the answer.
    """
    if confidence is None:
        return None, {}
    frame: Own = {}
    by_id: dict[int, Own] = {}
    for pointer, own in confidence.items():
        place = pointer.split("/", 3)
        if place[1] == DETECTIONS and len(place) > 3:
            by_id.setdefault(int(place[2]), {})[f"/{place[3]}"] = own
        else:
            frame[pointer] = own
    return frame, by_id


def put_together(frame: Own | None, by_id: Mapping[int, Own]) -> Own | None:
    """The confidences as a record names them."""
    if frame is None:
        return None
    named = {confidence_key(pointer): own for pointer, own in frame.items()}
    for index, fields in by_id.items():
        named.update({confidence_key(pointer, detection=index): own for pointer, own in fields.items()})
    return named
