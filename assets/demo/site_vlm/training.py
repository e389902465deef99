"""The training: of answers, and of what stands in each patch and cell, by heads that are dropped after it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor

from drawn_site.rules import Truth

from .architecture import SCALE, save
from .batches import CELL_TARGETS, IGNORE, PATCH_TARGETS, PATCHES, Batch, make_batch
from .examples import make_example, mirrored

Image = NDArray[np.uint8]

BATCH, WARM_UP = 16, 100
MATRIX_RATE, REST_RATE, LAST_SHARE = 2e-2, 1.2e-3, 0.02
"""Learning rates of the layers' matrices and of all else, and what is left of them at the end."""

_SORTED = 8
"""Scenes of so many steps are sorted by their number of things, so that those of one step are about as long."""

_HEADS_WEIGHT = 0.5
"""Of the heads' losses, once there are answers as well."""


class Scenes(Protocol):
    """Scenes to learn from."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> tuple[Image, Image, Truth]:
        """A scene's picture, the same as `squeeze` makes it, and its truth."""

    def things(self, index: int) -> int:
        """How many things it shows."""


class Heads(nn.Module):  # type: ignore[misc]
    """Linear heads on the vision tower's patches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.ModuleDict({name: nn.Linear(width, len(labels)) for name, labels in PATCH_TARGETS.items()})
        self.cell = nn.ModuleDict(
            {name: nn.Linear(width * SCALE**2, len(labels)) for name, labels in CELL_TARGETS.items()}
        )

    def forward(self, seen: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses of patches and of cells.

        Args:
            seen: The tower's output for all pictures of the batch, (pictures, 256, width).
            batch: The batch.
        """
        firsts = torch.tensor([0, *accumulate(batch.pictures[:-1])])
        patches = [
            _loss(head(seen[firsts]), batch.patches[name], PATCH_TARGETS[name]) for name, head in self.patch.items()
        ]
        with_sheet = torch.tensor([k for k, count in enumerate(batch.pictures) if count == 2], dtype=torch.long)
        side = PATCHES // SCALE
        sheets = seen[firsts[with_sheet] + 1].view(len(with_sheet), side, SCALE, side, SCALE, -1)
        cells = sheets.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)
        known = {name: labels[with_sheet] for name, labels in batch.cells.items()}
        losses = [
            _loss(self.cell[name](cells), labels, CELL_TARGETS[name])
            for name, labels in known.items()
            if (labels != IGNORE).any()
        ]
        return torch.stack(patches).sum(), torch.stack(losses).sum() if losses else seen.new_zeros(())


def _loss(logits: torch.Tensor, labels: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    return functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), weight=torch.tensor(weights), ignore_index=IGNORE
    )


