"""Masked decoding with random weights: the mask alone makes every answer valid."""

import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from transformers import ByT5Tokenizer, LogitsProcessor, LogitsProcessorList

from hazardlens.detect.base import Detections
from hazardlens.errors import ConstraintError, PipelineError, WeightsError
from hazardlens.frames.base import Frame
from hazardlens.merge.lane import answer
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Question, Reply, Shown, View
from hazardlens.vlm.decode import Decoding
from hazardlens.vlm.local import LocalVlm
from hazardlens.vlm.mask import MaskFactory, MaskProcessor
from hazardlens.vlm.prompt import show
from hazardlens.vlm.session import MaskSession
from tests.benchmarks.decoding import Bench
from tests.random_vlm import END, build, build_qwen2_vl

COUNTS = (0, 1, 5, 30)
VIEW = View(longest_side_px=64)


@pytest.fixture(scope="module")
def schema() -> FieldSchema:
    return FieldSchema.load("hazard")


@pytest.fixture(scope="module")
def sampling_vlm(random_vlm_folder: Path) -> LocalVlm:
    return LocalVlm(random_vlm_folder, device="cpu", temperature=1.5)


@pytest.fixture(scope="module")
def greedy_vlm(random_vlm_folder: Path) -> LocalVlm:
    return LocalVlm(random_vlm_folder, device="cpu")


def question(schema: FieldSchema, count: int, index: int) -> Question:
    noise = np.random.default_rng(index)
    boxes = np.sort(noise.uniform(0, 60, (count, 2, 2)), axis=1).reshape(count, 4)
    detections = Detections(
        boxes_xyxy_px=boxes.astype(np.float32),
        confidence=noise.uniform(0.3, 1, count).astype(np.float32),
        class_id=np.zeros(count, np.int64),
        track_id=tuple(range(count)),
        class_names={0: "person"},
    )
    image = noise.integers(0, 255, (48, 64, 3), dtype=np.uint8)
    frame = Frame(image=image, index=index, time_s=index / 10, source="noise")
    return Question(
        frame=frame,
        detections=detections,
        asked=count,
        fields=schema,
        schema=schema.ground(count),
        context="",
        trigger=("every",),
    )


def ask(vlm: LocalVlm, asked: Question, stop: threading.Event | None = None) -> Reply:
    return vlm.ask(asked, show(asked, VIEW), stop or threading.Event())


def judge_answers(vlm: LocalVlm, schema: FieldSchema, answers: int) -> None:
    """Ask for `answers` answers and let the jsonschema package judge each, at the first try and without repair."""
    validators = {count: jsonschema.Draft202012Validator(schema.ground(count).document) for count in COUNTS}
    texts = set()
    for index in range(answers):
        count = COUNTS[index % len(COUNTS)]
        asked = question(schema, count, index)
        reply = ask(vlm, asked)
        assert reply.end == "complete", reply
        value = json.loads(reply.text)
        assert list(validators[count].iter_errors(value)) == []
        assert [item["id"] for item in value["detections"]] == list(range(count))
        reply.text.encode("utf-8")
        texts.add(reply.text)
    assert len(texts) > answers * 0.9


def test_answers_at_temperature_1_5_are_all_valid(sampling_vlm: LocalVlm, schema: FieldSchema) -> None:
    judge_answers(sampling_vlm, schema, 40)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_a_thousand_answers_at_temperature_1_5_are_all_valid(sampling_vlm: LocalVlm, schema: FieldSchema) -> None:
    judge_answers(sampling_vlm, schema, 1000)


def test_jump_forward_gives_the_text_of_token_by_token_masking_in_few_steps(greedy_vlm: LocalVlm) -> None:
    picture = np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    inputs = dict(greedy_vlm.inputs(Shown(image=picture, prompt="What is the hazard?")))
    bench = Bench(greedy_vlm._model, greedy_vlm._processor.tokenizer, inputs)
    bench.check(bench.masked_each_token)
    decoding = bench.jump_forward()
    assert decoding.model_steps <= 0.30 * len(decoding.tokens)


@pytest.mark.parametrize("make", [build, build_qwen2_vl])
def test_every_choice_is_the_models_own_likeliest_of_those_allowed(
    make: Callable[[Path], Path], schema: FieldSchema, tmp_path: Path
) -> None:
    """One pass over the finished answer, without cache and jumps, must agree with every choice that was made."""
    vlm = LocalVlm(make(tmp_path), device="cpu")
    asked = question(schema, 5, 3)
    inputs = vlm.inputs(show(asked, VIEW))
    masks = vlm._masks
    decoding = Decoding(session=masks.session(asked.schema), generator=torch.Generator(), max_new_tokens=2000)
    vlm.decode(inputs, decoding)
    tokens = torch.tensor([decoding.tokens])
    longer = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "mm_token_type_ids": tokens * 0}
    whole = {name: torch.cat([inputs[name], end], dim=-1) for name, end in longer.items() if name in inputs}
    with torch.inference_mode():
        logits = vlm._model(**{**inputs, **whole}).logits
    check_choices(masks.session(asked.schema), decoding.tokens, logits[0, inputs["input_ids"].shape[-1] - 1 :])


