"""Drafts: what an answer may go on with, as the one before it did.

A camera sees much the same from one question to the next, and the answers say much the same of it. So what the earlier
answer went on with is tried in one pass of the model, and kept as far as the model itself, under its mask, would have
written it. That is speculative decoding (Leviathan et al. 2023, "Fast Inference from Transformers via Speculative
Decoding") with a draft that is looked up (Saxena 2023, "Prompt Lookup Decoding"), here in another answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

_BEGIN = -1
"""Stands ahead of an answer's first token, so that beginnings are alike as well."""
_ALIKE = 2
"""So many tokens must have stood there before: a quote alone says little about what follows it."""
_FAR, _SOURCES = 32, 64
_FIRST, _LEAST = 16, 4


class Draft:
    """Gives what an answer may go on with.

    The draft behind one that was kept as a whole may be twice as long, behind another it is only as long as what was
    kept, 4 tokens at least.

    Args:
        earlier: Tokens of an earlier answer.
        most: Tokens of the longest draft.
    """

    def __init__(self, earlier: Sequence[int], *, most: int) -> None:
        self._earlier = [_BEGIN, *earlier]
        self._most = most
        self._length = _FIRST
        self._given = 0

    def after(self, tokens: Sequence[int], *, missed: int) -> list[int]:
        """What came in the earlier answer behind the longest stretch that `tokens` end with; nothing if that is short.

        Args:
            tokens: The answer so far.
            missed: How many tokens of the last draft were not kept.
        """
        if self._given:
            self._length = max(_LEAST, self._given - missed if missed else 2 * self._given)
        written = [_BEGIN, *tokens]
        places = [k for k, token in enumerate(self._earlier, 1) if token == written[-1]]
        # Of stretches as long, the one that stands about as far from the beginning.
        found = [(_alike(self._earlier, k, written), -abs(k - len(written)), k) for k in places]
        alike, _, at = max(found, default=(0, 0, 0))
        draft = self._earlier[at : at + min(self._length, self._most)] if alike >= _ALIKE else []
        self._given = len(draft)
        return draft


class Drafts:
    """Keeps the last answer about each source, of the 64 asked about last.

    Args:
        most: Tokens of the longest draft, 0 for none.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._last: OrderedDict[str, list[int]] = OrderedDict()

    def of(self, source: str) -> Draft | None:
        """The draft of an answer about a source, if there was one before."""
        last = self._last.get(source)
        return Draft(last, most=self._most) if last and self._most else None

    def keep(self, source: str, tokens: list[int]) -> None:
        """Keep an answer."""
        self._last[source] = tokens
        self._last.move_to_end(source)
        while len(self._last) > _SOURCES:
            self._last.popitem(last=False)


def _alike(earlier: list[int], end: int, written: list[int]) -> int:
    """How many of the last tokens before `end` are those that `written` ends with; no more than 32 are looked at."""
    most = min(end, len(written), _FAR)
    return next((k for k in range(most) if earlier[end - 1 - k] != written[-1 - k]), most)
