"""How sure a model is of its verdicts, read off the probabilities of the tokens that it chose among.

A choice may take several tokens, and a value may be spelled in several ways. Each token that was possible either leads
to one value, whose probability it adds to, or leaves several open. If the model takes such a token, the choice goes on
from there; if not, what it would have said next is unknown, and its probability stays unresolved. Tokens that lead
elsewhere, past an item that need not be there or to another value of an earlier choice, do not count: what is told is
conditional on the text up to the choice and on that it is made at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from hazardlens.record import Confidence

Tokens: TypeAlias = tuple[int, ...]

Options: TypeAlias = Mapping[Tokens, tuple[bytes, float]]
"""Text and probability of all that may be written next."""

Rests: TypeAlias = Mapping[str, bytes]
"""What is left to write of each value of a choice, by its name."""


class Begun(NamedTuple):
    """Where a choice began.

    Attributes:
        place: The place in the answer, as the mask's closing numbers it.
        written: Tokens of the answer before it.
        rests: What was left to write of each value from there.
    """

    place: int
    written: int
    rests: Rests


@dataclass(slots=True)
class _Pending:
    """A choice that is being made; `mask_mass` is None until some token could tell two of its values apart."""

    rests: Rests
    mask_mass: float | None = None
    reach: float = 1.0
    masses: dict[str, float] = field(default_factory=dict)
    unresolved: float = 0.0

    def __post_init__(self) -> None:
        self.masses = dict.fromkeys(self.rests, 0.0)

    def weigh(self, options: Options, taken: Tokens, mask_mass: Callable[[], float]) -> bool:
        """Add up what each option would decide, of which one is `taken`; whether the choice is under way by then."""
        if self.mask_mass is None and not self._could_tell(options):
            return False
        left = {tokens: own for tokens, (piece, _) in options.items() if (own := _left(self.rests, piece))}
        if taken not in left or (self.mask_mass is None and all(len(own) == len(self.rests) for own in left.values())):
            return self.mask_mass is not None
        self.mask_mass = mask_mass() if self.mask_mass is None else self.mask_mass
        reach = self.reach
        for tokens, own in left.items():
            share = reach * options[tokens][1]
            if len(own) == 1:
                self.masses[next(iter(own))] += share
            elif tokens == taken:
                self.reach = share
            else:
                self.unresolved += share
        return True

    def _could_tell(self, options: Options) -> bool:
        """Whether an option is longer than what all values begin with."""
        least, most = min(self.rests.values()), max(self.rests.values())
        alike = next((at for at, (a, b) in enumerate(zip(least, most, strict=False)) if a != b), len(least))
        return any(len(piece) > alike for piece, _ in options.values())


class Verdicts:
    """Watches one answer and keeps how sure each of its verdicts is.

    Attributes:
        made: Confidence of each choice made so far, by JSON pointer in the fields.
        begun: Where each choice began, by the same.
    """

    def __init__(self) -> None:
        self.made: dict[str, Confidence] = {}
        self.begun: dict[str, Begun] = {}
        self._written = 0
        self._pending: dict[str, _Pending] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether a choice is being made."""
        return bool(self._pending)

    def weigh(
        self,
        place: int,
        choices: Mapping[str, Rests],
        options: Options,
        taken: Tokens,
        mask_mass: Callable[[], float],
    ) -> None:
        """Note what the model thinks of the choices at hand, before what it takes is written.

        Args:
            place: The place in the answer, which `Begun` remembers.
            choices: By JSON pointer, what is left to write of each value of the choices that may begin now.
            options: All that may be written now.
            taken: The option that is taken.
            mask_mass: Gives the probability that the model, unmasked, gave to the tokens that the mask allows.
        """
        for pending in self._pending.values():
            pending.weigh(options, taken, mask_mass)
        for pointer, rests in choices.items():
            if pointer not in self.begun:
                fresh = _Pending(rests)
                if fresh.weigh(options, taken, mask_mass):
                    self._begin(place, pointer, fresh)

    def enter(self, place: int, choices: Mapping[str, Rests]) -> None:
        """Note the choices that the next token begins, also where the model has no say in that token."""
        for pointer, rests in choices.items():
            if pointer not in self.begun:
                self._begin(place, pointer, _Pending(rests))

    def _begin(self, place: int, pointer: str, pending: _Pending) -> None:
        self._pending[pointer] = pending
        self.begun[pointer] = Begun(place, self._written, pending.rests)

    def advance(self, piece: bytes) -> None:
        """Go on after a token, whose text is `piece`."""
        self._written += 1
        for pointer, pending in list(self._pending.items()):
            pending.rests = _left(pending.rests, piece)
            if len(pending.rests) < 2:
                del self._pending[pointer]
                self._settle(pointer, pending)

    def _settle(self, pointer: str, pending: _Pending) -> None:
        if not pending.rests or pending.mask_mass is None:
            del self.begun[pointer]
            return
        (chosen,) = pending.rests
        total = sum(pending.masses.values()) + pending.unresolved
        choices = {value: mass / total for value, mass in pending.masses.items()}
        self.made[pointer] = Confidence(
            p=choices[chosen], choices=choices, mask_mass=pending.mask_mass, unresolved=pending.unresolved / total
        )


def tells_apart(rests: Rests, piece: bytes) -> bool:
    """Whether `piece` may belong to some of the values, but not to all."""
    return 0 < len(_left(rests, piece)) < len(rests)


def _left(rests: Rests, piece: bytes) -> dict[str, bytes]:
    """What is left to write of each value that `piece` may belong to; where one value begins another, the longer one.

    A piece that goes on after a value belongs to it only if it does not go on in another.
    """
    open_still = {value: rest[len(piece) :] for value, rest in rests.items() if rest.startswith(piece)}
    if open_still:
        return open_still
    ended = {value: len(rest) for value, rest in rests.items() if piece.startswith(rest)}
    return {value: b"" for value, length in ended.items() if length == max(ended.values())}
