"""The second part of the training: the language model learns to answer from what the finished tower sees."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor

from drawn_site.rules import ThingTruth, Truth

from .architecture import SCALE, save
from .batches import IGNORE, Words, make_pictures, make_words, prompt_tokens
from .examples import answer, make_example
from .looking import Looked, LookingHeads, look
from .tower import Heads, Scenes, see, turned
from .training import BATCH, Order, Phase

LOOK = 800
"""So many steps at first are for the heads alone: what learns to look and to write at once learns to write without."""
_SAMPLE = 256
"""Lessons from which the scale of what the connector says is taken."""


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


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Lessons of a step."""

    words: Words
    seen: torch.Tensor
    """The tower's output for all pictures, (pictures, 256, width)."""
    looked: Looked


def begin_connector(model: Idefics3ForConditionalGeneration, heads: Heads, lessons: Sequence[Lesson]) -> None:
    """Let the connector begin with what the tower's heads know, as large as the embeddings of words.

    Its first outputs are those of the heads for a cell, and those for patches, summed in each quarter of the cell; so
    that the language model need not find out again what the tower has learned to tell.
    """
    weight = model.model.connector.modality_projection.proj.weight
    rows = [head.weight for head in heads.cell.values()]
    half = SCALE // 2
    for head in heads.patch.values():
        for row, column in itertools.product((0, half), (0, half)):
            block = head.weight.new_zeros(len(head.weight), SCALE, SCALE, head.weight.shape[1])
            block[:, row : row + half, column : column + half] = head.weight[:, None, None]
            rows.append(block.flatten(1))
    known = torch.cat(rows)
    with torch.no_grad():
        weight[: len(known)] = known
        said = model.model.connector(torch.cat([lesson.seen for lesson in lessons[:_SAMPLE]]).float())
        scale = model.get_input_embeddings().weight.std() / said.flatten(0, 1).std(dim=0)
        weight *= scale[:, None]


class Answers(Phase[Asked]):
    """Trains all but the vision tower to answer.

    Heads that are dropped after it say what is seen before a word is written.

    Args:
        model: The model, its tower finished.
        processor: Its processor.
        lessons: What it learns from.
        steps: Steps of this part.
        folder: Where its checkpoint and the model are kept.
    """

    def __init__(
        self, model: Idefics3ForConditionalGeneration, processor: Idefics3Processor, lessons: Sequence[Lesson],
        *, steps: int, folder: Path,
    ) -> None:  # fmt: skip
        self._model, self._processor, self._lessons, self._folder = model, processor, lessons, folder
        self._connector, self._language = model.model.connector, model.model.text_model
        self._heads = LookingHeads(model.config.text_config.hidden_size)
        learning = nn.ModuleDict({"connector": self._connector, "language": self._language, "heads": self._heads})
        super().__init__(learning, steps=steps, checkpoint=folder / "answers.pt")
        self._order = Order([len(lesson.prompt) for lesson in lessons])

    def _batch(self, step: int) -> Asked:
        chosen = [(self._lessons[k], rng) for k, rng in self._order(step)]
        words = make_words(
            [lesson.prompt for lesson, _ in chosen],
            [answer(lesson.truth, lesson.things, rng) if step >= LOOK else None for lesson, rng in chosen],
            self._processor.tokenizer,
        )
        return Asked(
            words=words,
            seen=torch.cat([lesson.seen for lesson, _ in chosen]).float(),
            looked=look(
                [(lesson.prompt, lesson.things, lesson.truth) for lesson, _ in chosen], self._processor.tokenizer
            ),
        )

    def _losses(self, batch: Asked) -> dict[str, torch.Tensor]:
        ids = batch.words.inputs["input_ids"]
        embeds = self._language.get_input_embeddings()(ids)
        pictures = self._connector(batch.seen).flatten(0, 1)
        places = (ids == self._model.config.image_token_id).nonzero(as_tuple=True)
        embeds = embeds.index_put(places, pictures)
        hidden = self._language(
            inputs_embeds=embeds, attention_mask=batch.words.inputs["attention_mask"], use_cache=False
        ).last_hidden_state
        losses: dict[str, torch.Tensor] = self._heads(hidden, batch.looked)
        labels, weights = batch.words.labels[:, 1:], batch.words.weights[:, 1:]
        asked = labels != IGNORE
        if asked.any():
            said = functional.cross_entropy(self._model.lm_head(hidden[:, :-1][asked]), labels[asked], reduction="none")
            losses["answer"] = (said * weights[asked]).sum() / weights[asked].sum()
        return losses

    def _kept(self) -> None:
        save(self._model, self._processor, self._folder / "model")
