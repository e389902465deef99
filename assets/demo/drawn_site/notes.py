"""What is true of a picture, in sentences; and the other way round, so that a model's sentences can be checked."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from typing import Literal, get_args

from .rules import TALL_FIRE_M, TALL_SMOKE_M, WIDE_SPILL_M, EffectTruth, Hazard, ThingTruth, Truth
from .scene import VEHICLES

Side = Literal["on the left", "in the middle", "on the right"]
SIDES: tuple[Side, ...] = get_args(Side)

_EDGE = 0.06
"""Share of the width by which a thing may lie beyond its third and still be said to be there."""


@dataclass(frozen=True)
class Claim:
    """What one sentence says.

    Attributes:
        hazard: That hazard is there; `none`: there is none at all; None: the sentence is about people.
        side: Where it is.
        detail: How large it is, what is missing, or which vehicle or obstacle it is.
        workers: Number of workers in view.
    """

    hazard: Hazard | None = None
    side: Side | None = None
    detail: str | None = None
    workers: int | None = None


_SENTENCES: dict[Hazard, tuple[str, ...]] = {
    "fire": (
        "There are {detail} flames {side}.",
        "{detail} flames burn {side}.",
        "A fire with {detail} flames burns {side}.",
    ),
    "smoke": (
        "There is {detail} smoke {side}.",
        "{detail} smoke rises {side}.",
        "{detail} smoke hangs in the air {side}.",
    ),
    "spill": (
        "There is a {detail} puddle {side}.",
        "A {detail} puddle covers the floor {side}.",
        "A {detail} spill is on the floor {side}.",
    ),
    "person_down": (
        "A worker lies on the ground {side}.",
        "Someone lies on the ground {side}.",
        "A person is down {side}.",
    ),
    "missing_ppe": (
        "A worker {side} wears no {detail}.",
        "Someone {side} has no {detail}.",
        "A worker without {detail} is {side}.",
    ),
    "vehicle_proximity": (
        "A worker is too close to a {detail} {side}.",
        "Someone is dangerously near a {detail} {side}.",
        "A {detail} {side} is very close to a worker.",
    ),
    "blocked_path": (
        "A {detail} {side} stands in the way.",
        "A {detail} {side} blocks the way.",
        "The way is blocked by a {detail} {side}.",
    ),
    "none": ("Nothing is wrong.", "There is no hazard.", "All is as it should be."),
}
_MISSING = {(False, True): "helmet", (True, False): "vest", (False, False): "helmet or vest"}
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def claims(truth: Truth) -> list[Claim]:
    """All that may be said of a picture: hazards, the worst first, then the number of workers."""
    found = [(one.verdict.weight, _of_effect(one, truth)) for one in truth.effects]
    for thing in truth.things:
        found += [(v.weight, claim) for v in thing.verdicts if (claim := _of_thing(thing, v.hazard, truth))]
    hazards = [claim for _, claim in sorted(found, key=lambda one: one[0], reverse=True)]
    return [*(dict.fromkeys(hazards) or [Claim("none")]), Claim(workers=_workers(truth))]


def write(truth: Truth, rng: random.Random) -> str:
    """A note: the worst hazard, now and then the next one too, and how many workers are in view."""
    *hazards, people = claims(truth)
    said = [hazards[0], *(hazards[1:2] if rng.random() < 0.3 else []), people]
    return " ".join(_sentence(claim, rng) for claim in said)


def read(note: str) -> list[Claim | None]:
    """The claims of a note, one for each sentence; None for a sentence that no rule of this module can have written."""
    sentences = [part + "." for part in re.split(r"\.\s*", note.strip()) if part]
    return [_read_sentence(sentence) for sentence in sentences]


def agrees(claim: Claim | None, truth: Truth) -> bool:
    """Whether a claim is true of a picture; a thing near the border of two thirds may be said to be in either."""
    if claim is None:
        return False
    if claim.workers is not None:
        return claim.workers == _workers(truth)
    if claim.hazard == "none":
        return truth.verdict.hazard == "none"
    places = [(_of_effect(one, truth), one.box_xyxy_px) for one in truth.effects]
    for thing in truth.things:
        places += [(c, thing.box_xyxy_px) for v in thing.verdicts if (c := _of_thing(thing, v.hazard, truth))]
    return any(
        (claim.hazard, claim.detail) == (true.hazard, true.detail) and claim.side in _sides(box, truth, _EDGE)
        for true, box in places
    )


def _of_effect(one: EffectTruth, truth: Truth) -> Claim:
    limit = {"fire": TALL_FIRE_M, "smoke": TALL_SMOKE_M, "spill": WIDE_SPILL_M}[one.effect.kind]
    small, large = {"fire": ("low", "tall"), "smoke": ("thin", "thick"), "spill": ("small", "large")}[one.effect.kind]
    return Claim(one.effect.kind, _side(one.box_xyxy_px, truth), small if one.effect.size_m < limit else large)


def _of_thing(thing: ThingTruth, hazard: Hazard, truth: Truth) -> Claim | None:
    """What one of a thing's verdicts lets one say; None where it is said of something else, as of flames."""
    side = _side(thing.box_xyxy_px, truth)
    if hazard == "missing_ppe" and thing.helmet is not None and thing.vest is not None:
        return Claim(hazard, side, _MISSING[thing.helmet, thing.vest])
    if hazard == "person_down":
        return Claim(hazard, side)
    if hazard == "blocked_path" or (hazard == "vehicle_proximity" and thing.kind in VEHICLES):
        return Claim(hazard, side, thing.kind)
    return None


def _workers(truth: Truth) -> int:
    return sum(thing.kind == "worker" for thing in truth.things)


def _side(box_xyxy_px: tuple[float, float, float, float], truth: Truth) -> Side:
    return _sides(box_xyxy_px, truth, 0.0)[0]


def _sides(box_xyxy_px: tuple[float, float, float, float], truth: Truth, edge: float) -> list[Side]:
    centre = (box_xyxy_px[0] + box_xyxy_px[2]) / 2 / truth.size_wh[0]
    return [side for k, side in enumerate(SIDES) if k / 3 - edge <= centre <= (k + 1) / 3 + edge]


def _sentence(claim: Claim, rng: random.Random) -> str:
    if claim.workers is not None:
        number = _NUMBERS[min(claim.workers, len(_NUMBERS) - 1)]
        text = f"{number} worker{'' if claim.workers == 1 else 's'} in view."
    else:
        text = rng.choice(_SENTENCES[claim.hazard or "none"]).format(side=claim.side, detail=claim.detail)
    return text[0].upper() + text[1:]


def _read_sentence(sentence: str) -> Claim | None:
    people = re.fullmatch(rf"({'|'.join(_NUMBERS)}) workers? in view\.", sentence, re.IGNORECASE)
    if people:
        return Claim(workers=_NUMBERS.index(people[1].lower()))
    for hazard, templates in _SENTENCES.items():
        for template in templates:
            pattern = re.escape(template).replace(r"\{detail\}", "(?P<detail>[a-z ]+?)")
            pattern = pattern.replace(r"\{side\}", f"(?P<side>{'|'.join(SIDES)})")
            match = re.fullmatch(pattern, sentence, re.IGNORECASE)
            if match:
                words = match.groupdict()
                side = next((s for s in SIDES if s == words.get("side")), None)
                return Claim(hazard, side, words["detail"].lower() if "detail" in words else None)
    return None
