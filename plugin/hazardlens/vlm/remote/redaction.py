"""Keeps keys out of everything that is written: whatever a server says, a secret in it becomes a mark."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

MARK = "[secret]"
_LEAST_CHARACTERS = 4


class Redactor:
    """Takes secrets out of text.

    Args:
        secrets: The secrets; shorter ones than four characters are not looked for, since they stand in any text.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        known = {secret for secret in secrets if len(secret) >= _LEAST_CHARACTERS}
        known |= {quote(secret, safe="") for secret in known}
        self._secrets = sorted(known, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text with a mark in place of every secret."""
        for secret in self._secrets:
            text = text.replace(secret, MARK)
        return text
