"""Lessons for the language model: scenes as the finished tower sees them, each with a question."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor

from drawn_site.rules import ThingTruth, Truth

from .batches import make_pictures, prompt_tokens
from .examples import make_example
from .tower import Scenes, see, turned
from .training import BATCH


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A scene as the tower sees it, and what is asked about it."""

    prompt: list[int]
    """Tokens."""
    seen: torch.Tensor
    """The tower's output, (pictures, 256, width), float16."""
    things: tuple[ThingTruth, ...]
    truth: Truth


def make_lessons(
    model: Idefics3ForConditionalGeneration, processor: Idefics3Processor, scenes: Scenes, *, versions: int
) -> Iterator[Lesson]:
    """What a finished tower sees of all scenes.

    Args:
        model: The model.
        processor: Its processor.
        scenes: The scenes.
        versions: How often each is shown: turned every other time, with other boxes a little off.
    """
    tower = model.model.vision_model.eval()
    for version in range(versions):
        for start in range(0, len(scenes), BATCH):
            examples, wholes = [], []
            for k in range(start, min(start + BATCH, len(scenes))):
                image, whole, truth = turned(*scenes[k]) if (k + version) % 2 else scenes[k]
                examples.append(make_example(image, truth, random.Random(f"{version} {k}")))
                wholes.append(whole)
            batch = make_pictures(examples, wholes)
            with torch.inference_mode():
                seen = see(tower, batch).half().split(batch.counts)
            for example, one in zip(examples, seen, strict=True):
                prompt = prompt_tokens(example, processor)
                yield Lesson(prompt=prompt, seen=one.clone(), things=example.things, truth=example.truth)
