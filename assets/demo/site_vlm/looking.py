"""What the language model is asked of the pictures while it learns, besides the answer; by heads that are dropped."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from drawn_site.rules import SEVERITIES, ThingTruth, Truth

from .batches import HAZARDS

_NUMBER = re.compile('(?:-Ġ(?=[0-9]+:)|"id":Ġ)([0-9]+)')
"""How an object's line in a prompt begins, and its verdict in an answer, as byte-level tokens spell it."""
_WORKERS = 10
_PRESENT_WEIGHT = 2.0
_RARE = 3.0


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What is to be seen in the pictures of B questions about N objects."""

    ends: torch.Tensor
    """Where each prompt ends, (B,)."""
    present: torch.Tensor
    """Whether each hazard but `none` is there, (B, hazards - 1)."""
    workers: torch.Tensor
    """How many there are, (B,)."""
    lines: torch.Tensor
    """Question, and place of an object's number: where its line begins, and where its verdict does, (N, 2)."""
    wrong: torch.Tensor
    """Each object's hazard, (N,)."""
    rank: torch.Tensor
    """Its severity, (N,)."""


def look(
    lessons: Sequence[tuple[list[int], Sequence[ThingTruth], Truth]],
    words: torch.Tensor,
    tokenizer: PreTrainedTokenizerFast,
) -> Looked:
    """What is to be seen.

    Args:
        lessons: Tokens of the prompt, the things asked about, the truth.
        words: The prompts with their answers, if any, (B, T).
        tokenizer: The model's.
    """
    found = [
        (k, place, things[number].verdict)
        for k, (_, things, _) in enumerate(lessons)
        for place, number in _numbers(words[k].tolist(), tokenizer)
    ]
    lines, verdicts = [[k, place] for k, place, _ in found], [verdict for _, _, verdict in found]
    return Looked(
        ends=torch.tensor([len(prompt) - 1 for prompt, _, _ in lessons]),
        present=torch.tensor([_present(truth) for _, _, truth in lessons]),
        workers=torch.tensor([_workers(truth) for _, _, truth in lessons]),
        lines=torch.tensor(lines, dtype=torch.long).reshape(len(verdicts), 2),
        wrong=torch.tensor([HAZARDS.index(verdict.hazard) for verdict in verdicts], dtype=torch.long),
        rank=torch.tensor([SEVERITIES.index(verdict.severity) for verdict in verdicts], dtype=torch.long),
    )


class LookingHeads(nn.Module):  # type: ignore[misc]
    """Say at a prompt's end which hazards and how many workers there are, at an object's number what holds for it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.present = nn.Linear(width, len(HAZARDS) - 1)
        self.workers = nn.Linear(width, _WORKERS)
        self.hazard = nn.ModuleDict({name: _head(width, len(HAZARDS)) for name in ("asked", "answered")})
        self.rank = nn.ModuleDict({name: _head(width, len(SEVERITIES)) for name in ("asked", "answered")})

    def forward(self, hidden: torch.Tensor, early: torch.Tensor, looked: Looked) -> dict[str, torch.Tensor]:
        """Losses.

        Args:
            hidden: The language model's output, (B, T, width).
            early: The same of an earlier layer, which is asked about the lines of the prompt.
            looked: What is true.
        """
        ends = hidden[torch.arange(len(hidden)), looked.ends]
        present = functional.binary_cross_entropy_with_logits(self.present(ends), looked.present)
        losses = {
            "present": _PRESENT_WEIGHT * present,
            "workers": functional.cross_entropy(self.workers(ends), looked.workers),
        }
        answered = looked.lines[:, 1] > looked.ends[looked.lines[:, 0]]
        for name, which, said in (("asked", ~answered, early), ("answered", answered, hidden)):
            if which.any():
                lines = said[looked.lines[which, 0], looked.lines[which, 1]]
                losses[f"{name} hazard"] = _loss(self.hazard[name](lines), looked.wrong[which])
                losses[f"{name} rank"] = _loss(self.rank[name](lines), looked.rank[which])
        return losses


def _head(width: int, labels: int) -> nn.Module:
    return nn.Sequential(nn.RMSNorm(width), nn.Linear(width, labels))


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy in which all labels but the first, which says that nothing is wrong, count more."""
    weights = torch.tensor([1.0] + [_RARE] * (logits.shape[1] - 1))
    return functional.cross_entropy(logits, labels, weight=weights)


def _numbers(tokens: list[int], tokenizer: PreTrainedTokenizerFast) -> list[tuple[int, int]]:
    """Where the numbers of objects stand, and which they are."""
    pieces = tokenizer.convert_ids_to_tokens(tokens)
    ends = list(accumulate(map(len, pieces)))
    return [(bisect_left(ends, match.end()), int(match[1])) for match in _NUMBER.finditer("".join(pieces))]


def _present(truth: Truth) -> list[float]:
    verdicts = [effect.verdict for effect in truth.effects]
    verdicts += [verdict for thing in truth.things for verdict in thing.verdicts]
    there = {verdict.hazard for verdict in verdicts}
    return [float(hazard in there) for hazard in HAZARDS[1:]]


def _workers(truth: Truth) -> int:
    return min(_WORKERS - 1, sum(thing.kind == "worker" for thing in truth.things))
