"""A schema for one frame: as many objects as were asked about, no more and no fewer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from hazardlens.record import Fields
from hazardlens.schema.circles import referenced
from hazardlens.schema.closing import Closing, Following
from hazardlens.schema.compiler import Compiler
from hazardlens.schema.findings import Findings
from hazardlens.schema.rules import mask_grammar
from hazardlens.schema.shapes import ENDLESS, Again, Shape, every_part, mask_schema
from hazardlens.schema.spelling import read_strict
from hazardlens.schema.validation import answer_errors, validator_for

_MOST_REASONS = 20
_ROOM_WITHOUT_END = 1024
"""Tokens that an answer gets beyond what it needs, where nothing bounds it."""


class AnswerError(ValueError):
    """An answer that is not what the schema asks for; the message says why."""


class KnownShapes:
    """Shapes of the entries of detections, which are the same in every frame.

    Args:
        entries: Their schemas; it may grow.
    """

    def __init__(self, entries: Sequence[dict[str, Any]]) -> None:
        self._entries = entries
        self.shapes: dict[tuple[int, ...], Shape] = {}

    def learn(self, compiler: Compiler) -> None:
        """Keep what a compiler made of entries that do not lead back to what they stand in."""
        for entry in self._entries[len(self.shapes) :]:
            shape = compiler.done.get((id(entry),))
            if shape is None or any(isinstance(part, Again) for part in every_part(shape)):
                break
            self.shapes[id(entry),] = shape


class GroundedSchema:
    """What an answer about one frame must look like.

    Made by `FieldSchema.ground`. Safe to share between threads.

    Args:
        key: Equal for schemas of equal shape, and hashable.
        document: The schema, grounded and resolved; it may go in circles.
        count: Number of detections that it is grounded to.
        known: Shapes of its entries, or None where it has none.

    Attributes:
        key: See above.
        count: See above.
    """

    def __init__(
        self, key: tuple[str, int], document: dict[str, Any], count: int, known: KnownShapes | None = None
    ) -> None:
        self._known = known
        self.key = key
        self.count = count
        self._resolved = document

    @cached_property
    def document(self) -> dict[str, Any]:
        """Plain JSON Schema 2020-12, satisfied by the answers that are taken; references only where it recurs."""
        return referenced(self._resolved)

    @cached_property
    def mask_document(self) -> dict[str, Any]:
        """Plain JSON Schema that a mask can hold: closed, bounded, and without what is only checked."""
        return mask_schema(self._shape)

    @cached_property
    def longest_bytes(self) -> int | None:
        """No answer that the mask lets through is longer than this, in bytes of UTF-8; None where there is no bound."""
        longest = self._shape.longest(lambda literal: len(literal.encode()))
        return None if longest >= ENDLESS else longest

    def token_budget(self, most: int | None, least: Callable[[], int]) -> tuple[int, bool]:
        """Tokens that an answer may take, and whether it could need more, so that somebody must look after it.

        Args:
            most: Tokens asked for, or None for no limit; where nothing else bounds an answer, it then gets 1024 more
                than it needs at least.
            least: Finds the tokens that an answer needs at least, which takes a while; called only where it matters.
        """
        longest = self.longest_bytes
        if longest is None:
            return (least() + _ROOM_WITHOUT_END if most is None else most), True
        return (longest, False) if most is None or most >= longest else (most, True)

    def longest_tokens(self, count_tokens: Callable[[str], int]) -> int | None:
        """Upper bound of an answer's tokens, never more than its bytes; None where there is no bound.

        Free text and choices are taken at one token per byte, since a model may spell them as it likes. Text that the
        mask forces (keys, punctuation, ids) is taken as the tokenizer writes it, plus one token for each seam; it holds
        for a decoding loop that appends forced tokens. For any other, `longest_bytes` is the bound.

        Args:
            count_tokens: Number of tokens of a text, without special tokens.
        """
        known: dict[str, int] = {}

        def measure(literal: str) -> int:
            if literal not in known:
                known[literal] = min(len(literal.encode()), count_tokens(literal) + 1)
            return known[literal]

        longest = self._shape.longest(measure)
        return None if longest >= ENDLESS else longest

    def shortest_tokens(self, count_tokens: Callable[[bytes], int]) -> int:
        """Least token budget at which every answer is complete, whatever verdicts the model gives.

        It counts every choice, boolean and number at its longest, spelled as a model may spell it, text held to a
        pattern or a format at its longest, other text and arrays at their shortest, and what is optional not at all.

        Args:
            count_tokens: Number of tokens that a piece of text is written in.
        """
        closing = self.closing(count_tokens)
        return closing.need(closing.start).tokens

    def closing(self, count_tokens: Callable[[bytes], int]) -> Following:
        """What an answer needs from each of its places, with a tokenizer's count of a piece of text."""
        return Closing(self._shape, count_tokens)

    def grammar(self) -> str:
        """The llguidance grammar of the mask, with no free whitespace, in the one spelling of JSON."""
        return self._grammar

    def validate(self, value: object) -> list[str]:
        """What is wrong with an answer that was read, each with its JSON pointer; empty if nothing is."""
        return answer_errors(self._validator, value)

    def parse(self, text: str) -> Fields:
        """The fields that an answer's text holds.

        Raises:
            AnswerError: The text is not one strict JSON value, or that value does not satisfy the schema.
        """
        try:
            value = read_strict(text)
        except json.JSONDecodeError as error:
            raise AnswerError(f"not JSON: {error}") from error
        except ValueError as error:
            raise AnswerError(f"not strict JSON: {error}") from error
        wrong = self.validate(value)
        if wrong:
            more = f"; and {len(wrong) - _MOST_REASONS} more" if len(wrong) > _MOST_REASONS else ""
            raise AnswerError("; ".join(wrong[:_MOST_REASONS]) + more)
        return value  # type: ignore[no-any-return]

    def takes(self, text: str) -> bool:
        """Whether `parse` takes an answer's text."""
        try:
            self.parse(text)
        except AnswerError:
            return False
        return True

    @cached_property
    def _grammar(self) -> str:
        return mask_grammar(self._shape)

    @cached_property
    def _validator(self) -> Any:
        return validator_for(self.document)

    @cached_property
    def _shape(self) -> Shape:
        compiler = Compiler({}, Findings(), done={} if self._known is None else self._known.shapes)
        shape = compiler.whole(self._resolved)
        if self._known is not None:
            self._known.learn(compiler)
        return shape
