"""The model's own probability of each value of a choice, by a pass over all of them, in place of the masked process.

Masking renormalises token by token, so a value that begins like many others fares otherwise than in the model's own
distribution. Here each value is written out as the tokenizer writes it, and the whole of it is scored, up to what shows
that it goes on no further: a quote, the text that follows, or a token that ends the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel


def exact_choices(
    model: PreTrainedModel,
    inputs: Mapping[str, Any],
    before: Sequence[int],
    values: Mapping[str, Sequence[Sequence[int]]],
) -> dict[str, float]:
    """The probability of each value, given the prompt, the answer so far, and that it is one of them; one pass.

    Args:
        model: The model.
        inputs: Its inputs for the prompt, of one row.
        before: Tokens of the answer before the choice.
        values: Of each value, the tokens of each way to write it, one at least; their probabilities are added.
    """
    ways = [tokens for own in values.values() for tokens in own]
    batch = _repeated(inputs, [[*before, *tokens] for tokens in ways])
    with torch.inference_mode():
        logits = model(**batch, use_cache=False).logits.float()
    start = int(inputs["input_ids"].shape[-1]) + len(before)
    of_ways = iter(
        [_score(own[start - 1 : start - 1 + len(tokens)], tokens) for own, tokens in zip(logits, ways, strict=True)]
    )
    scores = [torch.stack([next(of_ways) for _ in own]).logsumexp(dim=0) for own in values.values()]
    return dict(zip(values, torch.stack(scores).softmax(dim=0).tolist(), strict=True))


def _score(logits: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    logs = logits.log_softmax(dim=-1)
    return logs[torch.arange(len(tokens)), torch.tensor(tokens)].sum()


def _repeated(inputs: Mapping[str, Any], rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """The inputs once for each row, whose tokens follow the prompt; what stands behind a shorter row has no effect."""
    longest = max(map(len, rows))
    ids = inputs["input_ids"]
    batch = {name: value.repeat(len(rows), *[1] * (value.dim() - 1)) for name, value in inputs.items()}
    added = ids.new_tensor([[*row, *[row[-1]] * (longest - len(row))] for row in rows])
    batch["input_ids"] = torch.cat([batch["input_ids"], added], dim=-1)
    for name, fill in (("attention_mask", torch.ones_like), ("mm_token_type_ids", torch.zeros_like)):
        if name in batch:
            batch[name] = torch.cat([batch[name], fill(added, dtype=batch[name].dtype)], dim=-1)
    return batch
