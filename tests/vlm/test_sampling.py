"""Sampling behind the mask, tries, the free stretch ahead, and the modes that are refused; with and without asserts."""

import copy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, TopKLogitsWarper, TopPLogitsWarper

from hazardlens.errors import ConstraintError
from hazardlens.merge.lane import answer
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, View
from hazardlens.vlm.decode import Decoding
from hazardlens.vlm.local import LocalVlm
from hazardlens.vlm.mask import MaskFactory, MaskProcessor
from hazardlens.vlm.prompt import show
from tests.random_vlm import END, tokenizer
from tests.vlm.test_budget import random_logits, start
from tests.vlm.test_decode import question

LABELS = ["none", "near", "fire", "fired", "smoke"]


@pytest.fixture(scope="module")
def masks() -> MaskFactory:
    words = tokenizer("<image>")
    return MaskFactory(words, vocab_rows=480, eos_token_ids=[words.convert_tokens_to_ids(END)])


def ask(vlm: LocalVlm, schema: FieldSchema, index: int = 0) -> Answer:
    return answer(vlm, question(schema, 1, index), threading.Event())


@pytest.mark.parametrize("warper", [TopKLogitsWarper(1), TopPLogitsWarper(1e-6)])
def test_top_k_and_top_p_choose_among_what_the_mask_left(masks: MaskFactory, warper: Any) -> None:
    """The one token that they keep is the likeliest that is allowed, though others are likelier."""
    schema = FieldSchema.load({"choices": LABELS}).ground(0)
    overruled = 0
    for seed in range(5):
        decoding, logits = start(masks, schema, None), random_logits(seed, 3.0)
        process = LogitsProcessorList([MaskProcessor(decoding.session), warper])
        decoding.begin()
        while not decoding.over:
            raw = logits(decoding.tokens)
            allowed = decoding.session.allowed()
            likeliest = int(raw[0].masked_fill(~allowed, -torch.inf).argmax())
            overruled += likeliest != int(raw[0].argmax())
            scores = process(torch.zeros(1, 1, dtype=torch.long), raw)
            assert decoding.pick(scores, sample=True) == [likeliest]
            decoding.take([likeliest])
        assert masks.text(decoding.tokens) in LABELS
    assert overruled > 5


def test_a_model_sampled_from_its_likeliest_token_is_greedy(random_vlm_folder: Path) -> None:
    schema = FieldSchema.load("hazard")
    greedy = ask(LocalVlm(random_vlm_folder, device="cpu"), schema).reply
    for more in ({"top_k": 1}, {"top_p": 1e-6}):
        sampled = ask(LocalVlm(random_vlm_folder, device="cpu", temperature=2.0, **more), schema).reply
        assert sampled.text == greedy.text


def test_a_row_with_nothing_allowed_is_an_error(masks: MaskFactory) -> None:
    decoding = start(masks, FieldSchema.load({"choices": LABELS}).ground(0), None)
    decoding.begin()
    with pytest.raises(ConstraintError, match="no token is left"):
        decoding.pick(torch.full((1, 480), -torch.inf), sample=False)
    banned = torch.zeros(1, 480).masked_fill(decoding.session.allowed()[None], -torch.inf)
    with pytest.raises(ConstraintError, match="no finite logit"):
        MaskProcessor(decoding.session)(torch.zeros(1, 1), banned)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_beams": 3}, "3 rows, num_beams=3"),
        ({"num_return_sequences": 2, "do_sample": True}, "2 rows, num_return_sequences=2"),
        ({"prompt_lookup_num_tokens": 4}, "prompt_lookup_num_tokens=4"),
        ({"guidance_scale": 1.5}, "guidance_scale=1.5"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "penalty_alpha=0.6"),
        ({"dola_layers": "low"}, "dola_layers=low"),
        ({"assistant_early_exit": 1}, "assistant_early_exit=1"),
        ({"cache_implementation": "paged"}, "cache_implementation=paged"),
        ({}, None),
    ],
)
def test_modes_that_would_leave_the_mask_behind_are_refused(
    random_vlm_folder: Path, settings: dict[str, Any], named: str | None
) -> None:
    """`generate` itself is asked for them, and lets them through to the loop."""
    vlm = LocalVlm(random_vlm_folder, device="cpu")
    asked = question(FieldSchema.load({"choices": LABELS}), 1, 0)
    config = copy.copy(vlm._sampling)
    for name, value in settings.items():
        setattr(config, name, value)
    decoding = vlm._decoding_of(asked, 1, None, threading.Event())
    inputs = vlm.inputs(show(asked, View(longest_side_px=64)))
    if named is None:
        vlm.decode(inputs, decoding, sampling=config)
        assert decoding.complete
        return
    with pytest.raises(ConstraintError, match=f"one sequence at a time.*{named}"):
        vlm.decode(inputs, decoding, sampling=config)
    assert not decoding.tokens


PAIR = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 2}, "minItems": 3, "maxItems": 3}


def one_field(fragment: Any) -> FieldSchema:
    return FieldSchema.load({"type": "object", "properties": {"x": fragment}, "required": ["x"]})


def test_what_is_only_checked_is_tried_again_and_never_ok_while_wrong(random_vlm_folder: Path) -> None:
    schema = one_field({**PAIR, "uniqueItems": True})
    vlm = LocalVlm(random_vlm_folder, device="cpu", answer_tries=12)
    attempts = []
    for index in range(6):
        result = ask(vlm, schema, index)
        attempts.append(result.attempts)
        if result.status == "ok":
            assert len(set(result.fields["x"])) == 3
        else:
            assert (result.status, result.fields, result.attempts) == ("invalid", None, 12)
    assert max(attempts) > 1
    assert min(attempts) < 12
    assert ask(vlm, schema, 3).reply.text == ask(vlm, schema, 3).reply.text