def check_choices(session: MaskSession, tokens: list[int], logits: torch.Tensor) -> None:
    """`logits[k]` is what the model thinks of the k-th token."""
    choices = position = 0
    position += take_forced(session)
    while position < len(tokens):
        allowed = session.allowed()
        best = logits[position].masked_fill(~allowed, -torch.inf).max()
        assert logits[position, tokens[position]] >= best - 1e-3, position
        session.consume([tokens[position]])
        position += 1 + take_forced(session)
        choices += 1
    assert session.finished
    assert 10 < choices < len(tokens)


def take_forced(session: MaskSession) -> int:
    forced = session.forced()
    if forced:
        session.consume(forced)
    return len(forced)


def test_the_answer_depends_on_seed_and_frame_and_not_on_order(
    random_vlm_folder: Path, sampling_vlm: LocalVlm, schema: FieldSchema
) -> None:
    def texts(vlm: LocalVlm, order: list[int]) -> dict[int, str]:
        asked = {index: question(schema, 1, index) for index in order}
        return {i: ask(vlm, q).text for i, q in asked.items()}

    forwards, backwards = texts(sampling_vlm, [1, 2, 3]), texts(sampling_vlm, [3, 2, 1])
    other_seed = texts(LocalVlm(random_vlm_folder, device="cpu", temperature=1.5, seed=9), [1, 2, 3])
    assert forwards == backwards
    assert forwards != other_seed


@pytest.mark.parametrize("more", [0, 1, 10])
def test_a_small_budget_ends_free_text_and_keeps_every_verdict(
    random_vlm_folder: Path, greedy_vlm: LocalVlm, schema: FieldSchema, more: int
) -> None:
    asked = question(schema, 5, 0)
    least = greedy_vlm._masks.shortest_tokens(asked.schema)
    vlm = LocalVlm(random_vlm_folder, device="cpu", max_new_tokens=least + more)
    vlm.prepare(asked.schema)
    short, full = ask(vlm, asked), ask(greedy_vlm, asked)
    assert short.end == "complete"
    assert short.output_tokens <= least + more
    cut, whole = (asked.schema.parse(reply.text) for reply in (short, full))
    assert len(cut["notes"]) < len(whole["notes"])


def test_a_budget_too_small_for_the_verdicts_is_refused_at_load_with_both_numbers(
    random_vlm_folder: Path, schema: FieldSchema
) -> None:
    grounded = schema.ground(5)
    vlm = LocalVlm(random_vlm_folder, device="cpu", max_new_tokens=20)
    with pytest.raises(
        PipelineError, match=r"max_new_tokens is 20, but .* 5 detections may need \d{2,3} tokens"
    ) as caught:
        vlm.prepare(grounded)
    assert str(vlm._masks.shortest_tokens(grounded)) in caught.value.help


def test_every_choice_of_an_answer_comes_with_a_confidence(sampling_vlm: LocalVlm, schema: FieldSchema) -> None:
    told = 0
    for index in range(5):
        asked = question(schema, 2, index)
        reply = ask(sampling_vlm, asked)
        fields = asked.schema.parse(reply.text)
        objects = {"": fields, "/detections/0": fields["detections"][0], "/detections/1": fields["detections"][1]}
        expected = {f"{place}/hazard": own["hazard"] for place, own in objects.items()}
        expected |= {f"{place}/severity": own["severity"] for place, own in objects.items() if own["hazard"] != "none"}
        assert reply.confidence.keys() == expected.keys()
        for pointer, own in reply.confidence.items():
            assert own.p == own.choices[expected[pointer]] > 0
            assert sum(own.choices.values()) + own.unresolved == pytest.approx(1, abs=1e-4)
            assert 0 < own.mask_mass < 1
            told += 1
    assert told > 15


@pytest.mark.parametrize("budget", [None, 7])
def test_a_frame_is_asked_for_one_of_a_few_labels(random_vlm_folder: Path, budget: int | None) -> None:
    labels = FieldSchema.load({"choices": ["none", "fire", "fired", "smoke"]})
    vlm = LocalVlm(random_vlm_folder, device="cpu", temperature=1.5, max_new_tokens=budget)
    vlm.prepare(labels.ground(3))
    said = set()
    for index in range(12):
        result = answer(vlm, question(labels, 3, index), threading.Event())
        assert result.status == "ok", result.reason
        assert result.fields == {"label": result.reply.text}
        assert result.reply.confidence["/label"].p > 0
        said.add(result.reply.text)
    assert "one of the values of label" in result.shown.prompt
    assert len(said) > 1


