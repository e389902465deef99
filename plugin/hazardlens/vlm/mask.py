"""Which tokens may come next: llguidance matchers, compiled once per shape of a schema, and the logits they leave."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from transformers import LogitsProcessor, PreTrainedTokenizerFast

from hazardlens.errors import ConstraintError, SchemaError, WeightsError
from hazardlens.schema import GroundedSchema
from hazardlens.schema.closing import Choices, Following
from hazardlens.vlm.confidence import Options, Tokens, Verdicts, tells_apart

_COMPILED_AT_MOST = 64
_PLACES_KEPT = 1_000_000
"""Places of all compiled shapes together; each takes about a kilobyte."""
_PLACES_OF_ENDLESS = 50_000
_NO_TEXT = b"\xff"
"""Stands for the end of an answer; no text holds this byte."""


class MaskSession:
    """The mask of one answer: allowed tokens, forced tokens, what is still needed, and whether the answer is complete.

    Args:
        matcher: A fresh matcher, owned by this session alone.
        closing: What an answer of this schema needs from each of its places.
        words: The tokenizer.
        ends: Tokens that end an answer.

    Attributes:
        verdicts: How sure the model is of each choice that it made so far.
    """

    def __init__(self, matcher: LLMatcher, closing: Following, words: LLTokenizer, ends: frozenset[int]) -> None:
        self._ends = ends
        self.verdicts = Verdicts()
        self._matcher = matcher
        self._closing = closing
        self._words = words
        self._place = closing.start
        self._seen: tuple[torch.Tensor, torch.Tensor] | None = None

    @property
    def finished(self) -> bool:
        """Whether the answer is complete and nothing may follow."""
        return bool(self._matcher.is_stopped())

    @property
    def may_end(self) -> bool:
        """Whether the answer is complete as it stands, though more may follow."""
        return bool(self._matcher.is_accepting())

    def without_end(self, tokens: Sequence[int]) -> list[int]:
        """`tokens` without those that end an answer."""
        return [token for token in tokens if token not in self._ends]

    @property
    def need(self) -> int:
        """Tokens that complete the answer from here, whatever verdicts the model gives."""
        return self._closing.need(self._place).tokens

    def need_after(self, tokens: Sequence[int]) -> int:
        """The same once `tokens` are written."""
        return self._closing.need(self._follow(self._text(tokens))).tokens

    def consume(self, tokens: Sequence[int]) -> None:
        """Advance by `tokens`.

        Raises:
            ConstraintError: If one of them is not allowed.
        """
        if not self._matcher.consume_tokens(list(tokens)):
            raise ConstraintError(f"the mask does not admit tokens {list(tokens)}: {self._matcher.get_error()}")
        for token in tokens:
            piece = self._piece(token)
            text = b"" if piece is _NO_TEXT else piece
            following = self._follow(text)
            self.verdicts.enter(self._place, self._closing.choices_entered(self._place, text))
            self.verdicts.advance(piece)
            self._place = following

    def look(self, logits: torch.Tensor, allowed: torch.Tensor) -> None:
        """Note what the model thought of the next token before the mask.

        Args:
            logits: Shape (1, vocabulary).
            allowed: Which tokens the mask allows, shape (vocabulary,), bool.
        """
        self._seen = logits, allowed

    def weigh(self, scores: torch.Tensor, taken: Sequence[int], fits: Callable[[list[int]], bool]) -> None:
        """Note how sure the model is of the choices at hand, if there are any, before what it takes is consumed.

        Args:
            scores: What the token was drawn by, shape (vocabulary,), minus infinity where it is not possible.
            taken: What is written: the token drawn, or `run()` where that did not fit.
            fits: Whether the budget holds the answer once some tokens are written.
        """
        choices = self._choices(self._text(taken))
        if choices or self.verdicts.is_waiting:
            options = self._options(scores, fits)
            self.verdicts.weigh(self._place, choices, options, tuple(taken), self._mask_mass)

    def _choices(self, text: bytes) -> Choices:
        """The choices that `text` begins or leads to; next to free text only those that it already tells apart."""
        entered = self._closing.choices_entered(self._place, text)
        if self._closing.is_free(self._place):
            return {pointer: rests for pointer, rests in entered.items() if tells_apart(rests, text)}
        ahead = self._closing.choices_ahead(self._follow(text)) if text else {}
        beyond = {pointer: {value: text + rest for value, rest in rests.items()} for pointer, rests in ahead.items()}
        return beyond | entered

    def _options(self, scores: torch.Tensor, fits: Callable[[list[int]], bool]) -> Options:
        """All that may be written next; where the budget refuses a token, the run that takes its place, if any."""
        tokens = torch.isfinite(scores).nonzero()[:, 0].tolist()
        options: dict[Tokens, tuple[bytes, float]] = {}
        refused = 0.0
        for token, probability in zip(tokens, scores.softmax(dim=-1)[tokens].tolist(), strict=True):
            if fits([token]):
                options[token,] = self._piece(token), probability
            else:
                refused += probability
        run = tuple(self.run()) if refused else ()
        if run:
            options[run] = self._text(run), refused + options.get(run, (b"", 0.0))[1]
        return options

    def _mask_mass(self) -> float:
        if self._seen is None:
            return 1.0
        logits, allowed = self._seen
        return float(logits.softmax(dim=-1)[0, allowed.to(logits.device)].sum())

    def spellings(self, pointer: str) -> tuple[int, dict[str, list[list[int]]]]:
        """How each value of a choice that was made is written as a whole, with what shows that it is one.

        Returns:
            Tokens of the answer before the choice, and for each value the tokens of each way in which it can end.
        """
        begun = self.verdicts.begun[pointer]
        return begun.written, {value: self._spelled(begun.place, rest) for value, rest in begun.rests.items()}

    def _spelled(self, place: int, rest: bytes) -> list[list[int]]:
        ways: list[list[int]] = []
        for ending in self._closing.endings(place, rest):
            written = _written(self._words, rest + (ending or b""))
            ways += [written] if ending is not None else [[*written, end] for end in sorted(self._ends)]
        return ways

    def forced(self) -> list[int]:
        """The tokens that the grammar leaves no choice about, canonically tokenised."""
        tokens: list[int] = self._matcher.compute_ff_tokens()
        return tokens

    def run(self) -> list[int]:
        """The tokens of the text that comes next on the shortest way to the end; none where there is a choice."""
        return _written(self._words, self._closing.need(self._place).run)

    def allowed(self) -> torch.Tensor:
        """Which tokens may come next, shape (vocabulary,), bool.

        Raises:
            ConstraintError: If the matcher failed; it would then mask everything but the end.
        """
        bias = self._matcher.compute_logit_bias()
        if self._matcher.is_error():
            raise ConstraintError(f"the mask failed: {self._matcher.get_error()}")
        return torch.frombuffer(bytearray(bias), dtype=torch.uint8) != 0

    def _piece(self, token: int) -> bytes:
        return _NO_TEXT if token in self._ends else self._words.decode_bytes([token])

    def _text(self, tokens: Sequence[int]) -> bytes:
        text: bytes = self._words.decode_bytes(self.without_end(tokens))
        return text

    def _follow(self, text: bytes) -> int:
        place = self._closing.follow(self._place, text)
        if not place:
            raise ConstraintError(f"{text!r} was let through by the mask and is not of the schema's shape")
        return place


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
        if not torch.isfinite(masked.max()):
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
        return _written(self._tokenizer, text)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`; bytes of a character that was cut are replaced."""
        raw: bytes = self._tokenizer.decode_bytes(list(tokens))
        return raw.decode("utf-8", errors="replace")

    def count_tokens(self, text: str | bytes) -> int:
        """How many tokens `text` is written in."""
        return len(_written(self._tokenizer, text if isinstance(text, bytes) else text.encode()))


def _written(words: LLTokenizer, text: bytes) -> list[int]:
    """`text` as the tokenizer writes it, or byte by byte where that would be another text."""
    tokens: list[int] = words.tokenize_bytes(text)
    if words.decode_bytes(tokens) == text:
        return tokens
    return [token for byte in text for token in words.tokenize_bytes(bytes([byte]))]
