"""Keeps keys out of everything that is written: whatever a server says, a secret in it becomes a mark."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

MARK = "[secret]"
_LEAST_CHARACTERS = 4
_LEAST_OF_A_WORD = 8


class Redactor:
    """Takes secrets out of text.

    Args:
        secrets: The secrets; shorter ones than four characters are not looked for, since they stand in any text.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        given = list(secrets)
        words = [word for secret in given for word in secret.split() if len(word) >= _LEAST_OF_A_WORD]
        known = {secret for secret in [*given, *words] if len(secret) >= _LEAST_CHARACTERS}
        known |= {quote(secret, safe="") for secret in known}
        self._secrets = sorted(known, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text with a mark in place of every secret."""
        for secret in self._secrets:
            text = text.replace(secret, MARK)
        return text
