"""Patterns mean what ECMA-262 says, to the mask and to the check alike."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hazardlens.errors import SchemaError
from hazardlens.schema import FieldSchema, probe
from hazardlens.schema.patterns import matches, plain
from hazardlens.schema.spelling import spell
from hazardlens.schema.validation import validator_for

Load = Callable[..., FieldSchema]
CASES: list[tuple[str, list[str], list[str]]] = [
    (r"^\d$", ["3"], ["٣", "3\n"]),
    (r"^\D$", ["٣", "a"], ["3"]),
    (r"^\w$", ["a", "_"], ["é", "-"]),
    (r"^\Wa", ["éa"], ["ea"]),
    (r"^\s$", [" ", "\ufeff", "\xa0", "\u2028", "\v"], ["\x85", "\x1c", "a"]),
    (r"^\S$", ["\x85", "\x1c", "a"], ["\ufeff", " "]),
    (r"^[\s-]$", ["\ufeff", "-"], ["\x85"]),
    (r"^[\S]$", ["\x85", "😀"], ["\ufeff"]),
    (r"^[^\S]$", ["\ufeff"], ["\x85"]),
    (r"^.$", ["é", "😀", "\x85"], ["\n", "\r", "\u2028", ""]),
    (r"^a$", ["a"], ["a\n"]),
    (r"^[]$", [], ["", "a"]),
    (r"^[^]$", ["\n", "]", "😀"], ["", "ab"]),
    (r"^[a&&b]{2}$", ["&b"], ["aab"]),
    (r"^[[:a:]]$", [":]", "[]"], ["a", "["]),
    (r"^[+--]$", ["+", ",", "-"], ["*", "."]),
    (r"^[\w-.]$", ["-", ".", "a"], ["+"]),
    (r"^[!~^-]$", ["!", "~", "^", "-"], ["a"]),
    (r"^[\]\\]$", ["]", "\\"], ["["]),
    (r"^[\b]$", ["\b"], ["b"]),
    (r"^\-\_\"\ \@\/$", ['-_" @/'], ["\\-"]),
    (r"^{.}]$", ["{a}]"], ["a"]),
    (r"^a{2,3}$", ["aa", "aaa"], ["a{2,3}", "a"]),
    (r"^a{,3}$", ["a{,3}"], ["aa"]),
    (r"^\cJ\0\x41\u0042\u{43}$", ["\n\0ABC"], ["J0ABC"]),
    (r"^\ud83d\ude00\u{1F600}$", ["😀😀"], ["😀"]),
    (r"^\p{Letter}[^\p{L}]$", ["é1"], ["1é", "ab"]),
    (r"^(?<n>a)(?:b|c)$", ["ab"], ["a"]),
    (r"^\$\.$", ["$."], ["$a"]),
]
CHECKED: list[tuple[str, list[str], list[str]]] = [
    (r"^(?!x)[a-z]+$", ["abc"], ["abc\n", "xa"]),
    (r"\bé", ["aé"], ["é"]),
    (r"^(?<n>\d)\k<n>$", ["33"], ["3٣", "34"]),
    (r"^(?=.{3}$)\w+$", ["abc"], ["éab", "ab"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), CASES)
def test_mask_and_check_read_a_pattern_alike(pattern: str, good: list[str], bad: list[str]) -> None:
    schema = {"type": "string", "pattern": plain(pattern), "maxLength": 8}
    reason = probe.refusal(schema)
    assert reason == "" or (not good and probe.is_unsatisfiable(reason))
    for text in good + bad:
        assert matches(pattern, text) is (text in good), text
        assert bool(good) is False or probe.accepts(probe.grammar(schema), spell(text)) is (text in good), text


@pytest.mark.parametrize(("pattern", "good", "bad"), CHECKED)
def test_what_is_only_checked_is_judged_as_ecma_262_has_it(
    one_field: Load, pattern: str, good: list[str], bad: list[str]
) -> None:
    schema = one_field({"type": "string", "maxLength": 8, "pattern": pattern})
    assert [(one.pointer, one.level) for one in schema.findings] == [("/properties/x/pattern", "checked")]
    for text in good + bad:
        assert (schema.ground(0).validate({"x": text}) == []) is (text in good), text


def test_the_pattern_is_written_out_for_our_mask_and_left_as_it_is_for_servers(one_field: Load) -> None:
    grounded = one_field({"type": "string", "pattern": r"^.\d$"}).ground(0)
    assert probe.accepts(grounded.grammar(), '{"x": "a3"}')
    assert not probe.accepts(grounded.grammar(), '{"x": "\u20283"}')
    assert grounded.mask_document["properties"]["x"]["pattern"] == r"^.\d$"


@pytest.mark.parametrize(
    ("keywords", "good", "bad"),
    [
        ({"patternProperties": {r"^\d$": {"type": "null"}}}, [{"3": None}, {"٣": 1}], [{"3": 1}]),
        (
            {"patternProperties": {r"^(a)\1$": True, r"^\d$": True}, "additionalProperties": False},
            [{"3": 1, "aa": 1}],
            [{"٣": 1}, {"3\n": 1}, {"33": 1}],
        ),
        (
            {"allOf": [{"patternProperties": {r"^\d$": True}}, {"$ref": "#/$defs/b"}], "unevaluatedProperties": False},
            [{"3": 1, "b": 1, "x": 1}],
            [{"٣": 1}, {"c": 1}],
        ),
        ({"propertyNames": {"pattern": r"^\w$"}}, [{"a": 1}], [{"é": 1}]),
    ],
)
def test_names_are_matched_alike(
    one_field: Load, keywords: dict[str, Any], good: list[dict[str, Any]], bad: list[dict[str, Any]]
) -> None:
    fragment = {"type": "object", "properties": {"x": {"const": 1}}, **keywords}
    grounded = one_field(fragment, **{"$defs": {"b": {"properties": {"b": True}}}}).ground(0)
    for value in good + bad:
        assert (grounded.validate({"x": value}) == []) is (value in good), value


@pytest.mark.parametrize("pattern", ["(", r"a\Z", r"\Aa", "(?P<n>a)", "(?i)a", "(?#a)b", "a++", "[b-a]", "[a", "a\\"])
def test_what_is_no_pattern_of_ecma_262_is_refused_with_the_reason(one_field: Load, pattern: str) -> None:
    with pytest.raises(SchemaError, match=r"/properties/x/pattern: .* is no regular expression of ECMA-262: "):
        one_field({"type": "string", "pattern": pattern})
    grounded = one_field({"type": "string", "format": "regex", "maxLength": 9}).ground(0)
    assert grounded.validate({"x": pattern})
    assert not grounded.validate({"x": r"\d+"})


PIECES = st.sampled_from([*"ab.-^$|()[]{}?*+,&~3\\", r"\s", r"\S", r"\d", r"\w", r"\-", "[^", "{2}", "(?:"])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(pattern=st.lists(PIECES, max_size=7).map("".join), text=st.text("ab.-&~3[]{},^\n\x85\ufeff ", max_size=4))
def test_random_patterns_are_read_alike(pattern: str, text: str) -> None:
    try:
        written = plain(pattern)
    except ValueError:
        return
    assert matches(written, text) is matches(pattern, text)
    schema = {"type": "string", "pattern": written, "maxLength": 4}
    if not probe.refusal(schema):
        assert probe.accepts(probe.grammar(schema), spell(text)) is matches(pattern, text)


@pytest.mark.parametrize("name", ["ecmascript-regex", "non-bmp-regex"])
def test_the_official_cases_of_ecma_262(shared_file: Callable[[str], Path], name: str) -> None:
    path = shared_file(f"data/json-schema-test-suite/draft2020-12/optional/{name}.json")
    for group in json.loads(path.read_text(encoding="utf-8")):
        validator = validator_for({key: value for key, value in group["schema"].items() if key != "$schema"})
        for test in group["tests"]:
            assert validator.is_valid(test["data"]) is test["valid"], (group["description"], test["description"])
