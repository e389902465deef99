"""Jump-forward decoding: one model step per real choice, everything that the mask forces is appended at once.

A loop to hand to `transformers`' `generate(custom_generate=...)`, so that each model's own preparation of inputs, cache
and positions stays in use. The idea is SGLang's compressed finite state machine (Zheng et al., 2024); the forced tokens
come from llguidance, in the tokenizer's own canonical form. Where an earlier answer is at hand, a step tries several
choices at once (`draft.py`).
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList
from transformers.cache_utils import Cache, DynamicLayer

from hazardlens.errors import ConstraintError
from hazardlens.vlm.draft import Draft
from hazardlens.vlm.session import MaskSession

_NOT_SET = (None, False)
_OTHER_MODES: dict[str, tuple[object, ...]] = {
    "num_beams": (None, 1),
    "num_return_sequences": (None, 1),
    "penalty_alpha": (None, 0),
    "prompt_lookup_num_tokens": _NOT_SET,
    "assistant_early_exit": _NOT_SET,
    "dola_layers": _NOT_SET,
    "guidance_scale": (None, 1),
}
"""Settings of transformers' `generate` under which tokens are chosen otherwise, and their values where they are off."""
_OTHER_CACHE = "paged"
"""Cache of transformers' continuous batching, which has a loop of its own."""


@dataclass(kw_only=True, slots=True)
class Reasoning:
    """A free stretch ahead of an answer.

    Attributes:
        most: Tokens that it may take; the model may end it sooner, by a token that ends an answer.
        separator: Tokens that are written between it and the answer.
        tokens: Its tokens so far.
        is_over: Whether the answer has begun.
    """

    most: int
    separator: list[int]
    tokens: list[int] = field(default_factory=list)
    is_over: bool = False


