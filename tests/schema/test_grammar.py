"""Grammars: what the text says is what the mask takes, what the parser follows, and what always comes to an end."""

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import LarkError

from hazardlens.errors import SchemaError
from hazardlens.schema import AnswerError, FieldSchema, probe
from hazardlens.schema.grammar import GrammarClosing, read_gbnf, read_lark

REPORT = r"""
// One finding after the other, then a verdict.
start: finding (", " finding)* "; " verdict
finding: WHAT " at " PLACE | "nothing"
WHAT.2: /[a-z]+(_[a-z]+)?/i
PLACE: "gate" | "crane"i | "é" .. "ë"
?verdict: "none" | "fire" | "vehicle_proximity" -> near
"""
SUM = """
%import common.INT
start: sum
sum: sum "+" product | product
product: product "*" atom | atom
atom: INT | "(" sum ")" | "-" atom
"""
GBNF = r"""
# A list, or one of two words.
root ::= "[" item ("," item)* "]" | ("yes" | "no") ws
item ::= [a-c]{1,3} | "\"" [^"\\]* "\"" | root
ws ::= [ ]?
"""
CASES: list[tuple[str, str, list[str], list[str]]] = [
    (
        "lark",
        REPORT,
        ["nothing; none", "A at CRANE, b_c at ê; fire", "nothing, nothing; vehicle_proximity"],
        ["nothing", "a at gate; maybe", "a_ at gate; none", "1 at gate; none", "nothing ; none", "a at É; fire"],
    ),
    ("lark", SUM, ["1", "12+3*(4+-5)", "((7))*8"], ["", "1+", "(1", "1++2", "a"]),
    ("gbnf", GBNF, ["yes", "no ", "[a,bc,[yes]]", '["é😀",""]'], ["", "[", "[]", "[abcd]", "no  ", '["\\"]']),
    ("gbnf", 'root ::= [/]+ "\\"" "a/b"', ['/"a/b', '//"a/b'], ['"a/b']),
    ("gbnf", 'root ::= [^\\n"\\\\]+ "\\\\" "\\n"', ["ab\\\n"], ['a"\\\n']),
    ("gbnf", 'root ::= "é" [\\x41-\\x43] [-a]', ["éB-", "éCa"], ["éD-"]),
    ("gbnf", 'root ::= (root-part | "x"){2}\nroot-part ::= "ab" | "cd"', ["abx", "xcd"], ["ab"]),
    ("gbnf", 'root ::= "a" |', ["a"], ["b"]),
    ("lark", 'start: /a+/ "ab" /[^b]/~2..3', ["aabxy", "aaabxyz"], ["ab", "abxy", "aabx", "aabxyzz"]),
    ("lark", 'start: "a"? "b"~2 ["c"] (/\\d/ | /\\s/)', ["bb1", "abbc ", "abb٣"], ["b1", "abbcc1"]),
]


@pytest.mark.parametrize(("notation", "text", "good", "bad"), CASES)
def test_reading_mask_and_parser_agree(notation: str, text: str, good: list[str], bad: list[str]) -> None:
    grounded = FieldSchema.load({notation: text}).ground(3)
    for answer in good:
        assert probe.accepts(grounded.grammar(), answer), answer
        assert grounded.parse(answer) == {"text": answer}
        assert follows(grounded.closing(len), answer), answer
    for answer in bad:
        assert not probe.accepts(grounded.grammar(), answer), answer
        assert not follows(grounded.closing(len), answer), answer
        with pytest.raises(AnswerError):
            grounded.parse(answer)


def follows(closing: GrammarClosing, text: str) -> bool:
    place = closing.follow(closing.start, text.encode())
    return bool(place) and closing.need(place).tokens == 0


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ('start: "none" | "fire" | "vehicle_proximity"', 17),
        ('start: /[a-z]{3,40}/ ("yes" | "no")', 6),
        (SUM, 1),
        ('start: "(" start ")" | "x"', 1),
        ('start: a\na: "(" b ")"\nb: a | "xy"', 4),
        ('start: "a"* ("b" | "cd")+', 2),
        ('start: "ü" | "o"', 2),
        ("start: /[^a]{2}/", 2),
    ],
)
def test_the_least_budget_counts_alternatives_at_their_longest_and_repetitions_at_their_fewest(
    text: str, tokens: int
) -> None:
    assert FieldSchema.load({"lark": text}).ground(0).shortest_tokens(len) == tokens


def test_what_leaves_no_choice_on_the_way_to_the_end_is_told(tmp_path: Path) -> None:
    closing = GrammarClosing(read_lark('start: "(" start ")" | /[a-z]+/ " ok"'))
    place = closing.follow(closing.start, b"((ab")
    assert (closing.need(place).tokens, closing.need(place).run) == (5, b" ok))")
    half = closing.follow(GrammarClosing(read_lark("start: /[é]/")).start, b"\xc3")
    assert half == 0


