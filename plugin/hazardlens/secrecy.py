"""What may be a secret, told by the name that it goes by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_SECRET = re.compile(r"auth|key|token|secret|cookie|pass|credential|session", re.IGNORECASE)
_HARMLESS = re.compile(
    r"""tokenizer\w*
    | (?:\w+_)?(?:stop|bos|eos|pad|unk|sep|cls|mask|image|special|think|reasoning|bad|banned|start|end|begin)_tokens?
    | token_type | prompt_cache_key | keywords? | author | bypass\w*""",
    re.IGNORECASE | re.VERBOSE,
)
"""Settings of language models whose values are words."""


def may_be_secret(name: object) -> bool:
    """Whether what goes by a name may be a secret, as in a header or a query."""
    return bool(_SECRET.search(str(name)))


def secrets_in(request: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Texts within the arguments of a request that may be secrets, however deep.

    In headers and in a query a name alone tells. Elsewhere settings of language models stand as well: numbers are no
    secrets (`max_tokens`, `stop_token_ids`), nor are words under names such as `stop_token` or `tokenizer`.

    Yields:
        The dotted place and the text.
    """
    for name, value in request.items():
        if name in ("extra_headers", "extra_query"):
            if isinstance(value, Mapping):
                yield from ((f"{name}.{key}", str(item)) for key, item in value.items() if may_be_secret(key))
        else:
            yield from _within(value, str(name), is_secret=_tells(name))


def _within(value: object, place: str, *, is_secret: bool) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if is_secret:
            yield place, value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _within(item, f"{place}.{name}", is_secret=_tells(name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _within(item, f"{place}.{index}", is_secret=is_secret)


def _tells(name: object) -> bool:
    return may_be_secret(name) and not _HARMLESS.fullmatch(str(name))
