"""Asks llguidance what it can hold, without a model or its tokenizer."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher, LLTokenizer

from hazardlens.schema.spelling import ITEM_SEPARATOR, KEY_SEPARATOR

_LONGEST_PATTERN = 1024
_UNSATISFIABLE = "Unsatisfiable schema: "


def grammar(schema: dict[str, Any]) -> str:
    """The llguidance grammar of `schema` in the one spelling of JSON."""
    options = {
        "whitespace_flexible": False,
        "item_separator": ITEM_SEPARATOR,
        "key_separator": KEY_SEPARATOR,
    }
    return str(LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=options))


def refusal(schema: dict[str, Any]) -> str:
    """Why llguidance does not take `schema`; empty if it does."""
    return grammar_refusal(grammar(schema))


def grammar_refusal(grammar_text: str) -> str:
    """Why llguidance does not take a grammar; empty if it does."""
    return str(LLMatcher.validate_grammar(grammar_text, _bytes_tokenizer()))


def accepts(grammar_text: str, text: str) -> bool:
    """Whether `text` as a whole is of a grammar; half a surrogate pair is of none."""
    matcher = LLMatcher(_bytes_tokenizer(), grammar_text, log_level=0)
    written = list(text.encode(errors="surrogatepass"))
    return bool(matcher.try_consume_tokens(written) == len(written) and matcher.is_accepting())


def is_unsatisfiable(reason: str) -> bool:
    """Whether a reason given by `refusal` means that no answer satisfies the schema."""
    return reason.startswith(_UNSATISFIABLE)


def longest_match(schema: dict[str, Any]) -> int | None:
    """How many characters a string of `schema` may have, or None if that is more than 1024."""
    if not _is_longer(schema, 0):
        return 0
    low, high = 0, _LONGEST_PATTERN
    if _is_longer(schema, high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _is_longer(schema, middle) else (low, middle)
    return high


def _is_longer(schema: dict[str, Any], length: int) -> bool:
    # What llguidance gives up on counts as longer: only what it proves is a bound.
    return not is_unsatisfiable(refusal({**schema, "minLength": length + 1}))


@lru_cache(maxsize=1)
def _bytes_tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")
