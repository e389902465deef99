"""Answers that are no JSON: one of a few labels, or text of a given form. They become the one field of the frame."""

from __future__ import annotations

import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llguidance import LLMatcher

from hazardlens.errors import SchemaError
from hazardlens.record import Fields
from hazardlens.schema import probe
from hazardlens.schema.closing import Closing, Following
from hazardlens.schema.grammar import Grammar, GrammarClosing, read_gbnf, read_lark
from hazardlens.schema.grounded import AnswerError, GroundedSchema
from hazardlens.schema.plain import Line, Words
from hazardlens.schema.shapes import Shape

_KINDS = frozenset({"choices", "regex", "lark", "gbnf"})
_TOLD = frozenset({"title", "description"})


class Bare(ABC):
    """What an answer that is no JSON looks like.

    Attributes:
        kind: The constraint's key in a document.
        field: Name of the field that the answer becomes.
        form: How a prompt asks for it.
    """

    kind: str
    field: str
    form: str

    @abstractmethod
    def grammar(self) -> str:
        """The llguidance grammar of the answer."""

    @abstractmethod
    def longest_bytes(self) -> int | None:
        """Bytes of the longest answer, or None where there is none."""

    @abstractmethod
    def closing(self, count_tokens: Callable[[bytes], int]) -> Following:
        """What an answer needs from each of its places."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the field."""


class _Shaped(Bare):
    """An answer that a shape tells all about."""

    @abstractmethod
    def shape(self) -> Shape:
        """The shape."""

    def longest_bytes(self) -> int | None:
        """See `Bare`."""
        return self.shape().longest(lambda literal: len(literal.encode()))

    def closing(self, count_tokens: Callable[[bytes], int]) -> Following:
        """See `Bare`."""
        return Closing(self.shape(), count_tokens, pointer=f"/{self.field}")


@dataclass(frozen=True)
class Choices(_Shaped):
    """One of a few labels, in rank order.

    Attributes:
        labels: The labels.
    """

    labels: tuple[str, ...]
    kind = "choices"
    field = "label"
    form = "one of the values of label and nothing else"

    def grammar(self) -> str:
        """See `Bare`."""
        options = " | ".join(json.dumps(label, ensure_ascii=False) for label in self.labels)
        return str(LLMatcher.grammar_from_lark(f"start: {options}"))

    def shape(self) -> Shape:
        """See `_Shaped`."""
        return Words(self.labels)

    def schema(self) -> dict[str, Any]:
        """See `Bare`."""
        return {"enum": list(self.labels)}


@dataclass(frozen=True)
class Pattern(_Shaped):
    """Text that a regular expression matches as a whole.

    Attributes:
        regex: The expression, in the dialect of Rust's `regex`.
        most: Characters of its longest match.
    """

    regex: str
    most: int
    kind = "regex"
    field = "text"
    form = "text of the form asked for and nothing else"

    def grammar(self) -> str:
        """See `Bare`."""
        return str(LLMatcher.grammar_from_regex(self.regex))

    def shape(self) -> Shape:
        """See `_Shaped`."""
        return Line(self.most)

    def schema(self) -> dict[str, Any]:
        """See `Bare`."""
        return {"type": "string", "maxLength": self.most}


@dataclass(frozen=True)
class Written(Bare):
    """Text of a context-free grammar.

    Attributes:
        kind: `lark` or `gbnf`.
        text: The grammar as the user wrote it.
        rules: The same, taken apart.
    """

    kind: str
    text: str
    rules: Grammar = dataclasses.field(repr=False, compare=False)
    field = "text"
    form = "text of the form asked for and nothing else"

    def grammar(self) -> str:
        """See `Bare`."""
        return self.rules.to_llguidance()

    def longest_bytes(self) -> int | None:
        """See `Bare`."""
        return self.rules.longest()

    def closing(self, count_tokens: Callable[[bytes], int]) -> Following:
        """See `Bare`."""
        return GrammarClosing(self.rules)

    def schema(self) -> dict[str, Any]:
        """See `Bare`."""
        longest = self.longest_bytes()
        return {"type": "string"} if longest is None else {"type": "string", "maxLength": longest}


