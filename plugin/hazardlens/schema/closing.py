"""How many tokens an answer still needs from where it stands, however the model spells its verdicts.

The shortest way to the end leaves out whatever is optional and ends free text at once, but keeps every value of every
choice, number and alternative open. Along it, text that leaves no choice is written in one go and costs what the
tokenizer makes of it; wherever there is a choice, a byte costs a token, since a model may spell it as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

from hazardlens.errors import SchemaError
from hazardlens.schema.places import NO_CHOICE, End, Fixed, Places, State, closing_bytes, detours
from hazardlens.schema.shapes import Shape

_MOST_PLACES = 500_000

Choices: TypeAlias = dict[str, dict[str, bytes]]
"""By JSON pointer in the fields, what is left to write of each value that may be chosen, by its name."""


@dataclass(frozen=True, slots=True)
class Need:
    """What is needed from one place.

    Attributes:
        tokens: Tokens that complete the answer from here, whatever the model chooses.
        most: The same from the worst place on the way.
        run: Text that leaves no choice, from here on.
        after_run: Tokens that complete the answer from the end of `run`.
    """

    tokens: int
    most: int
    run: bytes = b""
    after_run: int = 0


class Following(Protocol):
    """Follows answers and tells what each still needs; places are numbers, 0 where nothing fits."""

    start: int

    @property
    def size(self) -> int:
        """How many places are remembered."""

    def follow(self, place: int, text: bytes) -> int:
        """The place after `text`, or 0 where it does not fit."""

    def need(self, place: int) -> Need:
        """What completes an answer from `place`."""

    def choices_ahead(self, place: int) -> Choices:
        """The choices of two values or more that fixed text leads to, with the text to write for each."""

    def choices_entered(self, place: int, text: bytes) -> Choices:
        """The choices of two values or more that `text` begins, with the text to write for each, from `place`."""

    def endings(self, place: int, value: bytes) -> tuple[bytes | None, ...]:
        """Fixed texts one of which shows that `value`, written from `place`, goes on no further; None for the end."""

    def is_free(self, place: int) -> bool:
        """Whether something else than fixed text and the values of choices may follow."""


@dataclass(slots=True)
class _Node:
    states: tuple[State, ...]
    steps: dict[int, int] = field(default_factory=dict)
    closing: tuple[int, ...] | None = None
    is_fixed: bool = False
    begins_choice: bool = False
    need: Need | None = None
    begun: Choices | None = None
    ahead: Choices | None = None


class Closing:
    """Follows answers of one shape and tells what each still needs; its places are numbers, 0 where nothing fits.

    Args:
        shape: The shape of the whole answer.
        count_tokens: Number of tokens that a piece of text is written in.
        pointer: JSON pointer of the answer in the fields.
    """

    def __init__(self, shape: Shape, count_tokens: Callable[[bytes], int], *, pointer: str = "") -> None:
        self._places = Places(shape, pointer)
        self._count_tokens = count_tokens
        self._counted: dict[bytes, int] = {b"": 0}
        self._nodes: list[_Node] = [_Node(())]
        self._numbers: dict[frozenset[State], int] = {frozenset(): 0}
        self.start = self._place(self._places.start())

    @property
    def size(self) -> int:
        """How many places are remembered."""
        return len(self._nodes)

    def follow(self, place: int, text: bytes) -> int:
        """The place after `text`, or 0 where it does not fit."""
        for byte in text:
            node = self._nodes[place]
            following = node.steps.get(byte)
            if following is None:
                steps = (after for state in node.states for after in self._places.step(state, byte))
                following = node.steps[byte] = self._place(steps)
            place = following
        return place

    def need(self, place: int) -> Need:
        """What completes an answer from `place`."""
        known = self._nodes[place].need
        return known or self._need(place)

    def choices_ahead(self, place: int) -> Choices:
        """The choices of two values or more that fixed text leads to, as of `choices`, with the text to write for each.

        A token may hold the end of that fixed text and the beginning of a value.
        """
        node = self._nodes[place]
        if node.ahead is None:
            fixed, place = self._fixed(place)
            found = self._begun(place)
            node.ahead = {p: {value: fixed + rest for value, rest in rests.items()} for p, rests in found.items()}
        return node.ahead

    def choices_entered(self, place: int, text: bytes) -> Choices:
        """The choices of two values or more that `text` begins, with the text to write for each, from `place`."""
        found: Choices = {}
        for at, byte in enumerate(text):
            node = self._nodes[place]
            if node.begins_choice:
                for pointer, rests in self._begun(place).items():
                    found[pointer] = {value: text[:at] + rest for value, rest in rests.items()}
            place = node.steps.get(byte) or self.follow(place, bytes([byte]))
        return found

    def endings(self, place: int, value: bytes) -> tuple[bytes | None, ...]:
        """Fixed texts one of which shows that `value`, written from `place`, goes on no further; None for the end.

        A quote shows it by itself; a number or a label may begin another.
        """
        place = self.follow(place, value)
        states = self._nodes[place].states
        if End() in states:
            return (None,)
        if value.endswith(b'"'):
            return (b"",)
        texts = (state.text[state.at :] for state in states if isinstance(state, Fixed) and state.choice == NO_CHOICE)
        return tuple(text + self._fixed(self.follow(place, text))[0] for text in dict.fromkeys(texts))

    def _fixed(self, place: int) -> tuple[bytes, int]:
        """The fixed text from `place` to the next choice or other parting of ways, and the place that it leads to."""
        fixed = bytearray()
        while not self._begun(place):
            following = {state.text[state.at] for state in self._nodes[place].states if isinstance(state, Fixed)}
            if len(following) != 1 or self.is_free(place) or End() in self._nodes[place].states:
                break
            fixed += bytes(following)
            place = self.follow(place, bytes(following))
        return bytes(fixed), place

    def _begun(self, place: int) -> Choices:
        """The choices of two values or more that begin at `place` and share it with nothing free."""
        node = self._nodes[place]
        if node.begun is None:
            node.begun = self._beginning(place) if node.begins_choice and not self.is_free(place) else {}
        return node.begun

    def _beginning(self, place: int) -> Choices:
        found = {pointer: rests for pointer, rests in self.choices(place).items() if len(rests) > 1}
        if all(isinstance(state, Fixed) and state.choice != NO_CHOICE for state in self._nodes[place].states):
            return found
        return {
            pointer: rests
            for pointer, rests in found.items()
            if not any(map(partial(self._leads_free, place), rests.values()))
        }

    def _leads_free(self, place: int, value: bytes) -> bool:
        """Whether something free could be written as well on the way through a value."""
        for at in range(len(value) - 1):
            place = self.follow(place, value[at : at + 1])
            if self.is_free(place):
                return True
        return False

    def choices(self, place: int) -> Choices:
        """The values of each choice that is being made at `place`, with what is left to write of each.

        Returns:
            By JSON pointer of the choice in the answer, the name of each value and its rest.
        """
        found: Choices = {}
        for state in self._nodes[place].states:
            if isinstance(state, Fixed) and state.choice != NO_CHOICE:
                found.setdefault(self._places.pointer(state), {})[self._places.name(state)] = state.text[state.at :]
        return found

    def is_free(self, place: int) -> bool:
        """Whether something else than fixed text and the values of choices may follow."""
        return any(not isinstance(state, Fixed | End) for state in self._nodes[place].states)

    def _place(self, states: Iterable[State]) -> int:
        ordered = tuple(dict.fromkeys(states))
        key = frozenset(ordered)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._nodes)
            begins = any(isinstance(state, Fixed) and state.choice != NO_CHOICE and not state.at for state in ordered)
            self._nodes.append(_Node(ordered, begins_choice=begins))
        return number

    def _need(self, place: int) -> Need:
        waiting = [place]
        most = len(self._nodes) + _MOST_PLACES
        while waiting:
            if len(self._nodes) > most:
                raise SchemaError("no way was found to end an answer", help="Make the schema simpler.")
            node = self._nodes[waiting[-1]]
            unknown = [number for number in self._ways(waiting[-1]) if self._nodes[number].need is None]
            if unknown:
                waiting += unknown
            else:
                node.need = self._judged(node)
                waiting.pop()
        return self.need(place)

    def _ways(self, place: int) -> tuple[int, ...]:
        """Where the shortest ways to the end lead next."""
        node = self._nodes[place]
        if node.closing is None:
            own, any_of = self._closing_bytes(node.states)
            spare = [next((byte for byte in kind if byte not in own), None) for kind in any_of]
            node.is_fixed = len(own) == 1 and not any_of and End() not in node.states
            taken = [*own, *(byte for byte in spare if byte is not None)]
            node.closing = tuple({self.follow(place, bytes([byte])): None for byte in taken})
        return node.closing

    @staticmethod
    def _closing_bytes(states: tuple[State, ...]) -> tuple[dict[int, None], set[bytes]]:
        # Neither what is optional is begun, nor what leads back to where it began.
        wanted = [state for state in states if not (isinstance(state, Fixed) and state.grows)] or states
        fewest = min(map(detours, wanted), default=0)
        needed = [state for state in wanted if detours(state) == fewest]
        own: dict[int, None] = {}
        any_of: set[bytes] = set()
        for state in needed:
            explicit, examples = closing_bytes(state)
            own.update(dict.fromkeys(explicit))
            any_of.update([examples] if examples else [])
        return own, any_of

    def _judged(self, node: _Node) -> Need:
        needs = [self.need(number) for number in node.closing or ()]
        if not needs:
            return Need(0, 0)
        if not node.is_fixed:
            most = max(need.most for need in needs)
            return Need(1 + most, 1 + most)
        (following,) = needs
        byte = next(iter(self._closing_bytes(node.states)[0]))
        run = bytes([byte]) + following.run
        after = following.after_run if following.run else following.tokens
        tokens = self._count(run) + after
        return Need(tokens, max(tokens, following.most), run, after)

    def _count(self, run: bytes) -> int:
        if run not in self._counted:
            self._counted[run] = self._count_tokens(run)
        return self._counted[run]
