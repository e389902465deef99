"""Reads grammars in Lark's notation, and in GBNF, which llguidance turns into it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from llguidance.gbnf_to_lark import gbnf_to_lark

from hazardlens.schema.grammar.regex import read_regex
from hazardlens.schema.grammar.rules import Grammar
from hazardlens.schema.grammar.tree import Alt, Node, Ref, Repeat, Seq, chars, literal

_TOKENS = re.compile(
    r"""(?P<blank>[ \t\r\n]+|//[^\n]*|\#[^\n]*)
    |(?P<string>"(?:\\.|[^"\\\n])*"i?)
    |(?P<regex>/(?!/)(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n\[])+/[a-z]*)
    |(?P<name>[!?]{0,2}[A-Za-z_][A-Za-z_0-9]*)
    |(?P<number>-?[0-9]+)
    |(?P<directive>%[a-z]*)
    |(?P<mark>->|\.\.|[:|()\[\]?*+~{},.])
    """,
    re.VERBOSE,
)
_TIMES = {"?": (0, 1), "*": (0, None), "+": (1, None)}
_MOST_TIMES = 10_000
_COMMON = r"""
DIGIT: "0".."9"
HEXDIGIT: "a".."f" | "A".."F" | DIGIT
INT: DIGIT+
SIGNED_INT: ["+" | "-"] INT
DECIMAL: INT "." INT? | "." INT
_EXP: ("e" | "E") SIGNED_INT
FLOAT: INT _EXP | DECIMAL _EXP?
SIGNED_FLOAT: ["+" | "-"] FLOAT
NUMBER: FLOAT | INT
SIGNED_NUMBER: ["+" | "-"] NUMBER
LCASE_LETTER: "a".."z"
UCASE_LETTER: "A".."Z"
LETTER: UCASE_LETTER | LCASE_LETTER
WORD: LETTER+
CNAME: ("_" | LETTER) ("_" | LETTER | DIGIT)*
WS_INLINE: (" " | /\t/)+
WS: /[ \t\f\r\n]/+
CR: /\r/
LF: /\n/
NEWLINE: (CR? LF)+
"""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def read_lark(text: str) -> Grammar:
    """The grammar that `text` describes in Lark's notation; it begins with the rule `start`.

    Raises:
        ValueError: It is malformed, or holds what is not supported; the message names the line.
    """
    reader = _Reader(text)
    reader.read()
    return Grammar(reader.rules, reader.lines)


def read_gbnf(text: str) -> Grammar:
    """The grammar that `text` describes in GBNF; it begins with the rule `root`.

    Raises:
        ValueError: It is malformed, or holds what is not supported.
    """
    try:
        converted = gbnf_to_lark(text)
    except Exception as error:  # it raises plain Exception where a rule is missing
        raise ValueError(str(error)) from error
    return read_lark(converted)


class _Reader:
    """Reads one text by recursive descent."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Node] = {}
        self.lines: dict[str, int] = {}
        self._tokens = _tokens(text)
        self._at = 0

    def read(self) -> None:
        while (token := self._next()).kind != "end":
            if token.kind == "directive":
                self._directive(token)
            elif token.kind == "name":
                self._define(token)
            else:
                raise ValueError(f"line {token.line}: expected a rule, found {token.text!r}")
        for name, line in self.lines.items():
            for other in _named(self.rules[name]):
                if other not in self.rules:
                    raise ValueError(f"line {line}: {name} names {other}, which there is not")

    def _define(self, token: _Token) -> None:
        name = token.text.lstrip("!?")
        if self._take("."):
            self._next()
        self._expect(":")
        if name in self.rules and name in self.lines:
            raise ValueError(f"line {token.line}: {name} is defined twice")
        self.rules[name], self.lines[name] = self._options(), token.line

    def _directive(self, token: _Token) -> None:
        if token.text == "%llguidance":
            self._expect("{")
            self._expect("}")
            return
        if token.text != "%import":
            raise ValueError(
                f"line {token.line}: {token.text} is not supported"
                + ("; write the blanks into the rules, where they may stand" if token.text == "%ignore" else "")
            )
        source = self._next()
        self._expect(".")
        wanted = self._names() if self._take("(") else [self._next().text]
        if source.text != "common":
            raise ValueError(f"line {token.line}: only common can be imported, found {source.text}")
        common = _Reader(_COMMON)
        common.read()
        alias = self._next().text if self._take("->") else None
        for name in wanted:
            if name not in common.rules:
                raise ValueError(f"line {token.line}: common.{name} is not known")
            self._add(name, common.rules)
            if alias:
                self.rules[alias], self.lines[alias] = Ref(name), token.line

    def _add(self, name: str, common: dict[str, Node]) -> None:
        if name not in self.rules:
            self.rules[name] = common[name]
            for other in _named(common[name]):
                self._add(other, common)

    def _names(self) -> list[str]:
        names = [self._next().text]
        while self._take(","):
            names.append(self._next().text)
        self._expect(")")
        return names

    def _options(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._begins_part():
            parts.append(self._repeated())
        if self._take("->"):
            self._next()
        return parts[0] if len(parts) == 1 else Seq(tuple(parts))

    def _begins_part(self) -> bool:
        token = self._tokens[self._at]
        if token.kind != "name":
            return token.kind in ("string", "regex") or token.text in ("(", "[")
        after = self._at + (3 if self._tokens[self._at + 1].text == "." else 1)
        return self._tokens[min(after, len(self._tokens) - 1)].text != ":"

    def _repeated(self) -> Node:
        part = self._part()
        while True:
            token = self._tokens[self._at]
            if token.text in _TIMES:
                self._next()
                part = Repeat(part, *_TIMES[token.text])
            elif self._take("~"):
                low = self._count()
                part = self._times(part, low, self._count() if self._take("..") else low, token.line)
            elif self._take("{"):
                low = 0 if self._tokens[self._at].text == "," else self._count()
                high: int | None = low
                if self._take(","):
                    high = None if self._tokens[self._at].text == "}" else self._count()
                self._expect("}")
                part = self._times(part, low, high, token.line)
            else:
                return part

    @staticmethod
    def _times(part: Node, low: int, high: int | None, line: int) -> Node:
        if low > (low if high is None else high) or max(low, high or 0) > _MOST_TIMES:
            raise ValueError(f"line {line}: cannot repeat {low} to {high} times")
        return Repeat(part, low, high)

    def _count(self) -> int:
        token = self._next()
        if token.kind != "number" or int(token.text) < 0:
            raise ValueError(f"line {token.line}: expected a number of times, found {token.text!r}")
        return int(token.text)

    def _part(self) -> Node:
        token = self._next()
        try:
            if token.kind == "string":
                return self._string(token)
            if token.kind == "regex":
                pattern, _, flags = token.text[1:].rpartition("/")
                return read_regex(pattern.replace(r"\/", "/"), flags)
        except (SyntaxError, ValueError) as error:
            raise ValueError(f"line {token.line}: {error}") from error
        if token.kind == "name":
            if self._tokens[self._at].text == "{" and self._tokens[self._at + 1].kind not in ("number", "mark"):
                raise ValueError(f"line {token.line}: templates are not supported")
            return Ref(token.text)
        inner = self._options()
        self._expect(")" if token.text == "(" else "]")
        return inner if token.text == "(" else Repeat(inner, 0, 1)

    def _string(self, token: _Token) -> Node:
        text = _unquoted(token.text)
        if not self._take(".."):
            return literal(text, ignore_case=token.text.endswith("i"))
        last = _unquoted(self._next().text)
        if len(text) != 1 or len(last) != 1 or text > last:
            raise ValueError(f"a range goes from one character to a later one, found {text!r} to {last!r}")
        return chars([(ord(text), ord(last))])

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take(self, mark: str) -> bool:
        found = self._tokens[self._at]
        if found.kind != "mark" or found.text != mark:
            return False
        self._next()
        return True

    def _expect(self, mark: str) -> None:
        found = self._tokens[self._at]
        if not self._take(mark):
            raise ValueError(f"line {found.line}: expected {mark!r}, found {found.text or 'the end'!r}")


def _tokens(text: str) -> list[_Token]:
    found, at, line = [], 0, 1
    while at < len(text):
        match = _TOKENS.match(text, at)
        if match is None:
            raise ValueError(f"line {line}: cannot read {text[at : at + 20]!r}")
        if match.lastgroup != "blank":
            found.append(_Token(str(match.lastgroup), match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*found, _Token("end", "", line)]


def _unquoted(token: str) -> str:
    return str(ast.literal_eval(token.removesuffix("i")))


def _named(node: Node) -> list[str]:
    if isinstance(node, Ref):
        return [node.name]
    if isinstance(node, Repeat):
        return _named(node.part)
    parts = node.parts if isinstance(node, Seq) else node.options if isinstance(node, Alt) else ()
    return [name for part in parts for name in _named(part)]
