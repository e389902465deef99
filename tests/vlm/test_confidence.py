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
    "nested": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]},
}


@pytest.fixture(scope="module")
def masks() -> MaskFactory:
    words = tokenizer("<image>")
    return MaskFactory(words, vocab_rows=480, eos_token_ids=[words.convert_tokens_to_ids(END)])


def one_field(fragment: Any) -> GroundedSchema:
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
        value = schema.parse(text)["x"]
        written[name_of(value["ok"] if isinstance(value, dict) else value)] += probability
    for name, probability in written.items():
        assert own.choices[name] - 1e-4 <= probability <= own.choices[name] + own.unresolved + 1e-4
    assert math.isclose(sum(own.choices.values()) + own.unresolved, 1, rel_tol=1e-4)
    said = schema.parse(masks.text(decoding.tokens))["x"]
    assert own.p == own.choices[name_of(said["ok"] if isinstance(said, dict) else said)] > 0
    assert 0 < own.mask_mass < 1


def name_of(value: Any) -> str:
    return value if isinstance(value, str) and value != "null" else json.dumps(value)
