"""Regular expressions of JSON Schema, read as ECMA-262 has them, alike by the mask and by the check.

llguidance reads them as Rust's `regex` does and Python's `re` in a third way: they differ in what a blank is, in where
`$` matches, in brackets. So each is written out in what all engines agree on before the mask gets it, and the check
runs an engine of ECMA-262 (with its flag `u`, as the specification of JSON Schema asks).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import regress

_BLANKS = r"\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_OTHERS = (
    r"\x00-\x08\x0e-\x1f!-\x9f\xa1-\u167f\u1681-\u1fff\u200b-\u2027\u202a-\u202e\u2030-\u205e\u2060-\u2fff"
    r"\u3001-\ufefe\uff00-\u{10ffff}"
)
_ANY = r"[^\n\r\u2028\u2029]"
_SYNTAX = frozenset("^$\\.*+?()[]{}|/")
_HIDDEN = frozenset("&~[-^")
"""Characters that stand for themselves within brackets of ECMA-262, and not always within those of Rust."""

_SETS = frozenset("dDwWsSpP")
_FLAGS = frozenset(f"?{flag}" for flag in "imsuxR-")


@lru_cache(maxsize=1024)
def plain(pattern: str) -> str:
    """A pattern written so that ECMA-262 and Rust's `regex` read it alike, as ECMA-262 reads the one given.

    Punctuation may be escaped where nothing asks for it, and `{`, `}` and `]` may stand for themselves.

    Raises:
        ValueError: It is no regular expression of ECMA-262.
    """
    written = "".join(_Reader(pattern).parts())
    _compiled(written)
    return written


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern that `plain` takes matches somewhere in `text`."""
    return _compiled(plain(pattern)).find(text) is not None


@lru_cache(maxsize=1024)
def _compiled(written: str) -> regress.Regex:
    try:
        return regress.Regex(written, "u")
    except regress.RegressError as error:
        raise ValueError(str(error)) from error


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def parts(self) -> Iterator[str]:
        """The pattern, piece by piece."""
        while self._at < len(self._pattern):
            char = self._next()
            if char == "[":
                yield self._brackets()
            elif char == "\\":
                yield self._escape(inside=False)
            elif char == ".":
                yield _ANY
            elif char == "{":
                yield self._quantifier()
            elif char == "(" and self._rest()[:2] in _FLAGS:
                raise ValueError("flags within it are not supported")
            else:
                yield "\\" + char if char in "}]" else char

    def _next(self) -> str:
        if self._at == len(self._pattern):
            raise ValueError("it ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def _to(self, end: str) -> str:
        """What follows up to and with `end`."""
        before, found, _ = self._rest().partition(end)
        self._at += len(before) + len(found)
        return before + found

    def _rest(self) -> str:
        return self._pattern[self._at :]

    def _quantifier(self) -> str:
        bounds, closed, _ = self._rest().partition("}")
        low, comma, high = bounds.partition(",")
        if not (closed and bounds.isascii() and low.isdigit() and (high.isdigit() or not high)):
            return "\\{"
        self._at += len(bounds) + 1
        return f"{{{low}{comma}{high}}}"

    def _brackets(self) -> str:
        is_negated = self._rest().startswith("^")
        self._at += is_negated
        members = ""
        while not self._rest().startswith("]"):
            is_set = self._is_set()
            members += self._member()
            # Between two characters it makes a range, elsewhere it stands for itself.
            if self._rest().startswith("-") and not self._rest().startswith("-]"):
                self._at += 1
                members += ("\\x2d" if is_set or self._is_set() else "-") + self._member()
        self._at += 1
        if members:
            return f"[{'^' if is_negated else ''}{members}]"
        return r"[\x00-\u{10ffff}]" if is_negated else r"[^\x00-\u{10ffff}]"

    def _is_set(self) -> bool:
        return self._rest()[:1] == "\\" and self._rest()[1:2] in _SETS

    def _member(self) -> str:
        char = self._next()
        if char == "\\":
            return self._escape(inside=True)
        return f"\\x{ord(char):02x}" if char in _HIDDEN else char

    def _escape(self, *, inside: bool) -> str:
        char = self._next()
        if char in "sS":
            members = _BLANKS if char == "s" else _OTHERS
            return members if inside else f"[{members}]"
        if char == "c" and self._rest()[:1].isalpha() and self._rest()[:1].isascii():
            return f"\\x{ord(self._next()) % 32:02x}"
        if char == "0" and not self._rest()[:1].isdigit():
            return r"\x00"
        if char == "b" and inside:
            return r"\x08"
        if char in "pPu" and self._rest().startswith("{"):
            return f"\\{char}{self._to('}')}"
        if char == "u":
            return self._code_unit()
        if char.isascii() and not char.isalnum() and char not in _SYNTAX:
            return f"\\x{ord(char):02x}"
        return "\\" + char

    def _code_unit(self) -> str:
        """A character by its number; two halves of a surrogate pair are one."""
        digits = self._rest()[:4]
        following = self._rest()[4:10]
        if digits[:2].lower() not in ("d8", "d9", "da", "db") or following[:2].lower() != "\\u":
            return "\\u"
        self._at += 10
        high, low = int(digits, 16), int(following[2:], 16)
        if not 0xDC00 <= low < 0xE000:
            raise ValueError("half of a surrogate pair")
        return f"\\u{{{0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00:x}}}"
