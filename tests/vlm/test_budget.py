"""A token budget never costs an answer: whatever the model wants, it is complete and valid, and verdicts stay open."""

import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hazardlens.errors import ConstraintError, SchemaError
from hazardlens.record import choice_name
from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.grammar import GrammarClosing
from hazardlens.schema.places import Fixed
from hazardlens.vlm.decode import Decoding
from hazardlens.vlm.mask import MaskFactory, MaskProcessor
from tests.random_schema import GRAMMARS, RECURSIVE, schemas
from tests.random_vlm import END, tokenizer

Logits = Callable[[list[int]], torch.Tensor]
ROWS = 480
MARGINS = st.one_of(st.just(0), st.integers(1, 6), st.integers(7, 200))


@pytest.fixture(scope="module")
def masks() -> MaskFactory:
    words = tokenizer("<image>")
    return MaskFactory(words, vocab_rows=ROWS, eos_token_ids=[words.convert_tokens_to_ids(END)])


def random_logits(seed: int, sharpness: float) -> Logits:
    """What a model of random weights thinks: the same after the same tokens."""

    def think(tokens: list[int]) -> torch.Tensor:
        state = random.Random(f"{seed} {tokens}").getrandbits(60)
        return sharpness * torch.randn(1, ROWS, generator=torch.Generator().manual_seed(state))

    return think


def start(masks: MaskFactory, schema: GroundedSchema, budget: int | None, seed: int = 0) -> Decoding:
    most, is_bounded = schema.token_budget(budget, lambda: masks.shortest_tokens(schema))
    return Decoding(
        session=masks.session(schema),
        generator=torch.Generator().manual_seed(seed),
        max_new_tokens=most,
        is_bounded=is_bounded,
    )


def write(decoding: Decoding, logits: Logits, *, sample: bool, watch: Callable[[Decoding], None] | None = None) -> None:
    mask = MaskProcessor(decoding.session)
    decoding.begin()
    while not decoding.over:
        if watch:
            watch(decoding)
        scores = mask(torch.zeros(1, 1), logits(decoding.tokens))
        decoding.take(decoding.pick(scores, sample=sample))


def load(document: dict[str, Any]) -> GroundedSchema:
    try:
        return FieldSchema.load(document).ground(0)
    except SchemaError:
        assume(False)
        raise


def check(masks: MaskFactory, document: dict[str, Any], margin: int, seed: int, sample: bool) -> None:
    schema = load(document)
    budget = masks.shortest_tokens(schema) + margin
    logits = random_logits(seed, 3.0)
    decoding = start(masks, schema, budget, seed)
    write(decoding, logits, sample=sample, watch=verdicts_are_open)
    assert decoding.complete
    assert len(decoding.tokens) <= budget
    text = masks.text(decoding.tokens)
    judge = document if "type" in document else schema.document
    jsonschema.Draft202012Validator(json.loads(json.dumps(judge))).validate(schema.parse(text))
    unlimited = start(masks, schema, None, seed)
    write(unlimited, logits, sample=sample)
    for one in (decoding, unlimited):
        verdicts_are_told(one, schema.parse(masks.text(one.tokens)))
    cuts = [cut for cut in (decoding.cut_at, unlimited.cut_at) if cut is not None]
    same = min([len(decoding.tokens), *cuts])
    assert decoding.tokens[:same] == unlimited.tokens[:same]


def verdicts_are_open(decoding: Decoding) -> None:
    """Every value that could still be chosen can be chosen within the budget, but for items that need not be there."""
    session = decoding.session
    if isinstance(session._closing, GrammarClosing):
        return
    states = session._closing._nodes[session._place].states
    if any(isinstance(state, Fixed) and state.grows and not state.at for state in states):
        return
    for rests in session._closing.choices(session._place).values():
        allowed = session.allowed().nonzero()[:, 0].tolist()
        pieces = {token: session._words.decode_bytes([token]) for token in allowed if decoding.fits([token])}
        for rest in rests.values():
            assert any(rest.startswith(piece) or piece.startswith(rest) for piece in pieces.values()), rest


