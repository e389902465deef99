"""Regular expressions inside a grammar, as Python's `re` reads them, taken apart into its parts."""

from __future__ import annotations

import re
from functools import lru_cache
from re import _constants as ops  # type: ignore[attr-defined]  # the one parser of this dialect
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from hazardlens.schema.grammar.tree import Alt, Chars, Node, Ranges, Repeat, Seq, chars, either_case, others

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "u": re.UNICODE}
_NEWLINE: Ranges = ((10, 10),)
_CATEGORIES = {
    "CATEGORY_DIGIT": (r"\d", True),
    "CATEGORY_NOT_DIGIT": (r"\d", False),
    "CATEGORY_SPACE": (r"\s", True),
    "CATEGORY_NOT_SPACE": (r"\s", False),
    "CATEGORY_WORD": (r"\w", True),
    "CATEGORY_NOT_WORD": (r"\w", False),
}


def read_regex(pattern: str, flags: str = "") -> Node:
    """The parts of a regular expression.

    Args:
        pattern: The expression.
        flags: Letters among i, m, s, x and u.

    Raises:
        ValueError: It is malformed, or holds what no grammar can: look-around, anchors, references to groups.
    """
    bits = 0
    for letter in flags:
        if letter not in _FLAGS:
            raise ValueError(f"unknown flag {letter!r} of a regular expression")
        bits |= _FLAGS[letter]
    try:
        parsed = parser.parse(pattern, bits)
    except re.error as error:
        raise ValueError(f"/{pattern}/ is no regular expression: {error}") from error
    return _sequence(parsed, parsed.state.flags)


def _sequence(parsed: Any, flags: int) -> Node:
    parts = [_part(op, argument, flags) for op, argument in parsed]
    return parts[0] if len(parts) == 1 else Seq(tuple(parts))


def _part(op: Any, argument: Any, flags: int) -> Node:
    if op is ops.LITERAL:
        return _cased(((argument, argument),), flags)
    if op is ops.NOT_LITERAL:
        return others(_cased(((argument, argument),), flags).ranges)
    if op is ops.ANY:
        return others(() if flags & re.DOTALL else _NEWLINE)
    if op is ops.IN:
        return _set(argument, flags)
    if op is ops.BRANCH:
        return Alt(tuple(_sequence(branch, flags) for branch in argument[1]))
    if op is ops.SUBPATTERN:
        _, added, removed, inner = argument
        return _sequence(inner, (flags | added) & ~removed)
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        low, high, inner = argument
        return Repeat(_sequence(inner, flags), int(low), None if high is ops.MAXREPEAT else int(high))
    raise ValueError(f"a grammar cannot hold {str(op).lower().replace('_', ' ')} of a regular expression")


def _set(members: Any, flags: int) -> Chars:
    found: list[tuple[int, int]] = []
    is_negated = False
    for op, argument in members:
        if op is ops.NEGATE:
            is_negated = True
        elif op is ops.LITERAL:
            found.append((argument, argument))
        elif op is ops.RANGE:
            found.append(argument)
        else:
            found.extend(_category(str(argument)))
    held = _cased(tuple(found), flags)
    return others(held.ranges) if is_negated else held


def _cased(ranges: Ranges, flags: int) -> Chars:
    return either_case(ranges) if flags & re.IGNORECASE else chars(ranges)


@lru_cache(maxsize=8)
def _category(name: str) -> Ranges:
    letter, is_held = _CATEGORIES[name]
    everything = "".join(map(chr, range(0x110000)))
    found = chars((match.start(), match.end() - 1) for match in re.finditer(f"{letter}+", everything))
    return found.ranges if is_held else others(found.ranges).ranges
