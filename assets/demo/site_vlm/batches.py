"""Examples as tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import Idefics3Processor, PreTrainedTokenizerFast

from drawn_site.rules import SEVERITIES, EffectTruth, Hazard, ThingTruth, Truth
from drawn_site.scene import KINDS
from hazardlens.vlm.crops import crop_sheet
from hazardlens.vlm.prompt import prompt_text, show

from .architecture import IMAGE_PX, IMAGE_TOKENS, PATCH_PX
from .examples import MAX_OBJECTS, VIEW, Example, ask, found, spelled

HAZARDS: tuple[Hazard, ...] = get_args(Hazard)
VERDICTS = (*HAZARDS, *SEVERITIES)
EFFECTS = ("fire", "smoke", "spill")
PATCHES = IMAGE_PX // PATCH_PX
IGNORE = -100

_RARE = 5.0
"""How much more a label counts in the heads' losses that says that something is wrong."""

PATCH_TARGETS = {
    "thing": [1.0] * (1 + len(KINDS)) + [_RARE] * len(EFFECTS),
    "hazard": [1.0] + [_RARE] * (len(HAZARDS) - 1),
}
"""What is asked of each patch of the whole picture while training, and how much each of its labels counts."""
CELL_TARGETS = {
    "kind": [1.0] * len(KINDS),
    "hazard": [1.0] + [_RARE] * (len(HAZARDS) - 1),
    "severity": [1.0] + [_RARE] * (len(SEVERITIES) - 1),
    "dress": [_RARE] * 3 + [1.0],
}
"""The same for each cell of the sheet."""

_NOTHING = np.zeros((0, 4), np.float32), np.zeros(0, np.float32)

