"""Damage that decodes: from where a stream was damaged to its next key frame, pictures are not as they were taken."""

from __future__ import annotations


class Damage:
    """Follows the damage of one stream.

    A decoder marks the picture that it had to mend, but not those that are built upon it, until a key frame needs none
    of them. A picture that is lost whole is no damage here, for nothing tells of it.
    """

    def __init__(self) -> None:
        self._is_on = False
        self._pts: int | None = None

    def begins(self, pts: int | None) -> None:
        """Something of the picture with this presentation stamp is lost; None where it has none."""
        self._is_on = True
        self._pts = pts

    def is_on(self, pts: int | None, *, is_key: bool, is_corrupt: bool) -> bool:
        """Whether a decoded picture is damaged; call it for each, in order.

        Args:
            pts: Its presentation stamp, or None.
            is_key: Whether it needs none of those before it.
            is_corrupt: Whether the decoder marked it.
        """
        if is_corrupt:
            self.begins(pts)
        elif is_key and (self._pts is None or pts is None or pts > self._pts):
            self._is_on = False
        return self._is_on
