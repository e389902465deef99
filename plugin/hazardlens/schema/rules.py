"""The llguidance grammar of a shape: Lark rules, one for each part, however often it is met.

It takes the same answers as `mask_schema`, of which llguidance compiles each place anew, for instance each entry of
`detections` with all that it may hold. Here entries that differ in their id only share the rule of what follows it.

llguidance's lexer takes the longest literal that fits, and does not go back. So none that may stand at a place is the
beginning of another there; numbers may be, for the byte after them ends them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

from llguidance import LLMatcher

from hazardlens.schema.shapes import Again, AnyOf, Array, Choice, Number, Object, Shape, Text
from hazardlens.schema.spelling import ITEM_SEPARATOR, KEY_SEPARATOR, spell

_ONE_SPELLING = {"x-guidance": {"whitespace_flexible": False}}

_Rest: TypeAlias = tuple[tuple[str, Shape, bool], ...]
"""The properties that may follow in an object."""


def mask_grammar(shape: Shape) -> str:
    """The llguidance grammar of the answers of a shape, in the one spelling of JSON."""
    rules = _Rules()
    lines = [f"start: {rules.of(shape)}"]
    while rules.waiting:
        name, body = rules.waiting.pop()
        lines.append(f"{name}: {body()}")
    return str(LLMatcher.grammar_from_lark("\n".join(lines)))


class _Rules:
    """Names rules.

    Attributes:
        waiting: Rules that have a name, and what gives their body; a body may name more of them.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Callable[[], str]]] = []
        self._names: dict[Hashable, str] = {}

    def of(self, shape: Shape) -> str:
        """What stands for a shape in a rule."""
        if isinstance(shape, Again):
            return self.of(shape.again)
        if isinstance(shape, Choice):
            return self._choice(shape.values)
        if isinstance(shape, Text | Number):
            schema = shape.as_held() if isinstance(shape, Text) else shape.to_schema()
            return self._rule(shape, lambda: "%json " + json.dumps({**schema, **_ONE_SPELLING}))
        if isinstance(shape, Object):
            return self._objects((shape.properties,), is_begun=False)
        if isinstance(shape, Array):
            return self._rule(id(shape), lambda: self._array(shape))
        if isinstance(shape, AnyOf):
            return self._rule(id(shape), lambda: self._any_of(shape))
        raise TypeError(f"no rule for {type(shape).__name__}")

    def _rule(self, key: Hashable, body: Callable[[], str], *, kind: str = "r") -> str:
        if key not in self._names:
            self._names[key] = f"{kind}{len(self._names)}"
            self.waiting.append((self._names[key], body))
        return self._names[key]

    def _choice(self, values: Sequence[Any]) -> str:
        plain = [spell(value) for value in values if not isinstance(value, dict | list)]
        ways = [self._container(value) for value in values if isinstance(value, dict | list)]
        if len(plain) == 1:
            ways.append(_literal(plain[0]))
        elif plain:
            ways.append(self._rule(tuple(plain), lambda: " | ".join(map(_literal, plain)), kind="C"))
        return ways[0] if len(ways) == 1 else f"({' | '.join(ways)})"

    def _container(self, value: dict[str, Any] | list[Any]) -> str:
        """One list or object, cut into literals as any other."""
        if isinstance(value, list):
            items = f" {_literal(ITEM_SEPARATOR)} ".join(self._choice([item]) for item in value)
            return f'"[" {items} "]"'
        pairs = [
            f"{_key(name, is_begun=position > 0)} {self._choice([part])}"
            for position, (name, part) in enumerate(value.items())
        ]
        return " ".join([*pairs, _end(is_begun=bool(pairs))])

    def _any_of(self, shape: AnyOf) -> str:
        objects = tuple(option.properties for option in shape.options if isinstance(option, Object))
        ways = [self.of(option) for option in shape.options if not isinstance(option, Object)]
        return " | ".join([*([self._objects(objects, is_begun=False)] if objects else []), *ways])

    def _array(self, shape: Array) -> str:
        prefix = shape.prefix[: shape.high]
        end = ""
        if shape.rest and shape.high > len(prefix):
            end = self._repeated(shape.rest, len(prefix) > 0, shape.low - len(prefix), shape.high - len(prefix))
        for at in reversed(range(len(prefix))):
            separator = f"{_literal(ITEM_SEPARATOR)} " if at else ""
            end = f"{separator}{self.of(prefix[at])} {end}"
            end = end if at < shape.low else f"({end})?"
        return f'"[" {end} "]"'

    def _repeated(self, item: Shape, is_begun: bool, low: int, high: int) -> str:
        part = self.of(item)
        more = f"({_literal(ITEM_SEPARATOR)} {part})"
        if is_begun:
            return f"{more}{{{max(0, low)},{high}}}"
        items = f"{part} {more}{{{max(0, low - 1)},{high - 1}}}" if high > 1 else part
        return items if low > 0 else f"({items})?"

    def _objects(self, rests: tuple[_Rest, ...], *, is_begun: bool) -> str:
        """Objects of which the same is written, and any of `rests` may follow."""
        key = (is_begun, tuple(tuple((name, id(shape), must) for name, shape, must in rest) for rest in rests))
        return self._rule(key, lambda: self._alternatives(rests, is_begun))

    def _alternatives(self, rests: tuple[_Rest, ...], is_begun: bool) -> str:
        if len(rests) == 1:
            return self._following(rests, is_begun)
        groups: dict[Hashable, list[_Rest]] = {}
        for rest in rests:
            name, shape, must = rest[0] if rest else ("", None, False)
            groups.setdefault((name, id(shape)) if must else id(rest), []).append(rest)
        if len(groups) == 1:
            return self._following(rests, is_begun)
        return " | ".join(self._objects(tuple(group), is_begun=is_begun) for group in groups.values())

    def _following(self, rests: tuple[_Rest, ...], is_begun: bool) -> str:
        """What follows where all of `rests` begin with the same property."""
        if not rests[0]:
            return _end(is_begun=is_begun)
        name, shape, must = rests[0][0]
        value = self.of(shape)
        more = self._objects(tuple(rest[1:] for rest in rests), is_begun=True)
        with_it = f"{_key(name, is_begun=is_begun)} {value} {more}"
        return with_it if must else f"{with_it} | {self._objects((rests[0][1:],), is_begun=is_begun)}"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(name: str, *, is_begun: bool) -> str:
    return _literal(f"{ITEM_SEPARATOR if is_begun else '{'}{spell(name)}{KEY_SEPARATOR}")


def _end(*, is_begun: bool) -> str:
    return _literal("}" if is_begun else "{}")
