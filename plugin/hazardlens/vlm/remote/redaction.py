"""Keeps keys out of everything that is written: whatever a server says, a secret in it becomes a mark.

Text is redacted before it is cut, since a part of a secret is no longer found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

MARK = "[secret]"
_LEAST_CHARACTERS = 4
_LEAST_OF_A_WORD = 8
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


class Redactor:
    """Takes secrets out of text.

    Args:
        secrets: The secrets; shorter ones than four characters are not looked for, since they stand in any text.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        given = list(secrets)
        words = [word for secret in given for word in secret.split() if len(word) >= _LEAST_OF_A_WORD]
        known = {secret for secret in [*given, *words] if len(secret) >= _LEAST_CHARACTERS}
        known |= {spelled for secret in known for spelled in _spellings(secret)}
        self._secrets = sorted(known, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text with a mark in place of every secret, also where its characters are escaped as in JSON."""
        text = self._marked(text)
        if self._secrets and "\\" in text:
            plain = _ESCAPE.sub(_unescaped, text)
            marked = self._marked(plain)
            return text if marked == plain else marked
        return text

    def bare(self, text: str) -> str:
        """The same with all escapes taken for characters, which may be JSON no more; as it is without a secret."""
        plain = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)) if escape[1] else escape[2], text)
        marked = self._marked(plain)
        return text if marked == plain else marked

    def within(self, value: Any) -> Any:
        """Plain JSON types with every string in them redacted."""
        if not self._secrets:
            return value
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {self(key) if isinstance(key, str) else key: self.within(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.within(item) for item in value]
        return value

    def _marked(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MARK)
        return text


def _spellings(secret: str) -> Iterable[str]:
    """A secret as it stands in a URL and in JSON."""
    return quote(secret, safe=""), json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]


def _unescaped(escape: re.Match[str]) -> str:
    """An escaped character as itself, where that leaves JSON what it says."""
    character = chr(int(escape[1], 16)) if escape[1] else escape[2]
    is_plain = (escape[1] or character == "/") and character.isprintable() and character not in '"\\'
    return character if is_plain else escape[0]
