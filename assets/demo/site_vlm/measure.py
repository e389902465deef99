"""How good the demo's VLM is on drawn scenes, through the product's own prompt, mask and decoding."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from transformers import BatchFeature

from drawn_site import notes
from drawn_site.rules import SEVERITIES, ThingTruth, Truth
from hazardlens.detect.base import Detections, Detector
from hazardlens.frames.base import Frame
from hazardlens.record import Confidence
from hazardlens.vlm.base import Question, Reply, Shown, Vlm
from hazardlens.vlm.calibration import Temperatures, expected_calibration_error, place, tempered
from hazardlens.vlm.local import LocalVlm
from hazardlens.vlm.prompt import show
from site_detector.measure import overlap

from .examples import MAX_OBJECTS, VIEW, ask, found

Sight = Literal["picture", "blank"]
"""What the model sees: the pictures, or grey ones in their place."""

Image = NDArray[np.uint8]

_SAME = 0.5


class PromptOnly(LocalVlm):
    """The model, asked without any picture: what it says then it cannot have seen."""

    def inputs(self, shown: Shown) -> BatchFeature:
        """The prompt alone."""
        return self.encode([], shown.prompt)


@dataclass(frozen=True)
class Judgement:
    """How sure the model was of one verdict, and what is true."""

    place: str
    """A field's JSON pointer, with `*` for an object's number."""
    confidence: Confidence
    truth: str


@dataclass(kw_only=True)
class Scores:
    """Counts over scenes, and how sure the model was."""

    frames: int = 0
    valid: int = 0
    hazard: int = 0
    severity: int = 0
    severity_within_one: int = 0
    objects: int = 0
    object_hazard: int = 0
    claims: int = 0
    true_claims: int = 0
    judgements: list[Judgement] = field(default_factory=list)

    def figures(self) -> dict[str, float | int]:
        """Shares, 0 to 1."""
        frames, objects, claims = max(1, self.frames), max(1, self.objects), max(1, self.claims)
        return {
            "frames": self.frames,
            "valid": round(self.valid / frames, 4),
            "hazard": round(self.hazard / frames, 4),
            "severity": round(self.severity / frames, 4),
            "severity within one rank": round(self.severity_within_one / frames, 4),
            "objects": self.objects,
            "object hazard": round(self.object_hazard / objects, 4),
            "claims": self.claims,
            "true claims": round(self.true_claims / claims, 4),
        }


def measure(
    vlm: Vlm,
    scenes: Iterable[tuple[NDArray[np.uint8], Truth]],
    *,
    detector: Detector | None = None,
    sight: Sight = "picture",
) -> Scores:
    """Ask about each scene and compare with its truth.

    Args:
        vlm: The model.
        scenes: Pictures and truths.
        detector: Finds the objects; None: the true boxes.
        sight: What the model sees.
    """
    scores = Scores()
    for image, truth in scenes:
        detections, things = _objects(image, truth, detector)
        question = ask(image, detections)
        reply = _answer(vlm, question, sight)
        scores.frames += 1
        if reply.end == "complete":
            scores.valid += reply.attempts == 1
            fields = dict(question.schema.parse(reply.text))
            _compare(scores, fields, truth, things)
            scores.judgements += _judgements(reply.confidence or {}, fields, truth, things)
    return scores


def calibration_errors(judgements: Sequence[Judgement], temperatures: Temperatures) -> dict[str, float]:
    """Expected calibration error of each field, and of all verdicts, once temperatures are applied."""
    judged = [(one.place, tempered(one.confidence, temperatures(one.place)), one.truth) for one in judgements]
    fields = {name: [one for one in judged if one[0] == name] for name in dict.fromkeys(one[0] for one in judged)}
    return {
        name: round(expected_calibration_error([c.p for _, c, _ in of], [c.choices.get(t) == c.p for _, c, t in of]), 4)
        for name, of in {**fields, "all": judged}.items()
    }


def _objects(
    image: NDArray[np.uint8], truth: Truth, detector: Detector | None
) -> tuple[Detections, list[ThingTruth | None]]:
    """What is asked about, the largest first, and the thing that each stands for, if any."""
    if detector is None:
        things = sorted(truth.things, key=lambda thing: -_area(thing.box_xyxy_px))[:MAX_OBJECTS]
        boxes = np.array([thing.box_xyxy_px for thing in things], np.float32).reshape(-1, 4)
        return found(things, boxes, np.full(len(things), 0.9, np.float32)), list(things)
    (seen,) = detector.detect([Frame(image=image, index=0, time_s=0.0, source="drawn")])
    order = sorted(range(len(seen)), key=lambda k: -_area(seen.boxes_xyxy_px[k]))[:MAX_OBJECTS]
    detections = seen.reordered(order)
    return detections, [_thing_at(truth, box) for box in detections.boxes_xyxy_px]


def _thing_at(truth: Truth, box: NDArray[np.float32]) -> ThingTruth | None:
    boxes = np.array([thing.box_xyxy_px for thing in truth.things], np.float32).reshape(-1, 4)
    overlaps = overlap(boxes, box)
    return truth.things[int(overlaps.argmax())] if len(overlaps) and overlaps.max() >= _SAME else None


def _area(box: Any) -> float:
    return float((box[2] - box[0]) * (box[3] - box[1]))


def _answer(vlm: Vlm, question: Question, sight: Sight) -> Reply:
    shown = show(question, VIEW)
    if sight == "blank":
        crops = None if shown.crops is None else np.full_like(shown.crops, 128)
        shown = replace(shown, image=np.full_like(shown.image, 128), crops=crops)
    return vlm.ask(question, shown, threading.Event())


def _judgements(
    confidence: Mapping[str, Confidence], fields: Mapping[str, Any], truth: Truth, things: Sequence[ThingTruth | None]
) -> list[Judgement]:
    """Each verdict of which both its confidence and the truth are known.

    A severity's confidence is that given the hazard before it, so it is judged only where that one is right.
    """
    told = [("", fields, truth.verdict)]
    told += [
        (f"/detections/{k}", entry, thing.verdict)
        for k, (entry, thing) in enumerate(zip(fields["detections"], things, strict=True))
        if thing is not None
    ]
    return [
        Judgement(place(at), confidence[at], value)
        for scope, said, true in told
        for at, value, given in (
            (f"{scope}/hazard", true.hazard, True),
            (f"{scope}/severity", true.severity, said["hazard"] == true.hazard),
        )
        if given and at in confidence
    ]


def _compare(scores: Scores, fields: dict[str, Any], truth: Truth, things: list[ThingTruth | None]) -> None:
    scores.hazard += fields["hazard"] == truth.verdict.hazard
    apart = abs(SEVERITIES.index(fields["severity"]) - SEVERITIES.index(truth.verdict.severity))
    scores.severity += apart == 0
    scores.severity_within_one += apart <= 1
    for thing, verdict in zip(things, fields["detections"], strict=True):
        if thing is not None:
            scores.objects += 1
            scores.object_hazard += verdict["hazard"] == thing.verdict.hazard
    said = notes.read(fields["notes"])
    scores.claims += len(said)
    scores.true_claims += sum(notes.agrees(claim, truth) for claim in said)
