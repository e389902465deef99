"""The training: of answers, and of what stands in each patch and cell, by heads that are dropped after it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor

from drawn_site.rules import Truth
from drawn_site.scene import KINDS

from .architecture import SCALE, save
from .batches import CELL_TARGETS, EFFECTS, IGNORE, PATCHES, Batch, make_batch
from .examples import make_example, mirrored

Image = NDArray[np.uint8]

BATCH, PEAK_RATE, LAST_RATE, WARM_UP = 16, 1.2e-3, 3e-5, 100
_PATCH_WEIGHT, _CELL_WEIGHT = 1.0, 1.0


class Heads(nn.Module):  # type: ignore[misc]
    """Linear heads on the vision tower's patches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Linear(width, 1 + len(KINDS) + len(EFFECTS))
        self.cell = nn.ModuleDict({name: nn.Linear(width * SCALE**2, size) for name, size in CELL_TARGETS.items()})

    def forward(self, seen: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Losses of patches and of cells.

        Args:
            seen: The tower's output for all pictures of the batch, (pictures, 256, width).
            batch: The batch.
        """
        first = torch.tensor([sum(batch.pictures[:k]) for k in range(len(batch.pictures))])
        patches = functional.cross_entropy(self.patch(seen[first]).flatten(0, 1), batch.patches.flatten())
        with_sheet = torch.tensor([k for k, count in enumerate(batch.pictures) if count == 2], dtype=torch.long)
        if not len(with_sheet):
            return patches, patches.new_zeros(())
        side = PATCHES // SCALE
        sheets = seen[first[with_sheet] + 1].view(len(with_sheet), side, SCALE, side, SCALE, -1)
        cells = sheets.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)
        losses = [
            functional.cross_entropy(
                head(cells).flatten(0, 1), batch.cells[name][with_sheet].flatten(), ignore_index=IGNORE
            )
            for name, head in self.cell.items()
            if (batch.cells[name][with_sheet] != IGNORE).any()
        ]
        return patches, torch.stack(losses).sum() if losses else patches.new_zeros(())


class Trainer:
    """Trains a model, and can be stopped and started again at any time.

    Args:
        model: The model.
        processor: Its processor.
        scenes: Loads the k-th scene: its picture, the same as `squeeze` makes it, its truth.
        count: Number of scenes.
        steps: Steps of the whole training.
        folder: Where checkpoints are kept.
    """

    def __init__(
        self, model: Idefics3ForConditionalGeneration, processor: Idefics3Processor,
        scenes: Callable[[int], tuple[Image, Image, Truth]], count: int, *, steps: int, folder: Path,
    ) -> None:  # fmt: skip
        self._model, self._processor, self._scenes, self._count = model, processor, scenes, count
        self._steps, self._folder = steps, folder
        self._heads = Heads(model.config.vision_config.hidden_size)
        parameters = [*model.parameters(), *self._heads.parameters()]
        self._optimizer = torch.optim.AdamW(parameters, lr=PEAK_RATE, weight_decay=0.03, betas=(0.9, 0.98))
        self._seen: list[torch.Tensor] = []
        model.model.vision_model.register_forward_hook(lambda _, __, out: self._seen.append(out.last_hidden_state))
        self._checkpoint = folder / "checkpoint.pt"

    def run(self, *, every: int = 100, until: int | None = None) -> None:
        """Train from the last checkpoint to the end, or `until` a step; a checkpoint comes `every` so many steps."""
        start, end = self._restore(), min(self._steps, until or self._steps)
        self._model.train()
        began, sums = time.monotonic(), [0.0] * 4
        for step in range(start, end):
            losses = self._step(step)
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

    def _step(self, step: int) -> list[float]:
        for group in self._optimizer.param_groups:
            group["lr"] = _rate(step, self._steps)
        batch = self._batch(step)
        self._seen.clear()
        logits = self._model(**batch.inputs, use_cache=False).logits[:, :-1]
        token_losses = functional.cross_entropy(
            logits.flatten(0, 1), batch.labels[:, 1:].flatten(), reduction="none", ignore_index=IGNORE
        )
        weights = batch.weights[:, 1:].flatten()
        answer = (token_losses * weights).sum() / weights.sum()
        patch, cell = self._heads(self._seen[0], batch)
        loss = answer + _PATCH_WEIGHT * patch + _CELL_WEIGHT * cell
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_([p for g in self._optimizer.param_groups for p in g["params"]], 1.0)
        self._optimizer.step()
        return [one.item() for one in (loss, answer, patch, cell)]

    def _batch(self, step: int) -> Batch:
        examples, wholes = [], []
        for k, rng in self._order(step):
            image, whole, truth = self._scenes(k)
            if rng.random() < 0.5:
                image, whole, truth = np.ascontiguousarray(image[:, ::-1]), whole[:, ::-1], mirrored(truth)
            examples.append(make_example(image, truth, rng))
            wholes.append(whole)
        return make_batch(examples, wholes, self._processor)

    def _order(self, step: int) -> Iterator[tuple[int, random.Random]]:
        """Scenes of a step, each with its own source of chance; the same however often the training is stopped."""
        for at in range(step * BATCH, (step + 1) * BATCH):
            epoch, place = divmod(at, self._count)
            yield (place * 7919 + epoch * 104729) % self._count, random.Random(f"{epoch} {place}")

    def _keep(self, step: int) -> None:
        state = {
            "step": step,
            "model": self._model.state_dict(),
            "heads": self._heads.state_dict(),
            "optimizer": self._optimizer.state_dict(),
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
        self._optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])


def _rate(step: int, steps: int) -> float:
    if step < WARM_UP:
        return PEAK_RATE * (step + 1) / WARM_UP
    share = (step - WARM_UP) / max(1, steps - WARM_UP)
    return LAST_RATE + 0.5 * (PEAK_RATE - LAST_RATE) * (1 + math.cos(math.pi * share))
