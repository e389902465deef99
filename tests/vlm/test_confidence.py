"""How sure a model is of its verdicts, against every answer that the masked process could give."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, TopKLogitsWarper, TopPLogitsWarper

from hazardlens.record import Confidence, choice_name
from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.vlm.decode import Decoding
from hazardlens.vlm.mask import MaskFactory, MaskProcessor
from tests.random_vlm import END, tokenizer
from tests.vlm.test_budget import ROWS, Logits, random_logits, start

HAZARDS = ["none", "near", "fire", "fired"]
CASES: dict[str, Any] = {
    "enum": {"enum": HAZARDS},
    "boolean": {"type": "boolean"},
    "numbers that begin alike": {"enum": [1, 12, 123, 2]},
    "mixed": {"enum": [None, True, "null", 7]},
    "union": {"anyOf": [{"const": "calm"}, {"enum": ["call", "fire"]}]},
    "labels that begin alike": {"choices": ["fire", "fired", "fine", "no"]},
    "labels of which one begins all others": {"choices": ["no", "none"]},
    "labels of which one begins all others, and more": {"choices": ["fire", "fire and smoke", "fire out"]},
    "labels that read like other values": {"choices": ["true", "7", '""', '""\\']},
    "numbers of which one begins all others": {"enum": [5, 50]},
    "numbers that begin one another": {"enum": [1, 10, 100]},
    "nested": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
}


@pytest.fixture(scope="module")
def masks() -> MaskFactory:
    words = tokenizer("<image>")
    return MaskFactory(words, vocab_rows=480, eos_token_ids=[words.convert_tokens_to_ids(END)])


def one_field(fragment: Any) -> GroundedSchema:
    if "choices" in fragment:
        return FieldSchema.load(fragment).ground(0)
    return FieldSchema.load({"type": "object", "properties": {"x": fragment}, "required": ["x"]}).ground(0)


def branches(decoding: Decoding, scores: torch.Tensor) -> Iterator[tuple[list[int], float]]:
    """What may be written next, and how likely: a token that the budget refuses gives way to a run, or to another."""
    probabilities = scores.softmax(-1)
    possible = [token for token in range(ROWS) if torch.isfinite(scores[token])]
    fitting = [token for token in possible if decoding.fits([token])]
    refused = sum(float(probabilities[token]) for token in possible if token not in fitting)
    run = decoding.session.run() if refused else []
    if run:
        yield run, refused
    for token in fitting:
        yield [token], float(probabilities[token]) / (1 if run else 1 - refused)


def all_answers(
    masks: MaskFactory, schema: GroundedSchema, logits: Logits, budget: int | None, before: list[list[int]]
) -> Counter[str]:
    """The probability of each answer that begins as written, by walking every path that mask and budget leave."""
    found: Counter[str] = Counter()

    def walk(taken: list[list[int]], probability: float) -> None:
        decoding = start(masks, schema, budget)
        decoding.begin()
        for tokens in taken:
            decoding.take(tokens)
        if decoding.over:
            found[masks.text(decoding.tokens)] += probability
            return
        scores = MaskProcessor(decoding.session)(torch.zeros(1, 1), logits(decoding.tokens))[0]
        for tokens, share in branches(decoding, scores):
            walk([*taken, tokens], probability * share)

    walk(before, 1.0)
    assert math.isclose(sum(found.values()), 1, rel_tol=1e-4)
    return found


def value_at(fields: Any, pointer: str) -> str | None:
    """Name of the value at a JSON pointer, None where there is none."""
    for part in pointer.split("/")[1:]:
        try:
            fields = fields[int(part) if isinstance(fields, list) else part]
        except (LookupError, ValueError):
            return None
    return None if isinstance(fields, list | dict) else choice_name(fields)


def check(
    masks: MaskFactory, schema: GroundedSchema, logits: Logits, seed: int, budget: int | None = None
) -> dict[str, Confidence]:
    """Hold the confidence in each choice of one answer against all answers that go the same way up to the choice."""
    decoding, steps = start(masks, schema, budget, seed), []
    mask, verdicts = MaskProcessor(decoding.session), decoding.session.verdicts
    weighed: dict[str, int] = {}
    decoding.begin()
    while not decoding.over:
        steps.append(decoding.pick(mask(torch.zeros(1, 1), logits(decoding.tokens)), sample=True))
        for pointer, pending in verdicts._pending.items():
            if pending.mask_mass is not None:
                weighed.setdefault(pointer, len(steps) - 1)
        decoding.take(steps[-1])
    assert decoding.complete
    text = masks.text(decoding.tokens)
    for pointer, own in verdicts.made.items():
        _, written, rests = verdicts.begun[pointer]
        alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*rests.values(), strict=False))
        before = masks.text(decoding.tokens[:written]) + bytes(letters[0] for letters in alike).decode()
        same = steps[: weighed[pointer]]
        likely = dict.fromkeys(own.choices, 0.0)
        for other, probability in all_answers(masks, schema, logits, budget, same).items():
            name = value_at(schema.parse(other), pointer) if other.startswith(before) else None
            if name is not None:
                likely[name] += probability
        for name, probability in likely.items():
            share = probability / sum(likely.values())
            assert own.choices[name] - 1e-4 <= share <= own.choices[name] + own.unresolved + 1e-4, (pointer, name)
        assert math.isclose(sum(own.choices.values()) + own.unresolved, 1, rel_tol=1e-4)
        assert own.p == own.choices[value_at(schema.parse(text), pointer)] > 0
        assert 0 < own.mask_mass < 1
    return dict(verdicts.made)


@pytest.mark.parametrize("fragment", CASES.values(), ids=CASES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_confidence_is_that_of_the_masked_process(masks: MaskFactory, fragment: Any, seed: int) -> None:
    assert len(check(masks, one_field(fragment), random_logits(seed, 2.0), seed)) == 1


def two_fields(first: Any, second: Any, required: Sequence[str] = ("a", "b")) -> GroundedSchema:
    own = {"type": "object", "properties": {"a": first, "b": second}, "required": [*required]}
    return FieldSchema.load(own).ground(0)


@pytest.fixture(scope="module")
def joining() -> MaskFactory:
    """A mask over tokens that hold the end of one value and the beginning of the next."""
    words = tokenizer("<image>")
    words.add_tokens([", ", ', "b": ', '1, "b": 1', '12, "b": 1', ', "b": 2', '12, "b"', '"b": 12}', "1, 1", "2, 12"])
    words.add_tokens(["e, t", ", f", ", t", "e]", '"n', 'n", "b": "n', 'no", "b": "', 'ne", "b": "no', '", "b": "none'])
    return MaskFactory(words, vocab_rows=ROWS, eos_token_ids=[words.convert_tokens_to_ids(END)])


BOOLEAN = {"type": "boolean"}
NUMBERS = {"enum": [1, 12, 2]}
ONE_TWO = {"enum": [1, 2]}
WORDS = {"enum": ["no", "none", "n"]}
TEXT = {"type": "string", "maxLength": 2}
SEVERAL: dict[str, tuple[Any, ...]] = {
    "numbers": (NUMBERS, NUMBERS),
    "words": (WORDS, WORDS),
    "boolean and numbers": (BOOLEAN, NUMBERS),
    "optional": ({"type": "array", "items": BOOLEAN, "maxItems": 2}, BOOLEAN),
    "an optional field": (NUMBERS, BOOLEAN, ["a"]),
    "required and optional": ({"type": "array", "items": NUMBERS, "minItems": 1, "maxItems": 2}, {"const": 1}),
    "either, after a blank": ({"anyOf": [ONE_TWO, {"type": "array", "items": ONE_TWO, "maxItems": 1}]}, {"const": 1}),
    "either": ({"anyOf": [WORDS, {"type": "array", "items": BOOLEAN, "maxItems": 1}]}, {"const": 1}),
}


TIGHT = [("optional", 1), ("either", 1), ("an optional field", 1)]


@pytest.mark.parametrize(("kind", "margin"), [*((kind, None) for kind in SEVERAL), *TIGHT])
def test_confidence_is_that_of_the_masked_process_with_joined_tokens_and_budgets(
    joining: MaskFactory, kind: str, margin: int | None
) -> None:
    schema = two_fields(*SEVERAL[kind])
    budget = None if margin is None else joining.shortest_tokens(schema) + margin
    told = [check(joining, schema, random_logits(seed, 2.0), seed, budget) for seed in range(2)]
    assert sum(map(len, told)) > 1


OBJECT = {"type": "object", "properties": {"k": ONE_TWO}, "additionalProperties": False}
ANY = [
    *(field for pair in SEVERAL.values() for field in pair[:2]),
    *(OBJECT, {"anyOf": [OBJECT, {"enum": ["n", "no"]}]}, {"enum": [1, "1"]}, {"type": ["boolean", "null"]}),
]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_confidence_is_that_of_the_masked_process_for_random_pairs_of_fields(joining: MaskFactory) -> None:
    rng, told = random.Random(0), 0
    for seed in range(200):
        schema = two_fields(rng.choice(ANY), rng.choice(ANY), rng.choice([("a", "b"), ("a",), ()]))
        margin = rng.choice([None, 0, 1, 2])
        budget = None if margin is None else joining.shortest_tokens(schema) + margin
        told += len(check(joining, schema, random_logits(seed, rng.choice([1.0, 2.0, 3.0])), seed, budget))
    assert told > 150


def test_the_worked_example() -> None:
    """Logits over six tokens, three of them allowed: what the mask takes from `maybe` goes to the others by share."""
    logits = {"approved": 1.2, "rejected": 0.4, "review": 0.9, "maybe": 2.5, "{": 0.1, "}": 0.3}
    words = tokenizer(corpus=["approved rejected review maybe", "approved", "rejected", "review", "maybe"])
    ids = {word: words.convert_tokens_to_ids(word) for word in logits}
    scores = torch.full((1, 480), -torch.inf)
    for word, logit in logits.items():
        scores[0, ids[word]] = logit
    masks = MaskFactory(words, vocab_rows=480, eos_token_ids=[words.convert_tokens_to_ids(END)])
    schema = FieldSchema.load({"choices": ["approved", "rejected", "review"]}).ground(0)
    decoding = start(masks, schema, None)
    decoding.begin()
    before = scores.softmax(-1)[0]
    masked = MaskProcessor(decoding.session)(torch.zeros(1, 1), scores)
    after = masked.softmax(-1)[0]
    assert [round(float(before[ids[word]]), 2) for word in ("maybe", "approved")] == [0.56, 0.15]
    assert [round(float(after[ids[word]]), 2) for word in ("maybe", "approved")] == [0.0, 0.46]
    decoding.take(decoding.pick(masked, sample=False))
    assert decoding.complete
    own = decoding.session.verdicts.made["/label"]
    assert {name: round(p, 3) for name, p in own.choices.items()} == {
        "approved": 0.457,
        "rejected": 0.205,
        "review": 0.338,
    }
    assert (own.p, own.unresolved) == (own.choices["approved"], 0)
    assert own.mask_mass == pytest.approx(0.332, abs=1e-3)


@pytest.mark.parametrize("warper", [TopKLogitsWarper(1), TopPLogitsWarper(1e-6)])
def test_where_the_budget_refuses_all_that_top_k_and_top_p_left_others_are_tried(warper: Any) -> None:
    words = tokenizer("<image>")
    words.add_tokens(["1, "])
    masks = MaskFactory(words, vocab_rows=ROWS, eos_token_ids=[words.convert_tokens_to_ids(END)])
    schema = one_field({"type": "array", "items": NUMBERS, "minItems": 1, "maxItems": 2})
    decoding = start(masks, schema, masks.shortest_tokens(schema))
    logits = torch.zeros(1, ROWS).index_fill(1, torch.tensor(masks.write(b"1, ")), 9.0)
    process = LogitsProcessorList([MaskProcessor(decoding.session), warper])
    decoding.begin()
    while not decoding.over:
        decoding.take(decoding.pick(process(torch.zeros(1, 1, dtype=torch.long), logits), sample=True))
    assert decoding.complete
    assert decoding.cut_at is not None
    assert schema.parse(masks.text(decoding.tokens))["x"] in ([1], [2], [12])
    made = decoding.session.verdicts.made["/x/0"]
    assert sum(made.choices.values()) + made.unresolved == pytest.approx(1)