def verdicts_are_told(decoding: Decoding, fields: Any) -> None:
    """The confidence in each choice is that in the value which the answer has there, and adds up."""
    for pointer, own in decoding.session.verdicts.made.items():
        value = fields
        for part in pointer.split("/")[1:]:
            value = value[int(part) if isinstance(value, list) else part.replace("~1", "/").replace("~0", "~")]
        assert own.p == own.choices[choice_name(value)] > 0
        assert sum(own.choices.values()) + own.unresolved == pytest.approx(1, abs=1e-3)
        assert len(own.choices) > 1


CASES = {
    "document": schemas(),
    "margin": MARGINS,
    "seed": st.integers(0, 2**32),
    "sample": st.booleans(),
}
QUIET = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=300, **QUIET)
@given(**CASES)
def test_every_answer_is_complete_and_valid_at_any_budget(
    masks: MaskFactory, document: dict[str, Any], margin: int, seed: int, sample: bool
) -> None:
    check(masks, document, margin, seed, sample)


@pytest.mark.full
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, **QUIET)
@given(**CASES)
def test_ten_thousand_answers_are_complete_and_valid_at_any_budget(
    masks: MaskFactory, document: dict[str, Any], margin: int, seed: int, sample: bool
) -> None:
    check(masks, document, margin, seed, sample)


def test_a_budget_below_the_least_is_an_error_with_both_numbers(masks: MaskFactory) -> None:
    schema = FieldSchema.load("hazard").ground(5)
    least = masks.shortest_tokens(schema)
    with pytest.raises(ConstraintError, match=rf"{least} tokens.*{least - 1}"):
        start(masks, schema, least - 1).begin()


@pytest.mark.parametrize("name", RECURSIVE)
def test_every_answer_of_a_recursive_schema_is_complete_at_any_budget(masks: MaskFactory, name: str) -> None:
    document = {"type": "object", "properties": {name: {"$ref": f"#/$defs/{name}"}}, "required": [name]}
    for margin in (0, 3, 60):
        check(masks, {**document, "$defs": RECURSIVE}, margin, margin, sample=bool(margin))


@pytest.mark.parametrize("text", GRAMMARS)
def test_every_answer_of_a_grammar_is_complete_at_any_budget(masks: MaskFactory, text: str) -> None:
    for margin in (0, 2, 40):
        for seed in range(2):
            check(masks, {"lark": text}, margin, seed, sample=bool(seed % 2))


@pytest.mark.parametrize("document", [{"choices": ["fire", "fired"]}, {"lark": 'start: "fire" "d"?'}])
def test_at_the_least_budget_an_answer_that_others_begin_with_can_still_be_given(
    masks: MaskFactory, document: dict[str, Any]
) -> None:
    schema = FieldSchema.load(document).ground(0)
    wanted = [*masks.write(b"fire"), *masks._ends]
    decoding = start(masks, schema, masks.shortest_tokens(schema))

    def prefer(tokens: list[int]) -> torch.Tensor:
        scores = torch.zeros(1, ROWS)
        scores[0, wanted[len(tokens)]] = 9
        return scores

    write(decoding, prefer, sample=False)
    assert decoding.complete
    assert masks.text(decoding.tokens) == "fire"


def test_an_answer_that_may_be_empty_can_be_empty_at_the_least_budget(masks: MaskFactory) -> None:
    schema = FieldSchema.load({"gbnf": 'root ::= "a" |'}).ground(0)
    decoding = start(masks, schema, masks.shortest_tokens(schema))
    (end,) = masks._ends
    write(decoding, lambda _: torch.zeros(1, ROWS).index_fill(1, torch.tensor([end]), 9.0), sample=False)
    assert decoding.complete
    assert masks.text(decoding.tokens) == ""
    assert schema.parse("") == {"text": ""}
