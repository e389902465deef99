"""Which tokens may come next: llguidance matchers, compiled once per shape of a schema, and the logits they leave."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from transformers import LogitsProcessor, PreTrainedTokenizerFast

from hazardlens.errors import ConstraintError, SchemaError, WeightsError
from hazardlens.schema import GroundedSchema
from hazardlens.schema.closing import Following
from hazardlens.vlm.session import MaskSession, written

_COMPILED_AT_MOST = 64
_PLACES_KEPT = 1_000_000
"""Places of all compiled shapes together; each takes about a kilobyte."""
_PLACES_OF_ENDLESS = 50_000


class MaskProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers is not typed
    """Sets the logits of tokens that cannot lead to a valid answer to minus infinity.

    As a `LogitsProcessor` it runs after penalties and before temperature and top-k/p, so sampling renormalises what the
    mask leaves.

    Args:
        session: The mask of one answer.
        free: Gives what may be written while the model reasons freely, shape (vocabulary,), else None; None for never.
    """

    def __init__(self, session: MaskSession, *, free: Callable[[], torch.Tensor | None] | None = None) -> None:
        self._session = session
        self._free = free

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask `scores`, shape (1, vocabulary).

        Raises:
            ConstraintError: If the mask is narrower than the logits, for more than one row, or if nothing is left.
        """
        freely = self._free() if self._free else None
        allowed = (self._session.allowed() if freely is None else freely).to(scores.device)
        if scores.shape != (1, len(allowed)):
            raise ConstraintError(f"logits: expected shape (1, {len(allowed)}), got {tuple(scores.shape)}")
        masked = scores.masked_fill(~allowed, -torch.inf)
        if not math.isfinite(float(masked.max())):
            raise ConstraintError("the model gave no finite logit to any token that the mask allows")
        if freely is None:
            self._session.look(scores, allowed)
        return masked


class MaskFactory:
    """Compiles schemas for one tokenizer; a compiled shape is copied for each answer.

    Args:
        tokenizer: A fast tokenizer.
        vocab_rows: Rows of the model's output layer, at least the tokenizer's size.
        eos_token_ids: Tokens that end an answer.

    Raises:
        WeightsError: If the tokenizer is not a fast one.
    """

    def __init__(self, tokenizer: Any, *, vocab_rows: int, eos_token_ids: Sequence[int]) -> None:
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise WeightsError(
                f"the tokenizer is a {type(tokenizer).__name__}, which the mask cannot read",
                help="Use a model with a fast tokenizer (a tokenizer.json in its folder).",
            )
        self._tokenizer: LLTokenizer = from_tokenizer(tokenizer, n_vocab=vocab_rows, eos_token=list(eos_token_ids))
        self._ends = frozenset(eos_token_ids)
        self._text = torch.zeros(vocab_rows, dtype=torch.bool)
        self._text[: min(len(tokenizer), vocab_rows)] = True
        special = [token for token, added in tokenizer.added_tokens_decoder.items() if added.special]
        self._text[[token for token in special if token < vocab_rows]] = False
        self._text[list(eos_token_ids)] = True
        self._compiled: OrderedDict[Hashable, tuple[LLMatcher, Following]] = OrderedDict()

    def session(self, schema: GroundedSchema) -> MaskSession:
        """A fresh mask for one answer.

        Raises:
            SchemaError: If the schema does not compile for this tokenizer.
        """
        matcher, closing = self._ready(schema)
        return MaskSession(matcher.deep_copy(), closing, self._tokenizer, self._ends)

    @property
    def free_text(self) -> torch.Tensor:
        """Tokens of text and those that end it, shape (vocabulary,), bool; no control or image tokens."""
        return self._text

    def shortest_tokens(self, schema: GroundedSchema) -> int:
        """Least token budget at which every answer is complete, as of `GroundedSchema.shortest_tokens`.

        Raises:
            SchemaError: If the schema does not compile for this tokenizer.
        """
        closing = self._ready(schema)[1]
        return closing.need(closing.start).tokens

    def _ready(self, schema: GroundedSchema) -> tuple[LLMatcher, Following]:
        if schema.key not in self._compiled:
            self._compiled[schema.key] = self._compile(schema), schema.closing(self.count_tokens)
        self._compiled.move_to_end(schema.key)
        while len(self._compiled) > 1 and self._is_too_much():
            self._compiled.popitem(last=False)
        matcher, closing = self._compiled[schema.key]
        if schema.longest_bytes is None and closing.size > _PLACES_OF_ENDLESS:
            # Answers that may nest or go on without end have places without end.
            closing = schema.closing(self.count_tokens)
            self._compiled[schema.key] = matcher, closing
        return matcher, closing

    def _is_too_much(self) -> bool:
        places = sum(closing.size for _, closing in self._compiled.values())
        return len(self._compiled) > _COMPILED_AT_MOST or places > _PLACES_KEPT

    def _compile(self, schema: GroundedSchema) -> LLMatcher:
        matcher = LLMatcher(self._tokenizer, schema.grammar(), log_level=0)
        matcher.compute_ff_tokens()
        matcher.compute_bitmask()
        if matcher.is_error():
            raise SchemaError(f"the schema cannot be compiled for {schema.count} detections: {matcher.get_error()}")
        return matcher

    def write(self, text: bytes) -> list[int]:
        """The tokens of `text`."""
        return written(self._tokenizer, text)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`; bytes of a character that was cut are replaced."""
        raw: bytes = self._tokenizer.decode_bytes(list(tokens))
        return raw.decode("utf-8", errors="replace")

    def count_tokens(self, text: str | bytes) -> int:
        """How many tokens `text` is written in."""
        return len(written(self._tokenizer, text if isinstance(text, bytes) else text.encode()))