class Trainer:
    """Trains a model, and can be stopped and started again at any time.

    At first the vision tower learns alone, from its heads, at half the cost of a step; then all learn together. The
    layers' matrices are trained by Muon (Jordan 2024), all else by AdamW.

    Args:
        model: The model.
        processor: Its processor.
        scenes: What it learns from.
        steps: Steps of the whole training.
        tower_steps: So many of them are the tower's alone.
        folder: Where checkpoints are kept.
    """

    def __init__(
        self, model: Idefics3ForConditionalGeneration, processor: Idefics3Processor, scenes: Scenes,
        *, steps: int, tower_steps: int, folder: Path,
    ) -> None:  # fmt: skip
        self._model, self._processor, self._scenes = model, processor, scenes
        self._steps, self._tower_steps, self._folder = steps, tower_steps, folder
        self._heads = Heads(model.config.vision_config.hidden_size)
        self._parameters = [*model.parameters(), *self._heads.parameters()]
        matrices = [p for name, p in model.named_parameters() if ".layers." in name and p.ndim == 2]
        chosen = {id(p) for p in matrices}
        rest = [p for p in self._parameters if id(p) not in chosen]
        self._optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.01), MATRIX_RATE),
            (torch.optim.AdamW(rest, lr=REST_RATE, weight_decay=0.03, betas=(0.9, 0.98)), REST_RATE),
        ]
        self._seen: list[torch.Tensor] = []
        model.model.vision_model.register_forward_hook(lambda _, __, out: self._seen.append(out.last_hidden_state))
        self._checkpoint = folder / "checkpoint.pt"

    def run(self, *, every: int = 100, until: int | None = None) -> None:
        """Train from the last checkpoint to the end, or `until` a step; a checkpoint comes `every` so many steps."""
        start, end = self._restore(), min(self._steps, until or self._steps)
        self._model.train()
        began, sums = time.monotonic(), [0.0] * 4
        for step, batch in self._batches(start, end):
            losses = self._step(step, batch)
            sums = [total + loss for total, loss in zip(sums, losses, strict=True)]
            if (step + 1) % 50 == 0:
                named = zip(("loss", "answer", "patch", "cell"), sums, strict=True)
                rate = (step + 1 - start) * BATCH / (time.monotonic() - began)
                print(
                    f"{step + 1}/{self._steps}", *(f"{n} {s / 50:.3f}" for n, s in named), f"{rate:.1f}/s", flush=True
                )
                sums = [0.0] * 4
            if (step + 1) % every == 0 or step + 1 == end:
                self._keep(step + 1)

    def _step(self, step: int, batch: Batch) -> list[float]:
        self._seen.clear()
        alone = step < self._tower_steps
        answer = self._look(batch) if alone else self._answer_loss(batch)
        patch, cell = self._heads(self._seen[0], batch)
        loss = answer + (1.0 if alone else _HEADS_WEIGHT) * (patch + cell)
        for optimizer, rate in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                group["lr"] = rate * _share(step, self._steps)
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for optimizer, _ in self._optimizers:
            optimizer.step()
        return [one.item() for one in (loss, answer, patch, cell)]

    def _look(self, batch: Batch) -> torch.Tensor:
        """Only see the pictures; nothing is answered, so there is no loss."""
        pictures = batch.inputs["pixel_values"]
        shown = torch.arange(pictures.shape[1]) < torch.tensor(batch.pictures)[:, None]
        tower = self._model.model.vision_model
        count = sum(batch.pictures)
        tower(pixel_values=pictures[shown], patch_attention_mask=torch.ones(count, PATCHES, PATCHES, dtype=torch.bool))
        return pictures.new_zeros(())

    def _answer_loss(self, batch: Batch) -> torch.Tensor:
        hidden = self._model.model(**batch.inputs, use_cache=False).last_hidden_state[:, :-1]
        labels, weights = batch.labels[:, 1:], batch.weights[:, 1:]
        asked = labels != IGNORE
        losses = functional.cross_entropy(self._model.lm_head(hidden[asked]), labels[asked], reduction="none")
        return (losses * weights[asked]).sum() / weights[asked].sum()

    def _batches(self, start: int, end: int) -> Iterator[tuple[int, Batch]]:
        """Steps and their batches, each made while the one before is learned from."""
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(self._batch, start)
            for step in range(start, end):
                batch = coming.result()
                coming = ahead.submit(self._batch, min(step + 1, end - 1))
                yield step, batch

    def _batch(self, step: int) -> Batch:
        examples, wholes = [], []
        for k, rng in self._order(step):
            image, whole, truth = self._scenes[k]
            if rng.random() < 0.5:
                image, whole, truth = np.ascontiguousarray(image[:, ::-1]), whole[:, ::-1], mirrored(truth)
            examples.append(make_example(image, truth, rng))
            wholes.append(whole)
        return make_batch(examples, wholes, self._processor)

    def _order(self, step: int) -> Iterator[tuple[int, random.Random]]:
        """Scenes of a step, each with its own source of chance; the same however often the training is stopped."""
        group, place = divmod(step, _SORTED)
        scenes = [self._scene(at) for at in range(group * _SORTED * BATCH, (group + 1) * _SORTED * BATCH)]
        scenes.sort(key=lambda scene: self._scenes.things(scene[0]))
        place = random.Random(group).sample(range(_SORTED), _SORTED)[place]
        for k, chance in scenes[place * BATCH : (place + 1) * BATCH]:
            yield k, random.Random(chance)

    def _scene(self, at: int) -> tuple[int, str]:
        """The `at`-th scene of all the training, and the seed of its chance."""
        count = len(self._scenes)
        epoch, place = divmod(at, count)
        return (place * 7919 + epoch * 104729) % count, f"{epoch} {place}"

    def _keep(self, step: int) -> None:
        state = {
            "step": step,
            "model": self._model.state_dict(),
            "heads": self._heads.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self._optimizers],
        }
        torch.save(state, self._checkpoint.with_suffix(".new"))
        self._checkpoint.with_suffix(".new").replace(self._checkpoint)
        save(self._model, self._processor, self._folder / "model")

    def _restore(self) -> int:
        if not self._checkpoint.exists():
            return 0
        state = torch.load(self._checkpoint, weights_only=True)
        self._model.load_state_dict(state["model"])
        self._heads.load_state_dict(state["heads"])
        for (optimizer, _), one in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(one)
        return int(state["step"])


def _share(step: int, steps: int) -> float:
    """Share of the full learning rate: soon all of it, from the middle on less and less."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    late = max(0.0, 2 * step / steps - 1)
    return LAST_SHARE + 0.5 * (1 - LAST_SHARE) * (1 + math.cos(math.pi * late))