@dataclass(kw_only=True, slots=True)
class Decoding:
    """One answer while it is decoded.

    Attributes:
        session: The mask of this answer.
        generator: Source of randomness where tokens are sampled.
        max_new_tokens: Tokens that the answer may take; free text and optional parts end in time for it.
        is_bounded: Whether that could be less than the longest answer, so that somebody must look after it.
        deadline: `time.monotonic()` after which to give up, or None.
        stop: Set by another thread to give up at once.
        tokens: Tokens of the answer so far, without an end token.
        model_steps: Forward passes so far, the prompt's included.
        complete: Whether the answer is whole.
        cut_at: How many tokens were written when the budget first overruled the model or the tokenizer, or None.
        reasoning: The free stretch ahead of the answer, or None; its tokens do not count as the answer's.
        draft: Gives what the answer may go on with, or None to go on choice by choice.
    """

    session: MaskSession
    generator: torch.Generator
    max_new_tokens: int
    is_bounded: bool = True
    deadline: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    tokens: list[int] = field(default_factory=list)
    model_steps: int = 0
    complete: bool = False
    cut_at: int | None = None
    reasoning: Reasoning | None = None
    draft: Draft | None = None

    @property
    def is_reasoning(self) -> bool:
        """Whether the free stretch is still going on."""
        return self.reasoning is not None and not self.reasoning.is_over

    @property
    def before(self) -> list[int]:
        """Tokens between the prompt and the answer."""
        return [*self.reasoning.tokens, *self.reasoning.separator] if self.reasoning else []

    @property
    def generated(self) -> int:
        """Tokens so far, those of the free stretch included."""
        return len(self.tokens) + (len(self.reasoning.tokens) if self.reasoning else 0)

    @property
    def room(self) -> int:
        """Tokens that may still come."""
        return self.max_new_tokens - len(self.tokens)

    @property
    def over(self) -> bool:
        """Whether no further token can come."""
        return not self.is_reasoning and (self.complete or self.session.finished or self.room <= 0)

    def foreseen(self, missed: int) -> list[int]:
        """What the answer may go on with, now that so many tokens of the last such draft were wrong."""
        if self.draft is None or self.is_reasoning:
            return []
        return self.draft.after(self.tokens, missed=missed)[: self.room]

    def fits(self, tokens: list[int]) -> bool:
        """Whether the answer can still be completed within the budget once `tokens` are written."""
        # A token is a byte at least, so where the budget holds the longest answer there is nothing to look up.
        # What ends the answer is allowed only where it is complete, and takes no room.
        is_free = not self.is_bounded or not self.session.without_end(tokens)
        return is_free or self.session.need_after(tokens) <= self.room - len(tokens)

    def advance(self, scores: torch.Tensor, *, sample: bool) -> list[int]:
        """Write on by `scores`, shape (1, vocabulary), and return all that was written.

        Raises:
            ConstraintError: If no token is left to choose.
        """
        if self.reasoning is None or self.reasoning.is_over:
            return self.take(self.pick(scores, sample=sample))
        new = self.session.without_end([_choose(scores, self.generator, sample=sample)])
        self.reasoning.tokens += new
        if new and len(self.reasoning.tokens) < self.reasoning.most:
            return new
        self.reasoning.is_over = True
        return [*new, *self.reasoning.separator, *self.begin()]

    def begin(self) -> list[int]:
        """Append what the answer begins with, and return it.

        Raises:
            ConstraintError: If the budget is less than an answer needs.
        """
        if self.is_bounded and self.session.need > self.room:
            raise ConstraintError(f"an answer needs up to {self.session.need} tokens, the budget is {self.room}")
        return self.take(self._forced())

    def take(self, tokens: list[int]) -> list[int]:
        """Append `tokens` and all that follows without a choice; return what was appended."""
        before = len(self.tokens)
        while tokens:
            self.session.consume(tokens)
            self.tokens += self.session.without_end(tokens)
            tokens = self._forced()
        self.complete = self.session.finished or (self.room <= 0 and self.session.may_end)
        return self.tokens[before:]

    def _forced(self) -> list[int]:
        tokens = self.session.forced()
        if not tokens or self.fits(tokens):
            return tokens
        self._note_cut()
        return self.session.run()

    def _note_cut(self) -> None:
        self.cut_at = len(self.tokens) if self.cut_at is None else self.cut_at

    def pick(self, scores: torch.Tensor, *, sample: bool) -> list[int]:
        """The token to write next, by `scores`, shape (1, vocabulary), or what ends free text where room runs out.

        A token after which the answer could not be completed any more is replaced: by the text that comes next on the
        shortest way to the end where there is no verdict to give, else by the next token that is drawn; once none is
        left of those that top-k or top-p chose, by any that the mask allows.

        Raises:
            ConstraintError: If no token is left to choose.
        """
        taken, are_refused = self._drawn(scores, sample=sample)
        if are_refused and not taken:
            taken, _ = self._drawn(self.session.possible(), sample=sample)
        if not taken:
            raise ConstraintError(f"no token is left that completes the answer within {self.max_new_tokens} tokens")
        return taken

    def _drawn(self, scores: torch.Tensor, *, sample: bool) -> tuple[list[int], bool]:
        """What to write next, nothing where nothing fits, and whether the budget refused a token."""
        are_refused = False
        while math.isfinite(float(scores.max())):
            token = _choose(scores, self.generator, sample=sample)
            taken = [token]
            if not self.fits(taken):
                are_refused = True
                self._note_cut()
                taken = self.session.run()
            if taken:
                self.session.weigh(scores[0], taken, self.fits)
                return taken, are_refused
            scores[0, token] = -torch.inf
        return [], are_refused

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
        ConstraintError: For more than one row, for beams and other modes of the kind, or if no token is left to choose.
        TimeoutError: If the deadline passes.
    """
    _check_mode(input_ids, generation_config)
    if not _can_forget(model_kwargs.get("cache")):
        decoding.draft = None
    device = input_ids.device
    new = [] if decoding.is_reasoning else decoding.begin()
    ids = _append(input_ids, new)
    model_kwargs = _extend(model, {}, model_kwargs, len(new))
    decoding.check_time()
    outputs = model._prefill(ids, generation_config, model_kwargs)
    decoding.model_steps += 1
    ahead, since = list[int](), 0  # what of a draft the model has read beyond `ids`; tokens since its last pass
    while not decoding.over:
        logits = outputs.logits[:, -1 - len(ahead)].to(copy=True, dtype=torch.float32, device=device)
        scores = logits_processor(ids, logits)
        new = decoding.advance(scores, sample=bool(generation_config.do_sample))
        ids, since = _append(ids, new), since + len(new)
        if decoding.over:
            break
        decoding.check_time()
        kept = _alike(new, ahead)
        ahead = ahead[kept:]
        if kept == len(new):
            continue
        if ahead:
            model_kwargs["cache"].crop(-len(ahead))
        model_kwargs = _extend(model, outputs, model_kwargs, since)
        ahead, since = decoding.foreseen(len(ahead)), 0
        inputs = model.prepare_inputs_for_generation(
            _append(ids, ahead),
            next_sequence_length=len(new) - kept + len(ahead),
            **_extend(model, {}, dict(model_kwargs), len(ahead)),
        )
        if "logits_to_keep" in inputs:
            inputs["logits_to_keep"] = 1 + len(ahead)
        outputs = model(**inputs, return_dict=True)
        decoding.model_steps += 1
    return ids


def _check_mode(input_ids: torch.Tensor, config: GenerationConfig) -> None:
    """Refuse what would leave the mask behind: several rows, or tokens that the loop does not choose one by one."""
    asked = {name: getattr(config, name, None) for name in _OTHER_MODES}
    wrong = [f"{name}={value}" for name, value in asked.items() if value not in _OTHER_MODES[name]]
    if config.cache_implementation == _OTHER_CACHE:
        wrong.append(f"cache_implementation={_OTHER_CACHE}")
    if input_ids.shape[0] != 1:
        wrong.insert(0, f"{input_ids.shape[0]} rows")
    if wrong:
        raise ConstraintError(f"masked decoding takes one sequence at a time, token by token, not {', '.join(wrong)}")


def _can_forget(cache: object) -> bool:
    """Whether a cache keeps each token by itself; a window that slid on, or a state, cannot go back."""
    return isinstance(cache, Cache) and all(type(layer) is DynamicLayer for layer in cache.layers)


def _alike(one: list[int], other: list[int]) -> int:
    """How many of their first tokens are the same."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _append(ids: torch.Tensor, tokens: list[int]) -> torch.Tensor:
    return torch.cat([ids, ids.new_tensor([tokens])], dim=-1) if tokens else ids


def _extend(model: PreTrainedModel, outputs: Any, model_kwargs: dict[str, Any], count: int) -> dict[str, Any]:
    if not count:
        return model_kwargs
    extended: dict[str, Any] = model._update_model_kwargs_for_generation(outputs, model_kwargs, num_new_tokens=count)
    return extended


def _choose(scores: torch.Tensor, generator: torch.Generator, *, sample: bool) -> int:
    if not sample:
        return int(scores.argmax(dim=-1))
    probabilities = scores.softmax(dim=-1).to(generator.device)
    return int(torch.multinomial(probabilities, 1, generator=generator))
