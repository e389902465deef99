"""What the language model is asked of the pictures while it learns, besides the answer; by heads that are dropped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

from drawn_site.rules import SEVERITIES, ThingTruth, Truth

from .batches import HAZARDS

_LINE = re.compile("-Ġ[0-9]+:[^Ċ]*")
"""An object's line in a prompt, as byte-level tokens spell it."""
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
    """Question, and place of the last token of the object's line, (N, 2)."""
    wrong: torch.Tensor
    """Each object's hazard, (N,)."""
    rank: torch.Tensor
    """Its severity, (N,)."""


def look(
    lessons: Sequence[tuple[list[int], Sequence[ThingTruth], Truth]], tokenizer: PreTrainedTokenizerFast
) -> Looked:
    """What is to be seen.

    Args:
        lessons: Tokens of the prompt, the things asked about, the truth.
        tokenizer: The model's.
    """
    lines = [[k, place] for k, (prompt, _, _) in enumerate(lessons) for place in _line_ends(prompt, tokenizer)]
    verdicts = [thing.verdict for _, things, _ in lessons for thing in things]
    return Looked(
        ends=torch.tensor([len(prompt) - 1 for prompt, _, _ in lessons]),
        present=torch.tensor([_present(truth) for _, _, truth in lessons]),
        workers=torch.tensor([_workers(truth) for _, _, truth in lessons]),
        lines=torch.tensor(lines, dtype=torch.long).reshape(len(verdicts), 2),
        wrong=torch.tensor([HAZARDS.index(verdict.hazard) for verdict in verdicts], dtype=torch.long),
        rank=torch.tensor([SEVERITIES.index(verdict.severity) for verdict in verdicts], dtype=torch.long),
    )


class LookingHeads(nn.Module):  # type: ignore[misc]
    """Say at a prompt's end which hazards and how many workers there are, at a line's end what is wrong and how bad."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.present = nn.Linear(width, len(HAZARDS) - 1)
        self.workers = nn.Linear(width, _WORKERS)
        self.wrong = nn.Linear(width, len(HAZARDS))
        self.rank = nn.Linear(width, len(SEVERITIES))

    def forward(self, hidden: torch.Tensor, looked: Looked) -> dict[str, torch.Tensor]:
        """Losses.

        Args:
            hidden: The language model's output, (B, T, width).
            looked: What is true.
        """
        ends = hidden[torch.arange(len(hidden)), looked.ends]
        present = functional.binary_cross_entropy_with_logits(self.present(ends), looked.present)
        losses = {
            "present": _PRESENT_WEIGHT * present,
            "workers": functional.cross_entropy(self.workers(ends), looked.workers),
        }
        if len(looked.wrong):
            lines = hidden[looked.lines[:, 0], looked.lines[:, 1]]
            losses["wrong"] = _loss(self.wrong(lines), looked.wrong)
            losses["rank"] = _loss(self.rank(lines), looked.rank)
        return losses


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy in which all labels but the first, which says that nothing is wrong, count more."""
    weights = torch.tensor([1.0] + [_RARE] * (logits.shape[1] - 1))
    return functional.cross_entropy(logits, labels, weight=weights)


def _line_ends(prompt: list[int], tokenizer: PreTrainedTokenizerFast) -> list[int]:
    """The last token of each object's line."""
    pieces = tokenizer.convert_ids_to_tokens(prompt)
    ends = list(accumulate(map(len, pieces)))
    return [next(k for k, end in enumerate(ends) if end >= line.end()) for line in _LINE.finditer("".join(pieces))]


def _present(truth: Truth) -> list[float]:
    verdicts = [effect.verdict for effect in truth.effects]
    verdicts += [verdict for thing in truth.things for verdict in thing.verdicts]
    there = {verdict.hazard for verdict in verdicts}
    return [float(hazard in there) for hazard in HAZARDS[1:]]


def _workers(truth: Truth) -> int:
    return min(_WORKERS - 1, sum(thing.kind == "worker" for thing in truth.things))
