"""The one spelling of JSON, and the strict way to read it."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import Decimal
from typing import Any

ITEM_SEPARATOR = ", "
"""What stands between two items."""

KEY_SEPARATOR = ": "
"""What stands between a key and its value."""

SAFE_INTEGER = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly (RFC 8259, section 6)."""


def canonical(value: Any) -> Any:
    """`value` with whole floats as integers, deeply, since JSON knows one kind of number."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, dict):
        return {key: canonical(item) for key, item in value.items()}
    return value


def spell(value: Any) -> str:
    """The text of `value` exactly as the mask spells it: plain decimals, one space after a comma and a colon."""
    if isinstance(value, dict):
        entries = (f"{spell(str(key))}{KEY_SEPARATOR}{spell(item)}" for key, item in value.items())
        return "{" + ITEM_SEPARATOR.join(entries) + "}"
    if isinstance(value, list):
        return "[" + ITEM_SEPARATOR.join(map(spell, value)) + "]"
    if isinstance(value, float):
        return format(Decimal(repr(value)), "f").removesuffix(".0")
    # llguidance escapes DEL, which json.dumps leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_strict(text: str) -> Any:
    """Read JSON, and refuse what readers disagree on.

    Raises:
        ValueError: Not JSON, or JSON with a key given twice, a number that is not finite, or half a surrogate pair.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_float=_finite, parse_constant=_refuse, parse_int=_integer
        )
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError("a string holds half of a surrogate pair") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"key given twice: {name!r}")
    return result


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError(f"number out of range: {literal[:40]}")
    return number


def _integer(literal: str) -> int:
    if len(literal) > 400:
        raise ValueError(f"number out of range: {literal[:40]}...")
    return int(literal)


def _refuse(literal: str) -> float:
    raise ValueError(f"not a JSON number: {literal}")
