"""The second part of the training: the language model learns to answer, and then the tower goes on with it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor

from drawn_site.rules import SEVERITIES

from .architecture import save
from .batches import HAZARDS, IGNORE, Pictures, Words, make_words, prompt_tokens
from .beginning import LOOKUP
from .looking import Looked, LookingHeads, look
from .tower import Heads, Scenes, ask_about, see
from .training import Order, Phase

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
    """Questions of a step."""

    words: Words
    pictures: Pictures
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
    """Trains the model to answer.

    Heads that are dropped after it say what is seen before a word is written.

    Args:
        model: The model.
        processor: Its processor.
        heads: Those heads.
        scenes: What it learns from.
        steps: Steps of this part.
        rate: Share of the usual learning rates.
        looks: So many steps at first are for the heads alone.
        tower: The vision tower's heads, which learn with it; None where the tower stays as it is.
        checkpoint: Where it is kept; the model comes beside it.
    """

    def __init__(
        self, model: Idefics3ForConditionalGeneration, processor: Idefics3Processor, heads: LookingHeads,
        scenes: Scenes, *, steps: int, rate: float = 1.0, looks: int = 0, tower: Heads | None, checkpoint: Path,
    ) -> None:  # fmt: skip
        self._model, self._processor, self._scenes = model, processor, scenes
        self._language, self._heads, self._tower_heads, self._looks = model.model.text_model, heads, tower, looks
        self._folder = checkpoint.parent
        learning = {"connector": model.model.connector, "language": self._language, "heads": heads}
        if tower is not None:
            learning |= {"tower": model.model.vision_model, "tower_heads": tower}
        super().__init__(
            nn.ModuleDict(learning),
            steps=steps,
            rate=rate,
            checkpoint=checkpoint,
            gently=[f"language.{name}" for name in LOOKUP],
        )
        self._order = Order(scenes.things)

    def _batch(self, step: int) -> Asked:
        chosen = self._order(step)
        examples, pictures = ask_about(self._scenes, chosen)
        right = [example.answer for example in examples]
        looks = step < self._looks
        prompts = [prompt_tokens(example, self._processor) for example in examples]
        words = make_words(
            prompts,
            [None] * len(right) if looks else right,
            self._processor.tokenizer,
            read=[
                misread(own, right[k - 1]["notes"], rng) if looks or rng.random() < MISLED else own
                for k, (own, (_, rng)) in enumerate(zip(right, chosen, strict=True))
            ],
        )
        asked = [(prompt, example.things, example.truth) for prompt, example in zip(prompts, examples, strict=True)]
        return Asked(
            words=words,
            pictures=pictures,
            looked=look(asked, words.inputs["input_ids"], self._processor.tokenizer),
            gaps=torch.tensor([[rng.randrange(GAP)] for _, rng in chosen]),
        )

    def _losses(self, batch: Asked) -> dict[str, torch.Tensor]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self._tower_heads is not None):
            seen = see(self._model.model.vision_model, batch.pictures)
        losses: dict[str, torch.Tensor] = {}
        if self._tower_heads is not None:
            losses |= self._tower_heads(seen, batch.pictures)
        ids = batch.words.inputs["input_ids"]
        embeds = self._language.get_input_embeddings()(ids)
        pictures = self._model.model.connector(seen).flatten(0, 1)
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
        losses |= self._heads(hidden, outputs.hidden_states[EARLY], batch.looked)
        labels, weights = batch.words.labels[:, 1:], batch.words.weights[:, 1:]
        asked = labels != IGNORE
        if asked.any():
            said = functional.cross_entropy(self._model.lm_head(hidden[:, :-1][asked]), labels[asked], reduction="none")
            losses["answer"] = (said * weights[asked]).sum() / weights[asked].sum()
        return losses

    def _kept(self) -> None:
        save(self._model, self._processor, self._folder / "model")