def test_tries_are_bounded_and_then_the_answer_is_invalid(random_vlm_folder: Path) -> None:
    impossible = one_field({"type": "string", "maxLength": 3, "pattern": "^a(?=b)$"})
    result = ask(LocalVlm(random_vlm_folder, device="cpu", answer_tries=3), impossible)
    assert (result.status, result.attempts, result.fields) == ("invalid", 3, None)
    held = ask(LocalVlm(random_vlm_folder, device="cpu"), one_field(PAIR))
    assert (held.status, held.attempts) == ("ok", 1)


def test_the_tokens_of_all_tries_and_of_what_was_reasoned_are_counted(
    random_vlm_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impossible = one_field({"type": "string", "maxLength": 3, "pattern": "^a(?=b)$"})
    vlm = LocalVlm(random_vlm_folder, device="cpu", answer_tries=3, reasoning_tokens=5)
    tries: list[Decoding] = []
    begin = vlm._decoding_of
    monkeypatch.setattr(vlm, "_decoding_of", lambda *given: tries.append(begin(*given)) or tries[-1])
    reply = ask(vlm, impossible).reply
    assert len(tries) == 3
    assert all(one.reasoning.tokens and one.tokens for one in tries)
    assert reply.output_tokens == sum(len(one.reasoning.tokens) + len(one.tokens) for one in tries)


@pytest.mark.parametrize("keep", [True, False])
def test_a_free_stretch_goes_ahead_of_the_answer_and_is_no_part_of_it(random_vlm_folder: Path, keep: bool) -> None:
    schema = FieldSchema.load("hazard")
    options: dict[str, Any] = {"reasoning_tokens": 9, "keep_reasoning": keep, "max_new_tokens": 250}
    vlm = LocalVlm(random_vlm_folder, device="cpu", temperature=1.5, exact_confidence=True, **options)
    result = ask(vlm, schema)
    assert result.status == "ok", result.reason
    assert "First say in plain words" in result.shown.prompt
    assert result.reply.text.startswith('{"notes": "')
    assert result.reply.output_tokens <= 250 + 9
    assert result.reply.extra_passes == len(result.reply.confidence) > 0
    if keep:
        assert result.reply.reasoning
        assert len(vlm._processor.tokenizer(result.reply.reasoning)["input_ids"]) <= 2 * 9
    else:
        assert result.reply.reasoning is None


def test_a_free_stretch_is_ended_by_the_model_or_the_budget_and_holds_text_only(random_vlm_folder: Path) -> None:
    vlm = LocalVlm(random_vlm_folder, device="cpu", reasoning_tokens=7)
    schema = one_field({"enum": LABELS})
    words = vlm._processor.tokenizer
    end, image = words.eos_token_id, words.convert_tokens_to_ids("<image>")
    text = vlm._masks.write(b"[x")
    for wanted, expected in (([*text, end], len(text)), ([image] * 9, 7), ([end], 0)):
        decoding = vlm._decoding_of(question(schema, 1, 0), 1, None, threading.Event())
        written: list[int] = []
        for token in [*wanted, *range(40)]:
            if decoding.over:
                break
            preferred = torch.zeros(1, len(vlm._masks.free_text))
            preferred[0, end] = -50
            preferred[0, token] = 100
            free = vlm._masks.free_text if decoding.is_reasoning else None
            mask = MaskProcessor(decoding.session, free=lambda free=free: free)
            written += decoding.advance(mask(torch.zeros(1, 1), preferred), sample=False)
        assert len(decoding.reasoning.tokens) == expected
        assert image not in written
        assert decoding.complete
        assert written == [*decoding.before, *decoding.tokens]
        assert schema.ground(0).takes(vlm._masks.text(decoding.tokens))


OPTIMISED = """
import sys, torch
from hazardlens.errors import ConstraintError, SchemaError
from hazardlens.schema import FieldSchema
from hazardlens.vlm.mask import MaskFactory, MaskProcessor
from tests.random_vlm import END, tokenizer
from tests.vlm.test_budget import random_logits, start, write

if sys.flags.optimize != 1:
    sys.exit("not optimised")
words = tokenizer("<image>")
masks = MaskFactory(words, vocab_rows=480, eos_token_ids=[words.convert_tokens_to_ids(END)])
said = []
for document in ("hazard", {"choices": ["none", "fire"]}, {"lark": 'start: "(" start ")" | /[a-z]+/ "."'}):
    schema = FieldSchema.load(document).ground(2)
    for seed in range(3):
        decoding = start(masks, schema, masks.shortest_tokens(schema) + 3, seed)
        write(decoding, random_logits(seed, 3.0), sample=True)
        said.append((decoding.complete, masks.text(decoding.tokens)))
        schema.parse(said[-1][1])
nothing = torch.full((1, 480), -torch.inf)
for wrong in (
    lambda: FieldSchema.load({"lark": 'start: "a" start'}),
    lambda: decoding.pick(nothing, sample=False),
):
    try:
        wrong()
    except (ConstraintError, SchemaError) as error:
        said.append(type(error).__name__)
print(said)
"""


@pytest.mark.full
def test_nothing_changes_without_asserts() -> None:
    run = [sys.executable, "-O", "-W", "ignore", "-c", OPTIMISED]
    done = subprocess.run(run, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(True, ") == 9
    assert done.stdout.rstrip().endswith("'SchemaError', 'ConstraintError']")
