"""What both parts of the training share: optimizers, learning rates, checkpoints, the order of lessons."""

from __future__ import annotations

import functools
import hashlib
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

BATCH, WARM_UP = 16, 100
MATRIX_RATE, REST_RATE, LAST_SHARE = 2e-2, 1.2e-3, 0.02
"""Learning rates of the layers' matrices and of all else, and what is left of them at the end."""

_SORTED = 8
"""Lessons of so many steps are sorted by their length, so that those of one step are about as long."""

B = TypeVar("B")


class Phase(ABC, Generic[B]):
    """A part of the training, which can be stopped and started again at any time.

    The layers' matrices are trained by Muon (Jordan 2024), all else by AdamW.

    Args:
        learning: What learns, with its heads.
        steps: Steps of this part.
        rate: Share of the usual learning rates.
        checkpoint: Where it is kept.
        gently: Parts of the names of matrices that AdamW trains too, for Muon's first steps undo what they begin with.

    Raises:
        ValueError: As it runs, if the checkpoint is of another recipe.
    """

    def __init__(
        self, learning: nn.Module, *, steps: int, rate: float = 1.0, checkpoint: Path, gently: Sequence[str] = ()
    ) -> None:
        self._learning, self._steps, self._checkpoint = learning, steps, checkpoint
        self._recipe = f"{_sources()} {steps} {rate}"
        matrices = [
            p
            for name, p in learning.named_parameters()
            if ".layers." in name and p.ndim == 2 and not any(part in name for part in gently)
        ]
        chosen = {id(p) for p in matrices}
        rest = [p for p in learning.parameters() if id(p) not in chosen]
        self._optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(matrices, weight_decay=0.01), rate * MATRIX_RATE),
            (torch.optim.AdamW(rest, weight_decay=0.03, betas=(0.9, 0.98)), rate * REST_RATE),
        ]

    @abstractmethod
    def _batch(self, step: int) -> B:
        """The lessons of a step; called in a thread of its own."""

    @abstractmethod
    def _losses(self, batch: B) -> dict[str, torch.Tensor]:
        """Losses by name, of which the sum is made small."""

    def _kept(self) -> None:
        """Called when this part, or as much of it as was wanted, is done."""

    def run(self, *, every: int = 100, until: int | None = None) -> None:
        """Train from the last checkpoint to the end, or `until` a step; a checkpoint comes `every` so many steps."""
        start, end = self._restore(), self._steps if until is None else min(self._steps, until)
        self._learning.train()
        began, sums = time.monotonic(), dict[str, float]()
        for step, batch in self._batches(start, end):
            for name, loss in self._step(step, batch).items():
                sums[name] = sums.get(name, 0.0) + loss
            if (step + 1) % 50 == 0:
                rate = (step + 1 - start) * BATCH / (time.monotonic() - began)
                told = " ".join(f"{name} {total / 50:.3f}" for name, total in sums.items())
                print(f"{self._checkpoint.stem} {step + 1}/{self._steps} {told} {rate:.1f}/s", flush=True)
                sums = {}
            if (step + 1) % every == 0 or step + 1 == end:
                self._keep(step + 1)
        self._kept()

    def _step(self, step: int, batch: B) -> dict[str, float]:
        losses = self._losses(batch)
        for optimizer, rate in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
            for group in optimizer.param_groups:
                group["lr"] = rate * _share(step, self._steps)
        torch.stack(list(losses.values())).sum().backward()
        nn.utils.clip_grad_norm_(self._learning.parameters(), 1.0)
        for optimizer, _ in self._optimizers:
            optimizer.step()
        return {name: loss.item() for name, loss in losses.items()}

    def _batches(self, start: int, end: int) -> Iterator[tuple[int, B]]:
        """Steps and their batches, each made while the one before is learned from."""
        with ThreadPoolExecutor(1) as ahead:
            coming = ahead.submit(self._batch, start)
            for step in range(start, end):
                batch = coming.result()
                coming = ahead.submit(self._batch, min(step + 1, end - 1))
                yield step, batch

    def _keep(self, step: int) -> None:
        state = {
            "recipe": self._recipe,
            "step": step,
            "learning": self._learning.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self._optimizers],
        }
        new = self._checkpoint.with_suffix(".new")
        torch.save(state, new)
        new.replace(self._checkpoint)

    def _restore(self) -> int:
        if not self._checkpoint.exists():
            return 0
        state: dict[str, Any] = torch.load(self._checkpoint, weights_only=True)
        if state.get("recipe") != self._recipe:
            raise ValueError(f"{self._checkpoint} is of another recipe; delete its folder, or name another one")
        self._learning.load_state_dict(state["learning"])
        for (optimizer, _), one in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(one)
        return int(state["step"])


class Order:
    """Which lessons a step has; the same however often the training is stopped.

    Each lesson comes once an epoch.

    Args:
        lengths: Of each lesson.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths = lengths
        self._epoch = functools.lru_cache(maxsize=2)(self._shuffled)

    def __call__(self, step: int) -> list[tuple[int, random.Random]]:
        """The lessons of a step, each with its own source of chance."""
        group, place = divmod(step, _SORTED)
        lessons = [self._lesson(at) for at in range(group * _SORTED * BATCH, (group + 1) * _SORTED * BATCH)]
        lessons.sort(key=lambda lesson: self._lengths[lesson[0]])
        place = random.Random(group).sample(range(_SORTED), _SORTED)[place]
        return [(k, random.Random(chance)) for k, chance in lessons[place * BATCH : (place + 1) * BATCH]]

    def _lesson(self, at: int) -> tuple[int, str]:
        epoch, place = divmod(at, len(self._lengths))
        return self._epoch(epoch)[place], f"{epoch} {place}"

    def _shuffled(self, epoch: int) -> list[int]:
        return random.Random(epoch).sample(range(len(self._lengths)), len(self._lengths))


@functools.cache
def _sources() -> str:
    """Changes with the code of the training."""
    paths = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _share(step: int, steps: int) -> float:
    """Share of the full learning rate: soon all of it, from the middle on less and less."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    late = max(0.0, 2 * step / steps - 1)
    return LAST_SHARE + 0.5 * (1 - LAST_SHARE) * (1 + math.cos(math.pi * late))
