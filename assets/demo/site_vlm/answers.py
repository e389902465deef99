"""The second part of the training: the language model learns to answer from what the finished tower sees."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor

from drawn_site.rules import SEVERITIES

from .architecture import save
from .batches import HAZARDS, IGNORE, Words, make_words
from .beginning import LOOKUP
from .examples import answer
from .lessons import Lesson
from .looking import Looked, LookingHeads, look
from .training import Order, Phase

LOOK = 300
"""So many steps at first are for the heads alone: what learns to look and to write at once learns to write without."""
MISLED = 0.3
"""Share of the later answers in which the model reads another scene's note, and wrong verdicts, ahead of those that it
gives: what learns from true ones alone repeats them, and is never in doubt."""
GAP = 600
"""Most places between pictures and words while it learns. Without such gaps an object's line finds its cell of the
sheet by how far away it stands, and its verdict in the answer, which stands elsewhere, does not find it (Ruoss et al.
2023, "Randomized Positional Encodings Boost Length Generalization of Transformers")."""
EARLY = 2
"""Layers after which a line of the prompt must know what holds for its object: only what an earlier layer knows of one
token can be looked up from another."""
_WRONG = 0.5
"""Share of the verdicts there that are any."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Lessons of a step."""

    words: Words
    seen: torch.Tensor
    """The tower's output for all pictures, (pictures, 256, width)."""
    looked: Looked
    gaps: torch.Tensor
    """Places left out behind the last picture, (B, 1)."""


def misread(right: dict[str, Any], notes: str, rng: random.Random) -> dict[str, Any]:
    """A right answer with another note, and with any verdict in place of half of its own."""

    def verdict(own: dict[str, Any]) -> dict[str, Any]:
        if rng.random() >= _WRONG:
            return own
        return {**own, "hazard": rng.choice(HAZARDS), "severity": rng.choice(SEVERITIES)}

    return verdict({**right, "notes": notes, "detections": [verdict(one) for one in right["detections"]]})


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
        super().__init__(
            learning, steps=steps, checkpoint=folder / "answers.pt", gently=[f"language.{name}" for name in LOOKUP]
        )
        self._order = Order([len(lesson.prompt) for lesson in lessons])

    def _batch(self, step: int) -> Asked:
        chosen = [(self._lessons[k], rng) for k, rng in self._order(step)]
        right = [answer(lesson.truth, lesson.things, rng) for lesson, rng in chosen]
        looks = step < LOOK
        words = make_words(
            [lesson.prompt for lesson, _ in chosen],
            [None] * len(right) if looks else right,
            self._processor.tokenizer,
            read=[
                misread(own, right[k - 1]["notes"], rng) if looks or rng.random() < MISLED else own
                for k, (own, (_, rng)) in enumerate(zip(right, chosen, strict=True))
            ],
        )
        return Asked(
            words=words,
            seen=torch.cat([lesson.seen for lesson, _ in chosen]).float(),
            looked=look(
                [(lesson.prompt, lesson.things, lesson.truth) for lesson, _ in chosen],
                words.inputs["input_ids"],
                self._processor.tokenizer,
            ),
            gaps=torch.tensor([[rng.randrange(GAP)] for _, rng in chosen]),
        )

    def _losses(self, batch: Asked) -> dict[str, torch.Tensor]:
        ids = batch.words.inputs["input_ids"]
        embeds = self._language.get_input_embeddings()(ids)
        pictures = self._connector(batch.seen).flatten(0, 1)
        pictured = ids == self._model.config.image_token_id
        embeds = embeds.index_put(pictured.nonzero(as_tuple=True), pictures)
        behind = pictured.flip(1).cumsum(1).flip(1) == 0
        outputs = self._language(
            inputs_embeds=embeds,
            position_ids=torch.arange(ids.shape[1]) + behind * batch.gaps,
            attention_mask=batch.words.inputs["attention_mask"],
            use_cache=False,
            output_hidden_states=True,
        )
        hidden = outputs.last_hidden_state
        losses: dict[str, torch.Tensor] = self._heads(hidden, outputs.hidden_states[EARLY], batch.looked)
        labels, weights = batch.words.labels[:, 1:], batch.words.weights[:, 1:]
        asked = labels != IGNORE
        if asked.any():
            said = functional.cross_entropy(self._model.lm_head(hidden[:, :-1][asked]), labels[asked], reduction="none")
            losses["answer"] = (said * weights[asked]).sum() / weights[asked].sum()
        return losses

    def _kept(self) -> None:
        save(self._model, self._processor, self._folder / "model")
