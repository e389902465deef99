"""How sure a model is of its verdicts, read off the probabilities of the tokens that it chose among.

A choice may take several tokens, and a value may be spelled in several ways. Each token that was possible either leads
to one value, whose probability it adds to, or leaves several open. If the model takes such a token, the choice goes on
from there; if not, what it would have said next is unknown, and its probability stays unresolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from hazardlens.record import Confidence


@dataclass(slots=True)
class _Pending:
    """A choice that is being made."""

    pointer: str
    rests: dict[str, bytes]
    mask_mass: float
    reach: float = 1.0
    masses: dict[str, float] = field(default_factory=dict)
    unresolved: float = 0.0
    open_tokens: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.masses = dict.fromkeys(self.rests, 0.0)

    def weigh(self, pieces: Mapping[int, bytes], probabilities: Mapping[int, float]) -> None:
        """Add up what each token that may come next would decide."""
        for token, piece in pieces.items():
            left = list(_left(self.rests, piece))
            if len(left) == 1:
                self.masses[left[0]] += self.reach * probabilities[token]
            elif left:
                self.open_tokens[token] = self.reach * probabilities[token]

    def advance(self, token: int, piece: bytes) -> None:
        """Go on after `token`."""
        if self.open_tokens:
            self.reach = self.open_tokens.pop(token, 0.0)
            self.unresolved += sum(self.open_tokens.values())
            self.open_tokens = {}
        self.rests = _left(self.rests, piece)


class Verdicts:
    """Watches one answer and keeps how sure each of its verdicts is.

    Attributes:
        made: Confidence of each choice made so far, by JSON pointer in the fields.
        begun: Of each choice, how many tokens were written before it, and what was then left to write of each value.
        mask_mass: Probability that the model, unmasked, gave to the tokens that are allowed next; set before `weigh`.
    """

    def __init__(self) -> None:
        self.made: dict[str, Confidence] = {}
        self.begun: dict[str, tuple[int, dict[str, bytes]]] = {}
        self.mask_mass = 1.0
        self._written = 0
        self._pending: dict[str, _Pending] = {}

    def weigh(
        self, choices: Mapping[str, Mapping[str, bytes]], scores: torch.Tensor, pieces: Mapping[int, bytes]
    ) -> None:
        """Note what the model thinks of the choices at hand, before its token is taken.

        Args:
            choices: By JSON pointer, what is left to write of each value that may be chosen.
            scores: What the token is drawn by, shape (vocabulary,).
            pieces: Text of each token that may come next.
        """
        for pointer, rests in choices.items():
            if pointer not in self.made and pointer not in self._pending:
                self._pending[pointer] = _Pending(pointer, dict(rests), self.mask_mass)
                self.begun[pointer] = self._written, dict(rests)
        if self._pending:
            tokens = list(pieces)
            weights = scores.softmax(dim=-1)[tokens].tolist()
            for pending in self._pending.values():
                pending.weigh(pieces, dict(zip(tokens, weights, strict=True)))

    def advance(self, token: int, piece: bytes) -> None:
        """Go on after `token`, whose text is `piece`."""
        self._written += 1
        for pointer, pending in list(self._pending.items()):
            before = pending.rests
            pending.advance(token, piece)
            if len(pending.rests) < 2:
                del self._pending[pointer]
                self._settle(pending, before)

    @property
    def is_waiting(self) -> bool:
        """Whether a choice is being made."""
        return bool(self._pending)

    def _settle(self, pending: _Pending, before: Mapping[str, bytes]) -> None:
        (chosen,) = pending.rests or [next((value for value, rest in before.items() if not rest), None)]
        if chosen is not None:
            self.made[pending.pointer] = Confidence(
                p=pending.masses[chosen],
                choices=dict(pending.masses),
                mask_mass=pending.mask_mass,
                unresolved=pending.unresolved,
            )


def _left(rests: Mapping[str, bytes], piece: bytes) -> dict[str, bytes]:
    """What is left to write of each value that `piece` may belong to; where one value begins another, the longer one.

    A piece that goes on after a value belongs to it only if it does not go on in another.
    """
    open_still = {value: rest[len(piece) :] for value, rest in rests.items() if rest.startswith(piece)}
    ended = {value: len(rest) for value, rest in rests.items() if piece.startswith(rest) and value not in open_still}
    if open_still:
        return open_still
    return {value: b"" for value, length in ended.items() if length == max(ended.values())}
