"""How sure a model is of its verdicts, against every answer that the masked process could give."""

import json
import math
from collections import Counter
from typing import Any

import pytest
import torch

from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.vlm.mask import MaskFactory, MaskProcessor
from tests.random_vlm import END, tokenizer
from tests.vlm.test_budget import Logits, random_logits, start, write

HAZARDS = ["none", "near", "fire", "fired"]
CASES: dict[str, Any] = {
    "enum": {"enum": HAZARDS},
    "boolean": {"type": "boolean"},
    "numbers that begin alike": {"enum": [1, 12, 123, 2]},
    "mixed": {"enum": [None, True, "null", 7]},
    "union": {"anyOf": [{"const": "calm"}, {"enum": ["call", "fire"]}]},
    "labels that begin alike": {"choices": ["fire", "fired", "fine", "no"]},
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


def all_answers(masks: MaskFactory, schema: GroundedSchema, logits: Logits) -> Counter[str]:
    """The probability of each answer, by walking every path that the mask leaves."""
    found: Counter[str] = Counter()

    def walk(taken: list[list[int]], probability: float) -> None:
        decoding = start(masks, schema, None)
        decoding.begin()
        for tokens in taken:
            decoding.take(tokens)
        if decoding.over:
            found[masks.text(decoding.tokens)] += probability
            return
        scores = MaskProcessor(decoding.session)(torch.zeros(1, 1), logits(decoding.tokens))[0]
        for token in torch.isfinite(scores).nonzero()[:, 0].tolist():
            walk([*taken, [token]], probability * float(scores.softmax(-1)[token]))

    walk([], 1.0)
    assert math.isclose(sum(found.values()), 1, rel_tol=1e-4)
    return found


@pytest.mark.parametrize("fragment", CASES.values(), ids=CASES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_confidence_is_that_of_the_masked_process(masks: MaskFactory, fragment: Any, seed: int) -> None:
    schema, logits = one_field(fragment), random_logits(seed, 2.0)
    decoding = start(masks, schema, None, seed)
    write(decoding, logits, sample=True)
    (own,) = decoding.session.verdicts.made.values()
    answers = all_answers(masks, schema, logits)
    written = dict.fromkeys(own.choices, 0.0)
    for text, probability in answers.items():
        written[name_of(schema.parse(text))] += probability
    for name, probability in written.items():
        assert own.choices[name] - 1e-4 <= probability <= own.choices[name] + own.unresolved + 1e-4
    assert math.isclose(sum(own.choices.values()) + own.unresolved, 1, rel_tol=1e-4)
    assert own.p == own.choices[name_of(schema.parse(masks.text(decoding.tokens)))] > 0
    assert 0 < own.mask_mass < 1


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


def name_of(value: Any) -> str:
    while isinstance(value, dict):
        (value,) = value.values()
    return value if isinstance(value, str) and value != "null" else json.dumps(value)