_WORST, _NOTE, _FRAME, _OBJECT, _FORM = 8.0, 2.0, 4.0, 3.0, 0.05
"""Weights of the tokens of a note's first sentence and of the others, of the picture's verdict, of an object's, and of
the rest, which the mask forces.

The first sentence says what is worst. What holds for an object counts as much as that nothing does, although that is
rare: weights by label would make the model surer of hazards than it has reason to be.
"""


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Pictures of B examples, at most 2 each, and what they show."""

    pixels: torch.Tensor
    """(B, 2, 3, 256, 256), -1 to 1; where there is no second picture it is 0, which the model leaves out."""
    counts: list[int]
    """Pictures of each example, 1 or 2."""
    patches: dict[str, torch.Tensor]
    """What stands in each patch of the first picture, (B, 256); `thing`: 0 nothing, else 1 + thing or effect."""
    cells: dict[str, torch.Tensor]
    """What each cell of the second picture shows, (B, 16); `IGNORE` where there is none."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """Prompts and answers of B examples, T tokens."""

    inputs: dict[str, torch.Tensor]
    """For the model: `input_ids` and `attention_mask`, (B, T)."""
    labels: torch.Tensor
    """(B, T); `IGNORE` where nothing is learned."""
    weights: torch.Tensor
    """(B, T)."""


def squeeze(image: NDArray[np.uint8], processor: Idefics3Processor) -> NDArray[np.uint8]:
    """A frame as the model sees it, shape (256, 256, 3), RGB: what the product shows, and its processor makes of it.

    Args:
        image: Shape (H, W, 3), BGR.
        processor: The model's.
    """
    shown = Image.fromarray(show(ask(image, found([], *_NOTHING)), VIEW).image)
    pixels = processor.image_processor([[shown]], do_rescale=False, do_normalize=False)["pixel_values"]
    return np.asarray(pixels[0][0], np.uint8).transpose(1, 2, 0)


def make_pictures(examples: Sequence[Example], wholes: Sequence[NDArray[np.uint8]]) -> Pictures:
    """Pictures of some examples.

    Args:
        examples: The examples.
        wholes: Their frames, as `squeeze` makes them.
    """
    pixels = torch.zeros(len(examples), 2, 3, IMAGE_PX, IMAGE_PX)
    for k, (example, whole) in enumerate(zip(examples, wholes, strict=True)):
        pixels[k, 0] = torch.from_numpy(whole.transpose(2, 0, 1).copy()) / 127.5 - 1
        if example.things:
            frame, boxes = example.question.frame, example.question.detections.boxes_xyxy_px
            sheet = crop_sheet(frame.image, boxes, crop_px=VIEW.crops_px or 0)
            pixels[k, 1] = torch.from_numpy(sheet.transpose(2, 0, 1).copy()) / 127.5 - 1
    return Pictures(
        pixels=pixels,
        counts=[1 + bool(example.things) for example in examples],
        patches={name: torch.stack([_patch_labels(e.truth, name) for e in examples]) for name in PATCH_TARGETS},
        cells={name: torch.tensor([_cell_labels(e.things, name) for e in examples]) for name in CELL_TARGETS},
    )


def make_words(
    prompts: Sequence[list[int]],
    answers: Sequence[dict[str, Any] | None],
    tokenizer: PreTrainedTokenizerFast,
    *,
    read: Sequence[dict[str, Any] | None] | None = None,
) -> Words:
    """Prompts with their answers.

    Args:
        prompts: As `prompt_tokens` makes them.
        answers: The right answers; None where nothing is learned.
        tokenizer: The model's.
        read: What the model reads in place of the right answers, about the same objects; a note that differs is not
            learned. None: the right answers.
    """
    rows = []
    for prompt, right, own in zip(prompts, answers, answers if read is None else read, strict=True):
        ids, labels, weights = _answer_tokens(own, right, tokenizer)
        rows.append((prompt + ids, prompt + labels, [0.0] * len(prompt) + weights))
    length = max(len(ids) for ids, _, _ in rows)
    pad = tokenizer.pad_token_id
    input_ids, labels = (torch.tensor([row[k] + [pad] * (length - len(row[k])) for row in rows]) for k in (0, 1))
    weights = torch.tensor([one + [0.0] * (length - len(one)) for _, _, one in rows])
    mask = torch.tensor([[1] * len(ids) + [0] * (length - len(ids)) for ids, _, _ in rows])
    return Words(
        inputs={"input_ids": input_ids, "attention_mask": mask},
        labels=torch.where(weights > 0, labels, IGNORE),
        weights=weights,
    )


def prompt_tokens(example: Example, processor: Idefics3Processor) -> list[int]:
    """The product's prompt of an example, with places for its pictures' tokens."""
    content = [{"type": "image"}] * (1 + bool(example.things))
    content += [{"type": "text", "text": prompt_text(example.question, VIEW)}]
    text = processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
    around = processor.fake_image_token
    picture = f"{around}{processor.global_image_tag}{processor.image_token * IMAGE_TOKENS}{around}"
    tokens: list[int] = processor.tokenizer(text.replace(processor.image_token, picture))["input_ids"]
    return tokens


def _answer_tokens(
    read: dict[str, Any] | None, right: dict[str, Any] | None, tokenizer: PreTrainedTokenizerFast
) -> tuple[list[int], list[int], list[float]]:
    """Tokens of an answer with its end as it is read, those that are right there, and how much each of them counts."""
    if read is None:
        return [], [], []
    ids = [*tokenizer(spelled(read), add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    if right is None:
        return ids, ids, [0.0] * len(ids)
    # A verdict is one token, whatever it is: behind the same note, right and wrong answers are equally long.
    text = spelled({**right, "notes": read["notes"]})
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    counts = [_FORM] * len(text)
    note_start, note_end = len('{"notes": "'), text.index('", "hazard"') + 1
    first_end = text.index(".", note_start) + 1
    counts[note_start:note_end] = [_WORST] * (first_end - note_start) + [_NOTE] * (note_end - first_end)
    if read["notes"] != right["notes"]:
        counts[note_start:note_end] = [0.0] * (note_end - note_start)
    verdicts = zip([read, *read["detections"]], [right, *right["detections"]], strict=True)
    found = re.finditer(r'"hazard": "([a-z_]+)", "severity": "([a-z_]+)"', text)
    for k, (match, (told, true)) in enumerate(zip(found, verdicts, strict=True)):
        weight = _OBJECT if k else _FRAME
        # How bad something is cannot be learned behind what it is not.
        for group, counted in ((1, weight), (2, weight * (told["hazard"] == true["hazard"]))):
            counts[match.start(group) : match.end(group)] = [counted] * (match.end(group) - match.start(group))
    weights = [counts[start] if start < len(counts) else _FORM for start, _ in encoded["offset_mapping"]]
    return ids, [*encoded["input_ids"], tokenizer.eos_token_id], [*weights, _FORM]


def _patch_labels(truth: Truth, name: str) -> torch.Tensor:
    width, height = truth.size_wh
    grid = torch.zeros(PATCHES, PATCHES, dtype=torch.long)
    things = sorted(truth.things, key=lambda thing: _area(thing.box_xyxy_px), reverse=True)
    shown: list[ThingTruth | EffectTruth] = [*things, *truth.effects]
    for one in shown:
        x0, y0, x1, y1 = one.box_xyxy_px
        grid[_span(y0 / height, y1 / height), _span(x0 / width, x1 / width)] = _patch_label(one, name)
    return grid.flatten()


def _patch_label(one: ThingTruth | EffectTruth, name: str) -> int:
    if name == "hazard":
        return HAZARDS.index(one.verdict.hazard)
    if isinstance(one, ThingTruth):
        return 1 + KINDS.index(one.kind)
    return 1 + len(KINDS) + EFFECTS.index(one.effect.kind)


def _span(start: float, end: float) -> slice:
    """Patches of which a stretch, in shares of the picture, covers the middle; at least one."""
    first = round(start * PATCHES)
    return slice(min(first, PATCHES - 1), max(first + 1, round(end * PATCHES)))


def _area(box: tuple[float, float, float, float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _cell_labels(things: Sequence[ThingTruth], name: str) -> list[int]:
    return [*(_cell_label(thing, name) for thing in things), *[IGNORE] * (MAX_OBJECTS - len(things))]


def _cell_label(thing: ThingTruth, name: str) -> int:
    if name == "kind":
        return KINDS.index(thing.kind)
    if name == "hazard":
        return HAZARDS.index(thing.verdict.hazard)
    if name == "severity":
        return SEVERITIES.index(thing.verdict.severity)
    return IGNORE if thing.helmet is None else 2 * bool(thing.helmet) + bool(thing.vest)
