"""The mask of one answer: what may come next, what is still needed, and how sure the model is of what it chose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer

from hazardlens.errors import ConstraintError
from hazardlens.schema.closing import Choices, Following
from hazardlens.vlm.confidence import Options, Tokens, Verdicts, tells_apart

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
            allowed: Which tokens the mask allows, shape (vocabulary,), bool, on the same device.
        """
        self._seen = logits, allowed

    def possible(self) -> torch.Tensor:
        """What the model thought of the next token, shape (1, vocabulary), minus infinity where the mask forbids it."""
        if self._seen is None:
            return torch.full((1, 1), -torch.inf)
        logits, allowed = self._seen
        return logits.masked_fill(~allowed, -torch.inf)

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
        """All that may be written next; where the budget refuses a token, a run takes its place, or else all others."""
        logits = scores.cpu().numpy()
        possible = np.flatnonzero(logits > -np.inf)
        weights = np.exp(logits[possible] - logits[possible].max())
        fitting = np.array([fits([token]) for token in possible.tolist()])
        run = () if fitting.all() else tuple(self.run())
        kept, total = weights[fitting], weights.sum() if run else weights[fitting].sum()
        options: dict[Tokens, tuple[bytes, float]] = {
            (token,): (self._piece(token), probability)
            for token, probability in zip(possible[fitting].tolist(), (kept / total).tolist(), strict=True)
        }
        if run:
            refused = float(weights[~fitting].sum() / total)
            options[run] = self._text(run), refused + options.get(run, (b"", 0.0))[1]
        return options

    def _mask_mass(self) -> float:
        if self._seen is None:
            return 1.0
        logits, allowed = self._seen
        return float(logits.softmax(dim=-1)[0].cpu().numpy()[allowed.cpu().numpy()].sum())

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
            tokens = written(self._words, rest + (ending or b""))
            ways += [tokens] if ending is not None else [[*tokens, end] for end in sorted(self._ends)]
        return ways

    def forced(self) -> list[int]:
        """The tokens that the grammar leaves no choice about, canonically tokenised."""
        tokens: list[int] = self._matcher.compute_ff_tokens()
        return tokens

    def run(self) -> list[int]:
        """The tokens of the text that comes next on the shortest way to the end; none where there is a choice."""
        return written(self._words, self._closing.need(self._place).run)

    def allowed(self) -> torch.Tensor:
        """Which tokens may come next, shape (vocabulary,), bool.

        Raises:
            ConstraintError: If the matcher failed; it would then mask everything but the end.
        """
        bias = self._matcher.compute_logit_bias()
        if self._matcher.is_error():
            raise ConstraintError(f"the mask failed: {self._matcher.get_error()}")
        return torch.from_numpy(np.frombuffer(bias, np.uint8) != 0)

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


def written(words: LLTokenizer, text: bytes) -> list[int]:
    """`text` as the tokenizer writes it, or byte by byte where that would be another text."""
    tokens: list[int] = words.tokenize_bytes(text)
    if words.decode_bytes(tokens) == text:
        return tokens
    return [token for byte in text for token in words.tokenize_bytes(bytes([byte]))]
