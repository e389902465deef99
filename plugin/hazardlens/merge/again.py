"""What was asked about in vain, and is to be asked about again."""

from __future__ import annotations

from collections.abc import Collection, Iterable

Key = tuple[str, int | None]
"""A trigger, and the track that caused it; None for all detections without a track."""

Asked = tuple[int, float]
"""A question, by index and time of its frame."""

MOST_KEYS = 4096
"""Keys under way at most; the oldest are forgotten beyond that."""

_FIRST_S = 1.0
_MOST_S = 60.0


class Unanswered:
    """Knows who was asked about and has no answer yet.

    A question that fails gives back those whom no other question under way is about. They are due a second of video
    time after it; with each further failure in a row that doubles, up to a minute, for a VLM that is away should not
    be asked on every frame. A question that was never asked gives them back at once.
    """

    def __init__(self) -> None:
        self._under_way: dict[Key, set[Asked]] = {}
        self._returned: set[Key] = set()
        self._failures = 0
        self._due_s = 0.0

    def asked(self, question: Asked, new: Iterable[Key], present: Collection[int | None]) -> None:
        """A question begins.

        Args:
            question: The question.
            new: Whom it is about for the first time.
            present: All tracks of its frame; it is about those of them as well that have no answer yet.
        """
        again = [key for key in (*self._under_way, *self._returned) if key[1] in present]
        for key in dict.fromkeys((*new, *again)):
            self._under_way.setdefault(key, set()).add(question)
            self._returned.discard(key)
        while len(self._under_way) > MOST_KEYS:
            del self._under_way[next(iter(self._under_way))]

    def answered(self, question: Asked) -> None:
        """A question has its answer."""
        self._failures = 0
        for key in [key for key, questions in self._under_way.items() if question in questions]:
            del self._under_way[key]

    def failed(self, question: Asked) -> None:
        """A question has failed."""
        self._due_s = question[1] + min(_FIRST_S * 2 ** min(self._failures, 10), _MOST_S)
        self._failures += 1
        self.dropped(question)

    def dropped(self, question: Asked) -> None:
        """A question was never asked."""
        for key in [key for key, questions in self._under_way.items() if question in questions]:
            self._under_way[key].discard(question)
            if not self._under_way[key]:
                del self._under_way[key]
                self._returned.add(key)

    def due(self, time_s: float) -> tuple[Key, ...]:
        """Whom to ask about again at this video time; each is told once."""
        if not self._returned or time_s < self._due_s:
            return ()
        due = tuple(self._returned)
        self._returned.clear()
        return due