def test_a_finite_grammar_has_a_longest_answer_and_one_with_a_loop_has_none() -> None:
    assert FieldSchema.load({"lark": 'start: "a"~1..3 ("é" | "b")'}).ground(0).longest_bytes == 5
    endless = FieldSchema.load({"lark": SUM}).ground(0)
    assert endless.longest_bytes is None
    assert endless.token_budget(None, lambda: 7) == (1031, True)


def test_a_grammar_is_read_from_a_file_of_its_own(tmp_path: Path) -> None:
    for name, text in (("answer.lark", SUM), ("answer.gbnf", GBNF)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        schema = FieldSchema.load(tmp_path / name)
        assert schema.name == "answer"
        assert list(schema.frame_properties) == ["text"]
    with pytest.raises(SchemaError, match="no schema file"):
        FieldSchema.load(tmp_path / "absent.lark")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"lark": 3}, "/lark: expected the text"),
        ({"lark": 'stop: "a"'}, "no rule called start"),
        ({"lark": 'start: "a" other'}, "line 1: start names other"),
        ({"lark": "start: a\na: b\nb: a"}, "/lark: an answer can never end: start .line 1., a .line 2., b .line 3."),
        ({"lark": 'start: "(" start ")"'}, "can never end: start"),
        ({"lark": 'start: "a"\nstart: "b"'}, "line 2: start is defined twice"),
        ({"lark": "start: /a(?=b)/"}, "line 1: a grammar cannot hold assert"),
        ({"lark": "start: /^a$/"}, "line 1: a grammar cannot hold at"),
        ({"lark": "start: /(/"}, "line 1: .*no regular expression"),
        ({"lark": 'start: "a"\n%ignore " "'}, "line 2: %ignore is not supported; write the blanks"),
        ({"lark": 'start: "a" ~ 3..2'}, "line 1: cannot repeat 3 to 2 times"),
        ({"lark": 'start: "b".."a"'}, "line 1: a range goes"),
        ({"lark": 'start: ("a"'}, r"line 1: expected '\)'"),
        ({"lark": "start: @"}, "line 1: cannot read '@'"),
        ({"lark": "%import python.NAME\nstart: NAME"}, "line 1: only common"),
        ({"gbnf": 'root ::= "a" other'}, "/gbnf: .*other"),
        ({"gbnf": 'root ::= "(" root ")"'}, "/gbnf: an answer can never end"),
        ({"lark": 'start: "a"', "gbnf": 'root ::= "a"'}, "expected one of"),
    ],
)
def test_what_cannot_be_held_is_refused_with_its_place(document: dict[str, object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        FieldSchema.load(document)


def parts() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(['"a"', '"b"', '"ab"', "/[ab]/", "/a+b?/", "start", "x", "y"])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(" ".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda options: f"({' | '.join(options)})"),
            st.tuples(inner, st.sampled_from("?*+")).map(lambda pair: f"({pair[0]}){pair[1]}"),
        ),
        max_leaves=5,
    )


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(start=parts(), x=parts(), y=parts())
def test_random_grammars_take_what_another_parser_takes(start: str, x: str, y: str) -> None:
    text = f"start: {start}\nx: {x}\ny: {y}\n"
    try:
        grammar = read_lark(text)
    except ValueError:
        assume(False)
        raise
    closing, mask = GrammarClosing(grammar), grammar.to_llguidance()
    judge = oracle(text)
    for length in range(1, 5):
        for letters in itertools.product("ab", repeat=length):
            word = "".join(letters)
            good = follows(closing, word)
            assert good is probe.accepts(mask, word), (text, word)
            if judge is not None:
                assert good is takes(judge, word), (text, word)
            check_needs(closing, word)


def oracle(text: str) -> Lark | None:
    try:
        return Lark(text, parser="earley", lexer="dynamic_complete", ambiguity="resolve")
    except LarkError:
        return None


def takes(judge: Lark, word: str) -> bool:
    try:
        judge.parse(word)
    except LarkError:
        return False
    return True


def check_needs(closing: GrammarClosing, word: str) -> None:
    """From every place, some next byte leads to a place that needs one less."""
    place = closing.start
    for letter in ["", *word]:
        place = closing.follow(place, letter.encode())
        if not place:
            return
        need = closing.need(place).tokens
        after = [number for byte in b"ab" if (number := closing.follow(place, bytes([byte])))]
        assert need == 0 or min(closing.need(number).tokens for number in after) <= need - 1


def test_gbnf_is_read_as_the_same_grammar_in_lark() -> None:
    lark = 'start: ("a" | "b" start){1,2} [x]\nx: /[^a-y]/'
    both = read_gbnf('root ::= ("a" | "b" root){1,2} x?\nx ::= [^a-y]'), read_lark(lark)
    assert both[0].to_llguidance() == both[1].to_llguidance()
    assert both[0].need == both[1].need
