"""The second part of the training: the language model learns to answer from what the finished tower sees."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor, PreTrainedTokenizerFast

from drawn_site.rules import SEVERITIES, ThingTruth, Truth

from .architecture import IMAGE_TOKENS, SCALE, save
from .batches import HAZARDS, IGNORE, Words, make_pictures, make_words, prompt_tokens
from .examples import answer, make_example
from .looking import Looked, LookingHeads, look
from .tower import Heads, Scenes, see, turned
from .training import BATCH, Order, Phase

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
_SAMPLE = 512
"""Lessons from which the connector begins."""
_BOTH = 2
"""Pictures of a question with objects: the whole, and the sheet."""
_LOOKUP = ("language.layers.0.self_attn.q_proj", "language.layers.0.self_attn.k_proj")
_RIDGE, _SHARP = 100.0, 1.5


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
    gaps: torch.Tensor
    """Places left out between pictures and words, (B, 1)."""


def begin(
    model: Idefics3ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, heads: Heads, lessons: Sequence[Lesson]
) -> None:
    """Let the connector begin with what the tower's heads know, as large as the embeddings of words.

    Its first outputs are those of the heads for a cell, and those for patches, summed in each quarter of the cell; so
    that the language model need not find out again what the tower has learned to tell. The next ones say which cell of
    which picture it is, by which the number of an object finds the object's cell.
    """
    weight = model.model.connector.modality_projection.proj.weight
    rows = [head.weight for head in heads.cell.values()]
    half = SCALE // 2
    for head in heads.patch.values():
        for row, column in itertools.product((0, half), (0, half)):
            block = head.weight.new_zeros(len(head.weight), SCALE, SCALE, head.weight.shape[1])
            block[:, row : row + half, column : column + half] = head.weight[:, None, None]
            rows.append(block.flatten(1))
    seen = [lesson.seen.float() for lesson in lessons[:_SAMPLE]]
    with torch.no_grad():
        known = torch.cat([*rows, _which_cell(model, [one for one in seen if len(one) == _BOTH])])
        weight[: len(known)] = known
        said = model.model.connector(torch.cat(seen))
        scale = model.get_input_embeddings().weight.std() / said.flatten(0, 1).std(dim=0)
        weight *= scale[:, None]
        sheets = model.model.connector(torch.stack([one[1] for one in seen if len(one) == _BOTH])).mean(dim=0)
        _begin_lookup(
            model, tokenizer, len(known) - _BOTH * IMAGE_TOKENS, sheets[:, len(known) - IMAGE_TOKENS : len(known)]
        )


def _which_cell(model: Idefics3ForConditionalGeneration, seen: Sequence[torch.Tensor]) -> torch.Tensor:
    """Weights that tell the cells of two pictures apart, by ridge regression, (2 * cells, connector's inputs)."""
    inputs = model.model.connector.pixel_shuffle(torch.cat(list(seen)), SCALE).flatten(0, 1)
    cells = torch.eye(len(inputs) // len(seen)).repeat(len(seen), 1)
    inputs, cells = inputs - inputs.mean(dim=0), cells - cells.mean(dim=0)
    ridge = _RIDGE * torch.eye(inputs.shape[1])
    return torch.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ cells).T


def _begin_lookup(
    model: Idefics3ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, first: int, cells: torch.Tensor
) -> None:
    """Let the first head begin by looking up the cell of the sheet that a number names.

    A number begins with what the connector says of its cell, and the head compares just that, in those of its
    dimensions that turn slowest with distance, so that it does so from the prompt and from the answer alike. Numbers
    have it where whole pictures say which cell is theirs, lest they be found in place of the cell.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        first: The first of the connector's outputs that tell cells apart, the whole picture's ahead of the sheet's.
        cells: What it says of each cell of the sheet, (cells, cells).
    """
    count = len(cells)
    named, found = slice(first, first + count), slice(first + count, first + 2 * count)
    words = model.get_input_embeddings().weight
    words[:, first : first + 2 * count] = 0.0
    for number, own in enumerate(cells - cells.mean(dim=0)):
        (token,) = tokenizer(str(number), add_special_tokens=False)["input_ids"]
        words[token, named] = own
    attention = model.model.text_model.layers[0].self_attn
    turning = torch.arange(attention.head_dim) % (attention.head_dim // 2)
    slowest = turning.argsort(stable=True)[-count:]
    attention.q_proj.weight[: attention.head_dim] = 0.0
    attention.q_proj.weight[slowest, named] = _SHARP * torch.eye(count)
    attention.k_proj.weight[slowest] = 0.0
    attention.k_proj.weight[slowest, found] = _SHARP * torch.eye(count)


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
        super().__init__(learning, steps=steps, checkpoint=folder / "answers.pt", gently=_LOOKUP)
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
        places = (ids == self._model.config.image_token_id).nonzero(as_tuple=True)
        embeds = embeds.index_put(places, pictures)
        # Every word stands behind the last picture.
        behind = (ids == self._model.config.image_token_id).flip(1).cumsum(1).flip(1) == 0
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
