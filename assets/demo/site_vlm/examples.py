"""From a scene and its truth to a question, as the product asks it, and the answer that is right."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drawn_site.notes import write
from drawn_site.rules import ThingTruth, Truth
from drawn_site.scene import KINDS
from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.schema import ITEM_SEPARATOR, KEY_SEPARATOR, FieldSchema
from hazardlens.vlm.base import Question, View

VIEW = View(longest_side_px=512, crops_px=64, describe_fields=False)
"""As `pipelines/demo.yaml` says."""

MAX_OBJECTS = 16
SCHEMA = FieldSchema.load("hazard")

Size = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Example:
    """A question, its answer, and the things that it asks about, in the order of their ids."""

    question: Question
    answer: dict[str, Any]
    things: tuple[ThingTruth, ...]
    truth: Truth


def make_example(image: NDArray[np.uint8], truth: Truth, rng: random.Random) -> Example:
    """A training example: boxes a little off, a few things missed, in any order."""
    things = [thing for thing in truth.things if rng.random() > (0.25 if thing.share < 0.35 else 0.03)]
    rng.shuffle(things)
    things = things[:MAX_OBJECTS]
    boxes = np.array([_jitter(thing, truth.size_wh, rng) for thing in things], np.float32).reshape(-1, 4)
    confidence = np.array([rng.uniform(0.4, 0.97) for _ in things], np.float32)
    question = ask(image, found(things, boxes, confidence))
    return Example(question=question, answer=answer(truth, things, rng), things=tuple(things), truth=truth)


def found(things: Sequence[ThingTruth], boxes: NDArray[np.float32], confidence: NDArray[np.float32]) -> Detections:
    """Things as a detector would report them."""
    return Detections(
        boxes_xyxy_px=boxes,
        confidence=confidence,
        class_id=np.array([KINDS.index(thing.kind) for thing in things], np.int64),
        track_id=(None,) * len(things),
        class_names=dict(enumerate(KINDS)),
    )


def ask(image: NDArray[np.uint8], detections: Detections) -> Question:
    """The product's question about all of a picture's detections."""
    return Question(
        frame=Frame(image=image, index=0, time_s=0.0, source="drawn"),
        detections=detections,
        asked=len(detections),
        fields=SCHEMA,
        schema=SCHEMA.ground(len(detections)),
        context="",
        trigger=(),
    )


def answer(truth: Truth, things: Sequence[ThingTruth], rng: random.Random) -> dict[str, Any]:
    """The right answer, in the schema's order."""
    return {
        "notes": write(truth, rng),
        "hazard": truth.verdict.hazard,
        "severity": truth.verdict.severity,
        "detections": [
            {"id": k, "hazard": thing.verdict.hazard, "severity": thing.verdict.severity}
            for k, thing in enumerate(things)
        ],
    }


def spelled(fields: dict[str, Any]) -> str:
    """An answer in the mask's spelling of JSON."""
    return json.dumps(fields, ensure_ascii=False, separators=(ITEM_SEPARATOR, KEY_SEPARATOR))


def mirrored(truth: Truth) -> Truth:
    """The truth of a picture turned left to right."""
    width = truth.size_wh[0]

    def flip(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        return width - box[2], box[1], width - box[0], box[3]

    return replace(
        truth,
        things=tuple(replace(thing, box_xyxy_px=flip(thing.box_xyxy_px)) for thing in truth.things),
        effects=tuple(replace(effect, box_xyxy_px=flip(effect.box_xyxy_px)) for effect in truth.effects),
    )


def _jitter(thing: ThingTruth, size_wh: Size, rng: random.Random) -> list[float]:
    x0, y0, x1, y1 = thing.box_xyxy_px
    dx, dy = 0.05 * (x1 - x0), 0.05 * (y1 - y0)
    moved = (x0 + rng.gauss(0, dx), y0 + rng.gauss(0, dy), x1 + rng.gauss(0, dx), y1 + rng.gauss(0, dy))
    return [min(max(value, 0.0), float(limit)) for value, limit in zip(moved, size_wh * 2, strict=True)]
