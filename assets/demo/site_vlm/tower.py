"""The first part of the training: the vision tower learns to see, from heads that are dropped after it."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from transformers import Idefics3ForConditionalGeneration

from drawn_site.rules import Truth

from .architecture import SCALE
from .batches import CELL_TARGETS, IGNORE, PATCH_TARGETS, PATCHES, Pictures, make_pictures
from .examples import Example, make_example, mirrored
from .training import Order, Phase

Image = NDArray[np.uint8]

_MIRRORED = 0.5
"""Share of the scenes that are shown turned left to right."""


class Scenes(Protocol):
    """Scenes to learn from."""

    @property
    def things(self) -> Sequence[int]:
        """How many things there are in each."""

    def __getitem__(self, index: int) -> tuple[Image, Image, Truth]:
        """A scene's picture, the same as `squeeze` makes it, and its truth."""


class Tower(Phase[Pictures]):
    """Trains the vision tower to say what stands in each patch and each cell, and what is wrong with it.

    Args:
        model: The model.
        heads: The heads, which learn as well.
        scenes: What it learns from.
        steps: Steps of this part.
        rate: Share of the usual learning rates.
        checkpoint: Where it is kept.
    """

    def __init__(
        self, model: Idefics3ForConditionalGeneration, heads: Heads, scenes: Scenes, *, steps: int, rate: float = 1.0,
        checkpoint: Path,
    ) -> None:  # fmt: skip
        self._tower, self._heads, self._scenes = model.model.vision_model, heads, scenes
        learning = nn.ModuleDict({"tower": self._tower, "heads": heads})
        super().__init__(learning, steps=steps, rate=rate, checkpoint=checkpoint)
        self._order = Order([0] * len(scenes.things))

    def _batch(self, step: int) -> Pictures:
        return ask_about(self._scenes, self._order(step))[1]

    def _losses(self, batch: Pictures) -> dict[str, torch.Tensor]:
        losses: dict[str, torch.Tensor] = self._heads(see(self._tower, batch), batch)
        return losses


def ask_about(scenes: Scenes, chosen: Iterable[tuple[int, random.Random]]) -> tuple[list[Example], Pictures]:
    """Questions about scenes, never the same twice, and their pictures.

    Args:
        scenes: The scenes.
        chosen: Which of them, each with its own source of chance.
    """
    examples, wholes = [], []
    for k, rng in chosen:
        image, whole, truth = scenes[k]
        if rng.random() < _MIRRORED:
            image, whole, truth = np.ascontiguousarray(image[:, ::-1]), whole[:, ::-1], mirrored(truth)
        examples.append(make_example(image, truth, rng))
        wholes.append(whole)
    return examples, make_pictures(examples, wholes)


def see(tower: nn.Module, batch: Pictures) -> torch.Tensor:
    """The tower's output for all pictures of a batch, (pictures, 256, width)."""
    shown = torch.arange(batch.pixels.shape[1]) < torch.tensor(batch.counts)[:, None]
    everywhere = torch.ones(sum(batch.counts), PATCHES, PATCHES, dtype=torch.bool)
    seen: torch.Tensor = tower(
        pixel_values=batch.pixels[shown], patch_attention_mask=everywhere, return_dict=True
    ).last_hidden_state
    return seen


class Heads(nn.Module):  # type: ignore[misc]
    """Linear heads on the vision tower's patches."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.ModuleDict({name: nn.Linear(width, len(labels)) for name, labels in PATCH_TARGETS.items()})
        self.cell = nn.ModuleDict(
            {name: nn.Linear(width * SCALE**2, len(labels)) for name, labels in CELL_TARGETS.items()}
        )

    def forward(self, seen: torch.Tensor, batch: Pictures) -> dict[str, torch.Tensor]:
        """Losses of patches and of cells.

        Args:
            seen: As `see` gives it.
            batch: The batch.
        """
        firsts = torch.tensor([0, *accumulate(batch.counts[:-1])])
        patches = [
            _loss(head(seen[firsts]), batch.patches[name], PATCH_TARGETS[name]) for name, head in self.patch.items()
        ]
        with_sheet = torch.tensor([k for k, count in enumerate(batch.counts) if count == 2], dtype=torch.long)
        side = PATCHES // SCALE
        sheets = seen[firsts[with_sheet] + 1].view(len(with_sheet), side, SCALE, side, SCALE, -1)
        cells = sheets.permute(0, 1, 3, 2, 4, 5).flatten(3).flatten(1, 2)
        known = {name: labels[with_sheet] for name, labels in batch.cells.items()}
        losses = [
            _loss(self.cell[name](cells), labels, CELL_TARGETS[name])
            for name, labels in known.items()
            if (labels != IGNORE).any()
        ]
        return {
            "patch": torch.stack(patches).sum(),
            "cell": torch.stack(losses).sum() if losses else seen.new_zeros(()),
        }


def _loss(logits: torch.Tensor, labels: torch.Tensor, weights: Sequence[float]) -> torch.Tensor:
    return functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), weight=torch.tensor(weights), ignore_index=IGNORE
    )