class GroundedText(GroundedSchema):
    """An answer that is no JSON, for a frame.

    Args:
        key: Equal for schemas of equal shape, and hashable.
        document: JSON Schema of the fields that the answer becomes.
        bare: What it looks like.

    Attributes:
        bare: See above.
    """

    def __init__(self, key: tuple[str, int], document: dict[str, Any], bare: Bare) -> None:
        super().__init__(key, document, 0)
        self.bare = bare

    @cached_property
    def longest_bytes(self) -> int | None:
        """See `GroundedSchema`."""
        return self.bare.longest_bytes()

    def longest_tokens(self, count_tokens: Callable[[str], int]) -> int | None:
        """See `GroundedSchema`."""
        return self.longest_bytes

    def closing(self, count_tokens: Callable[[bytes], int]) -> Following:
        """See `GroundedSchema`."""
        return self.bare.closing(count_tokens)

    def grammar(self) -> str:
        """See `GroundedSchema`."""
        return self._grammar

    @cached_property
    def _grammar(self) -> str:
        return self.bare.grammar()

    def parse(self, text: str) -> Fields:
        """The field that an answer becomes; as JSON, it may be given too.

        Raises:
            AnswerError: It is neither.
        """
        if probe.accepts(self.grammar(), text):
            return {self.bare.field: text}
        if text.lstrip().startswith("{"):
            fields = super().parse(text)
            if probe.accepts(self.grammar(), fields[self.bare.field]):
                return fields
        raise AnswerError(f"not {self.bare.form}: {text[:100]!r}")


def read_bare(document: dict[str, Any]) -> Bare | None:
    """The form of an answer that is no JSON, where a document gives one, or None where it is JSON Schema.

    Raises:
        SchemaError: The form is malformed or has no end.
    """
    kinds = _KINDS.intersection(document)
    if not kinds:
        return None
    others = [key for key in document if key not in _KINDS | _TOLD]
    if others:
        raise SchemaError(
            f"/: {' and '.join(sorted(kinds))} cannot stand beside {', '.join(others)}",
            help="Only title and description can. Or write JSON Schema without it.",
        )
    if len(kinds) > 1:
        raise SchemaError(f"expected one of {', '.join(sorted(_KINDS))}, found {' and '.join(sorted(kinds))}")
    (kind,) = kinds
    if kind in ("lark", "gbnf"):
        return _written(kind, document[kind])
    return _choices(document[kind]) if kind == "choices" else _pattern(document[kind])


def as_document(bare: Bare, told: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of the fields that an answer becomes; `told` holds title and description of what is asked."""
    field = {**bare.schema(), **{key: told[key] for key in ("description",) if key in told}}
    title = {key: told[key] for key in ("title",) if key in told}
    closed = {"type": "object", "required": [bare.field], "additionalProperties": False}
    return {**title, **closed, "properties": {bare.field: field}}


def _choices(labels: object) -> Choices:
    if not isinstance(labels, list) or not labels or not all(_is_label(label) for label in labels):
        raise SchemaError(
            f"/choices: expected a list of labels, got {labels!r}",
            help="Labels are text without line breaks and without blanks at either end; quote true, false and numbers.",
        )
    if len(set(labels)) < len(labels):
        raise SchemaError("/choices: a label is given twice", help="Take one of them out.")
    return Choices(tuple(labels))


def _is_label(label: object) -> bool:
    return isinstance(label, str) and label.isprintable() and label.strip() == label != ""


def _pattern(regex: object) -> Pattern:
    if not isinstance(regex, str):
        raise SchemaError(f"/regex: expected a regular expression, got {regex!r}")
    reason = probe.grammar_refusal(str(LLMatcher.grammar_from_regex(regex)))
    if reason:
        told = [line for line in reason.splitlines() if line.startswith("error: ")] or [reason.strip()]
        raise SchemaError(f"/regex: {told[0].removeprefix('error: ')}", help="Write it in the dialect of Rust's regex.")
    whole = {"type": "string", "pattern": f"^(?:{regex})$"}
    if probe.is_unsatisfiable(probe.refusal(whole)):
        raise SchemaError("/regex: no text matches it", help="Loosen what contradicts, such as an empty [...].")
    most = probe.longest_match(whole)
    if most is None:
        raise SchemaError(
            "/regex: it matches text of more than 1024 characters, maybe without end",
            help="Bound its repetitions, for instance {1,20} in place of +.",
        )
    return Pattern(regex, most)


def _written(notation: str, text: object) -> Written:
    if not isinstance(text, str):
        raise SchemaError(f"/{notation}: expected the text of a grammar, got {text!r}")
    try:
        rules = read_lark(text) if notation == "lark" else read_gbnf(text)
    except ValueError as error:
        raise SchemaError(f"/{notation}: {error}", help="Mend the grammar there.") from error
    written = Written(notation, text, rules)
    reason = probe.grammar_refusal(written.grammar())
    if reason:
        raise SchemaError(f"/{notation}: llguidance cannot hold this: {reason.strip()[:300]}", help="Make it simpler.")
    return written
