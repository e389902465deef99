"""Field schemas: loaded, checked, bounded, and grounded to the detections of a frame."""

from hazardlens.schema.fields import FieldSchema
from hazardlens.schema.findings import Finding
from hazardlens.schema.grounded import AnswerError, GroundedSchema
from hazardlens.schema.spelling import ITEM_SEPARATOR, KEY_SEPARATOR

__all__ = [
    "ITEM_SEPARATOR",
    "KEY_SEPARATOR",
    "AnswerError",
    "FieldSchema",
    "Finding",
    "GroundedSchema",
]