@pytest.mark.parametrize("budget", [None, 17])
def test_a_frame_is_asked_for_text_of_a_grammar(random_vlm_folder: Path, tmp_path: Path, budget: int | None) -> None:
    (tmp_path / "own.lark").write_text('start: /[a-z ]{1,40}/ ("; " start)? "" | ("none" | "vehicle_proximity")')
    pipeline = Pipeline.load({"schema": str(tmp_path / "own.lark")})
    schema = FieldSchema.load(pipeline.field_schema)
    vlm = LocalVlm(random_vlm_folder, device="cpu", temperature=1.5, max_new_tokens=budget)
    vlm.prepare(schema.ground(3))
    for index in range(6):
        result = answer(vlm, question(schema, 3, index), threading.Event())
        assert result.status == "ok", result.reason
        assert result.fields == {"text": result.reply.text}
        assert budget is None or result.reply.output_tokens <= budget
    with pytest.raises(PipelineError, match=r"max_new_tokens is 16, but .* may need 17 tokens"):
        LocalVlm(random_vlm_folder, device="cpu", max_new_tokens=16).prepare(schema.ground(3))


EXACT: dict[str, tuple[dict[str, Any], dict[str, dict[str, list[str]]]]] = {
    "an object": (
        {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": ["fire", "fine"]}}}
        | {"required": ["a", "b"]},
        {
            "/a": {"true": [' true, "b": '], "false": [' false, "b": ']},
            "/b": {"fire": [' "fire"'], "fine": [' "fine"']},
        },
    ),
    "labels": (
        {"choices": ["fire", "fired", "no"]},
        {"/label": {name: [name + END] for name in ("fire", "fired", "no")}},
    ),
    "a label that begins all": ({"choices": ["no", "none"]}, {"/label": {"no": ["no" + END], "none": ["none" + END]}}),
    "numbers": (
        {"type": "object", "properties": {"a": {"enum": [1, 12]}}, "required": ["a"]},
        {"/a": {"1": [" 1}"], "12": [" 12}"]}},
    ),
    "numbers that may be followed by this or that": (
        {"type": "object", "properties": {"a": {"enum": [1, 12]}, "b": {"const": 1}}, "required": ["a"]},
        {"/a": {"1": [" 1}", ' 1, "b": 1}'], "12": [" 12}", ' 12, "b": 1}']}},
    ),
}


@pytest.mark.parametrize("make", [build, build_qwen2_vl])
@pytest.mark.parametrize("kind", EXACT)
def test_exact_confidence_is_the_models_own_of_whole_values(
    make: Callable[[Path], Path], kind: str, tmp_path: Path
) -> None:
    """Each way to write each value by itself, one token at a time, must add up to what one pass over all gives."""
    document, ways = EXACT[kind]
    schema = FieldSchema.load(document)
    vlm = LocalVlm(make(tmp_path), device="cpu", exact_confidence=True)
    asked = question(schema, 0, 0)
    reply = ask(vlm, asked)
    assert reply.extra_passes == len(reply.confidence) == len(ways)
    inputs = vlm.inputs(show(asked, VIEW))
    decoding = Decoding(session=vlm._masks.session(asked.schema), generator=torch.Generator(), max_new_tokens=90)
    vlm.decode(inputs, decoding)

    def likely(text: str, written: int) -> float:
        tokens, score = decoding.tokens[:written], 0.0
        for token in [
            *vlm._masks.write(text.removesuffix(END).encode()),
            *(vlm._masks._ends if text.endswith(END) else ()),
        ]:
            added = torch.tensor([tokens], dtype=torch.long)
            longer = {"input_ids": added, "attention_mask": torch.ones_like(added), "mm_token_type_ids": added * 0}
            whole = {name: torch.cat([inputs[name], end], dim=-1) for name, end in longer.items() if name in inputs}
            with torch.inference_mode():
                logits = vlm._model(**{**inputs, **whole}).logits[0, -1]
            score += float(logits.log_softmax(-1)[token])
            tokens = [*tokens, token]
        return math.exp(score)

    for pointer, own in reply.confidence.items():
        written = decoding.session.verdicts.begun[pointer].written
        sums = {name: sum(likely(text, written) for text in texts) for name, texts in ways[pointer].items()}
        assert own.exact == pytest.approx({name: mass / sum(sums.values()) for name, mass in sums.items()}, abs=1e-4)


def test_a_deadline_ends_the_answer(random_vlm_folder: Path, schema: FieldSchema) -> None:
    asked = question(schema, 30, 0)
    vlm = LocalVlm(random_vlm_folder, device="cpu", timeout_s=0.001)
    with pytest.raises(TimeoutError, match="in time"):
        ask(vlm, asked)


def test_an_answer_that_nobody_waits_for_is_given_up(greedy_vlm: LocalVlm, schema: FieldSchema) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(TimeoutError, match="stopped"):
        ask(greedy_vlm, question(schema, 1, 0), stop)
    assert ask(greedy_vlm, question(schema, 1, 0)).end == "complete"


def test_a_long_pass_is_given_up_between_two_layers(random_vlm_folder: Path, schema: FieldSchema) -> None:
    vlm = LocalVlm(random_vlm_folder, device="cpu")
    stop = threading.Event()
    layers = vlm._model.model.text_model.layers
    seen = []
    layers[0].register_forward_hook(lambda *_: (seen.append(0), stop.set()))
    layers[1].register_forward_hook(lambda *_: seen.append(1))
    with pytest.raises(TimeoutError, match="stopped"):
        ask(vlm, question(schema, 1, 0), stop)
    assert seen == [0]


def test_an_answer_that_was_given_up_has_no_hold_on_later_use_of_the_model(
    random_vlm_folder: Path, schema: FieldSchema
) -> None:
    vlm = LocalVlm(random_vlm_folder, device="cpu")
    asked = question(schema, 1, 0)
    stop = threading.Event()
    stop.set()
    with pytest.raises(TimeoutError):
        ask(vlm, asked, stop)
    with torch.inference_mode():
        vlm._model(**vlm.inputs(show(asked, VIEW)))


class Prefer(LogitsProcessor):
    """A model that badly wants one token."""

    def __init__(self, token: int) -> None:
        self._token = token

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[0, self._token] = 1e6
        return scores


class SayNothing(LogitsProcessor):
    """A model whose logits are not numbers."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, torch.nan)


def decode(vlm: LocalVlm, schema: FieldSchema, preference: LogitsProcessor, *, budget: int = 400) -> Decoding:
    asked = question(schema, 1, 0)
    decoding = Decoding(session=vlm._masks.session(asked.schema), generator=torch.Generator(), max_new_tokens=budget)
    shown = show(asked, VIEW)
    vlm.decode(vlm.inputs(shown), decoding, preferences=LogitsProcessorList([preference]))
    return decoding


@pytest.mark.parametrize("token", ["<image>", "<|im_start|>", "<|im_end|>", "<pad>", "beyond the tokenizer"])
def test_tokens_that_are_not_text_never_get_into_an_answer(
    greedy_vlm: LocalVlm, schema: FieldSchema, token: str
) -> None:
    words = greedy_vlm._processor.tokenizer
    wanted = len(words) + 3 if token.startswith("beyond") else words.convert_tokens_to_ids(token)
    decoding = decode(greedy_vlm, schema, Prefer(wanted))
    assert wanted not in decoding.tokens
    schema.ground(1).parse(greedy_vlm._masks.text(decoding.tokens))


def test_logits_that_are_no_numbers_are_an_error_and_never_token_0(greedy_vlm: LocalVlm, schema: FieldSchema) -> None:
    with pytest.raises(ConstraintError, match="no finite logit"):
        decode(greedy_vlm, schema, SayNothing())


def test_a_mask_of_another_width_than_the_logits_is_an_error(greedy_vlm: LocalVlm, schema: FieldSchema) -> None:
    words = greedy_vlm._processor.tokenizer
    masks = MaskFactory(words, vocab_rows=len(words), eos_token_ids=[1])
    process = MaskProcessor(masks.session(schema.ground(0)))
    with pytest.raises(ConstraintError, match="shape"):
        process(torch.zeros(1, 5, dtype=torch.long), torch.zeros(1, 9999))


def test_a_slow_tokenizer_is_refused() -> None:
    with pytest.raises(WeightsError, match="ByT5Tokenizer") as caught:
        MaskFactory(ByT5Tokenizer(), vocab_rows=384, eos_token_ids=[1])
    assert "fast tokenizer" in caught.value.help


def test_a_shape_is_compiled_once(greedy_vlm: LocalVlm, schema: FieldSchema, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    masks = MaskFactory(greedy_vlm._processor.tokenizer, vocab_rows=600, eos_token_ids=[1])
    compile_once = masks._compile
    monkeypatch.setattr(masks, "_compile", lambda schema: compiled.append(schema.count) or compile_once(schema))
    for count in (1, 1, 2, 1, 2):
        masks.session(schema.ground(count))
    assert compiled == [1, 2]
