"""Jump-forward decoding: one model step per real choice, everything that the mask forces is appended at once.

A loop to hand to `transformers`' `generate(custom_generate=...)`, so that each model's own preparation of inputs, cache
and positions stays in use. The idea is SGLang's compressed finite state machine (Zheng et al., 2024); the forced tokens
come from llguidance, in the tokenizer's own canonical form.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from hazardlens.errors import ConstraintError
from hazardlens.vlm.mask import MaskSession


@dataclass(kw_only=True, slots=True)
class Decoding:
    """One answer while it is decoded.

    Attributes:
        session: The mask of this answer.
        generator: Source of randomness where tokens are sampled.
        max_new_tokens: Tokens that the answer may take.
        deadline: `time.monotonic()` after which to give up, or None.
        stop: Set by another thread to give up at once.
        tokens: Tokens of the answer so far, without an end token.
        model_steps: Forward passes so far, the prompt's included.
        complete: Whether the answer is whole.
    """

    session: MaskSession
    generator: torch.Generator
    max_new_tokens: int
    deadline: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    tokens: list[int] = field(default_factory=list)
    model_steps: int = 0
    complete: bool = False

    def take(self, tokens: list[int]) -> list[int]:
        """Append as many of `tokens` as the budget allows and return them."""
        room = self.max_new_tokens - len(self.tokens)
        self.complete = self.session.finished and len(tokens) <= room
        self.tokens += tokens[:room]
        return tokens[:room]

    @property
    def over(self) -> bool:
        """Whether no further token can come."""
        return self.complete or self.session.finished or len(self.tokens) >= self.max_new_tokens

    def check_time(self) -> None:
        """Raise TimeoutError once the deadline has passed or the answer is no longer wanted."""
        if self.stop.is_set():
            raise TimeoutError("stopped before the answer was complete")
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise TimeoutError(f"no complete answer in time: {len(self.tokens)} tokens so far")


def jump_forward(
    model: PreTrainedModel,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    decoding: Decoding,
    **model_kwargs: Any,
) -> torch.Tensor:
    """Decode one answer into `decoding`; a `custom_generate` for `PreTrainedModel.generate`.

    Args:
        model: The model, handed in by `generate`.
        input_ids: The prompt, shape (1, tokens).
        logits_processor: Penalties, a `MaskProcessor` of `decoding.session`, then temperature and top-k/p.
        stopping_criteria: Not used: the mask and the budget of `decoding` end the answer.
        generation_config: Says whether to sample (`do_sample`).
        decoding: Where mask, budget and result live.
        **model_kwargs: The model's own inputs, cache included.

    Returns:
        Prompt and answer, shape (1, tokens).

    Raises:
        ConstraintError: For more than one row, for beams, or if no token is left to choose.
        TimeoutError: If the deadline passes.
    """
    if input_ids.shape[0] != 1 or generation_config.num_beams not in (None, 1):
        raise ConstraintError("masked decoding takes one sequence at a time, without beams")
    device = input_ids.device
    new = decoding.take(decoding.session.forced())
    ids = _append(input_ids, new)
    model_kwargs = _extend(model, {}, model_kwargs, len(new))
    decoding.check_time()
    outputs = model._prefill(ids, generation_config, model_kwargs)
    decoding.model_steps += 1
    while not decoding.over:
        logits = outputs.logits[:, -1].to(copy=True, dtype=torch.float32, device=device)
        token = _choose(logits_processor(ids, logits), generation_config, decoding.generator)
        decoding.session.consume([token])
        if token in _end_tokens(generation_config) and decoding.session.finished:
            decoding.complete = True
            break
        new = decoding.take([token, *decoding.session.forced()])
        ids = _append(ids, new)
        if decoding.over:
            break
        decoding.check_time()
        model_kwargs = _extend(model, outputs, model_kwargs, len(new))
        inputs = model.prepare_inputs_for_generation(ids, next_sequence_length=len(new), **model_kwargs)
        outputs = model(**inputs, return_dict=True)
        decoding.model_steps += 1
    return ids


def _append(ids: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    return torch.cat([ids, ids.new_tensor([tokens])], dim=-1) if tokens else ids


def _extend(model: PreTrainedModel, outputs: Any, model_kwargs: dict[str, Any], count: int) -> dict[str, Any]:
    if not count:
        return model_kwargs
    extended: dict[str, Any] = model._update_model_kwargs_for_generation(outputs, model_kwargs, num_new_tokens=count)
    return extended


def _choose(scores: torch.Tensor, generation_config: GenerationConfig, generator: torch.Generator) -> int:
    if not generation_config.do_sample:
        return int(scores.argmax(dim=-1))
    probabilities = scores.softmax(dim=-1).to(generator.device)
    return int(torch.multinomial(probabilities, 1, generator=generator))


def _end_tokens(generation_config: GenerationConfig) -> tuple[int, ...]:
    ids = generation_config.eos_token_id
    return tuple(ids) if isinstance(ids, list) else (ids,)
