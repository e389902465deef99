"""Addresses without what is secret in them: user, password, and the values of the query."""

from __future__ import annotations

import re
from urllib.parse import unquote

_ADDRESS = re.compile(r"\s*([a-z][a-z0-9+.-]*)://(.*)", re.IGNORECASE | re.DOTALL)
_HIDDEN = "***"
_LEAST_LETTERS = 3
"""Words shorter than this are left alone in foreign texts, for they stand in every other word."""


def is_address(text: str) -> bool:
    """Whether a text is an address such as `rtsp://...`, and no path."""
    return _ADDRESS.match(text) is not None


def redacted(address: str) -> str:
    """An address as it may be shown: scheme, host and path; user, password and values of the query are left out.

    Where it cannot be told what is secret, as in a password with an unescaped `?` in it, only the scheme is left.
    """
    match = _ADDRESS.match(address)
    if match is None:
        return _HIDDEN
    scheme, rest = match[1].lower(), match[2]
    user, at, host = rest.rpartition("@")
    if at and re.search(r"[?#;]", user):
        return f"{scheme}://{_HIDDEN}"
    place, *parameters = re.split(r"[?#;]", host)
    names = [name.partition("=")[0] for part in parameters for name in part.split("&") if "=" in name]
    return f"{scheme}://{place}" + (f"?{'&'.join(f'{name}={_HIDDEN}' for name in names)}" if names else "")


def scrubbed(text: str, address: str) -> str:
    """Somebody else's text without the secrets of an address, in case they are quoted in it."""
    for secret in sorted(_secrets(address), key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text


def _secrets(address: str) -> set[str]:
    match = _ADDRESS.match(address)
    if match is None:
        return set()
    user, _, host = match[2].rpartition("@")
    values = [pair.partition("=")[2] for part in re.split(r"[?#;]", host)[1:] for pair in part.split("&")]
    found = {address, address.strip(), user, *user.split(":", 1), *values}
    found |= {unquote(one) for one in found}
    return {one for one in found if len(one) >= _LEAST_LETTERS}
