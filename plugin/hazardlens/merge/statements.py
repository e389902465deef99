"""What an answer's fields state: matched with values, placed in a rank, searched for words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from hazardlens.pipeline import ContradictionRule
from hazardlens.record import Fields

_NEGATED = re.compile(r"(?:\b(?:no|not|without|neither|nor)|n't)\s+(?:\w+\s+)?$", re.IGNORECASE)
"""A negation right before a word, or with one word between: "no worker", "no visible worker"."""


def statement(rule: ContradictionRule, fields: Fields) -> tuple[str, str] | None:
    """The field that states something and what it says, or None where nothing is stated."""
    if rule.when:
        said = " and ".join(f"{key} is {spell(fields.get(key))}" for key in rule.when)
        return (next(iter(rule.when)), said) if matches(rule.when, fields) else None
    text = fields.get(rule.text_field)
    for word in rule.words if isinstance(text, str) else ():
        for match in re.finditer(rf"(?<!\w){re.escape(word.strip())}(?!\w)", str(text), re.IGNORECASE):
            if not _NEGATED.search(str(text)[: match.start()]):
                return rule.text_field, f"{rule.text_field} says {match[0]!r}"
    return None


def matches(when: Mapping[str, tuple[Any, ...]], fields: Fields) -> bool:
    """Whether every field has one of its values; a list field has each of its items."""
    for key, values in when.items():
        if key not in fields:
            return False
        has = [fields[key], *fields[key]] if isinstance(fields[key], list) else [fields[key]]
        if not any(same(one, value) for one in has for value in values):
            return False
    return True


def place_in(order: Sequence[Any], value: object) -> int | None:
    """The value's place in a rank order, or None where it has none."""
    return next((place for place, item in enumerate(order) if same(item, value)), None)


def same(one: object, other: object) -> bool:
    """Equal as JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def spell(value: object) -> str:
    """The value as a reason in plain words has it."""
    return value if isinstance(value, str) else repr(value)
