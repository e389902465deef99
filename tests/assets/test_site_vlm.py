"""The demo's VLM before it is trained: its words, its inputs, its lessons, its measure."""

import dataclasses
import itertools
import json
import random
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor

from drawn_site import notes
from drawn_site.compose import compose
from drawn_site.notes import claims
from drawn_site.render import render
from drawn_site.rules import Truth, judge
from drawn_site.scene import KINDS
from hazardlens.pipeline import Pipeline
from hazardlens.record import Confidence
from hazardlens.resources import asset_package
from hazardlens.vlm.base import Question, Reply, Shown, Vlm
from hazardlens.vlm.calibration import Temperatures
from hazardlens.vlm.prompt import prompt_text, show

asset_package("site_detector")
asset_package("site_vlm")
from site_vlm import answers, architecture, examples, looking, measure, tower, training  # noqa: E402
from site_vlm.batches import (  # noqa: E402
    HAZARDS,
    IGNORE,
    PATCHES,
    VERDICTS,
    make_pictures,
    make_words,
    prompt_tokens,
    squeeze,
)
from site_vlm.beginning import begin  # noqa: E402

Scene = tuple[NDArray[np.uint8], Truth]


class Known:
    """Scenes in memory, as the training takes them."""

    def __init__(self, scenes: list[Scene], processor: Idefics3Processor) -> None:
        self._known = [(image, squeeze(image, processor), truth) for image, truth in scenes]
        self.things = [len(truth.things) for _, truth in scenes]

    def __getitem__(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], Truth]:
        return self._known[index]


def answering(
    model: Idefics3ForConditionalGeneration, processor: Idefics3Processor, scenes: Known, folder: Path, *,
    looks: int = 0, heads: tower.Heads | None = None,
) -> answers.Answers:  # fmt: skip
    """A phase of one step."""
    looking_heads = looking.LookingHeads(model.config.text_config.hidden_size)
    return answers.Answers(
        model, processor, looking_heads, scenes, steps=1, looks=looks, tower=heads, checkpoint=folder / "answers.pt"
    )


def sights(model: Idefics3ForConditionalGeneration, scenes: Known, versions: int) -> list[torch.Tensor]:
    """What a model's tower sees of questions about scenes, so many about each."""
    chosen = [(k, random.Random(f"{n} {k}")) for n in range(versions) for k in range(len(scenes.things))]
    _, pictures = tower.ask_about(scenes, chosen)
    with torch.no_grad():
        return list(tower.see(model.model.vision_model, pictures).split(pictures.counts))


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    drawn = [(compose(seed), render(compose(seed), seed=seed)) for seed in range(12)]
    return [(picture.image, judge(scene, picture)) for scene, picture in drawn]


@pytest.fixture(scope="module")
def processor(scenes: list[Scene]) -> Idefics3Processor:
    texts = []
    for image, truth in scenes:
        example = examples.make_example(image, truth, random.Random(1))
        texts += [prompt_text(example.question, examples.VIEW), examples.spelled(example.answer)]
    return architecture.build_processor(architecture.train_tokenizer(texts * 4, VERDICTS, size=800))


def test_a_verdict_is_one_token_of_its_own(processor: Idefics3Processor) -> None:
    words = processor.tokenizer
    for verdict in VERDICTS:
        text = f'{{"notes": "All is well.", "hazard": "{verdict}", "severity": "none", "detections": []}}'
        pieces = [words.decode([token]) for token in words(text)["input_ids"]]
        assert "".join(pieces) == text
        assert pieces[pieces.index('", "hazard": "') + 1] == verdict


def test_training_sees_what_the_product_shows(scenes: list[Scene], processor: Idefics3Processor) -> None:
    """Ids and pixels of a batch are those that the product's prompt and the model's own processor give."""
    for image, truth in scenes[:3]:
        example = examples.make_example(image, truth, random.Random(3))
        shown = show(example.question, examples.VIEW)
        assert shown.crops is not None
        content = [{"type": "image", "image": Image.fromarray(one)} for one in (shown.image, shown.crops)]
        expected = processor.apply_chat_template(
            [{"role": "user", "content": [*content, {"type": "text", "text": shown.prompt}]}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        length = expected["input_ids"].shape[1]
        prompt = prompt_tokens(example, processor)
        assert prompt == expected["input_ids"][0].tolist()
        pixels = make_pictures([example], [squeeze(image, processor)]).pixels
        assert (pixels - expected["pixel_values"]).abs().max() < 0.01
        words = make_words([prompt], [example.answer], processor.tokenizer)
        said = words.inputs["input_ids"][0, length:]
        assert processor.tokenizer.decode(said[:-1]) == examples.spelled(example.answer)
        assert int(said[-1]) == processor.tokenizer.eos_token_id
        assert (words.labels[0, :length] == IGNORE).all()
        assert torch.equal(words.labels[0, length:], said)


def test_what_is_worst_counts_most(scenes: list[Scene], processor: Idefics3Processor) -> None:
    truth = next(truth for _, truth in scenes if truth.verdict.hazard == "fire")
    right = examples.answer(truth, (), random.Random(0))
    words = make_words([[1, 2, 3]], [right], processor.tokenizer)
    pieces = [processor.tokenizer.decode([token]) for token in words.labels[0, 3:]]
    weights = dict(zip(pieces, words.weights[0, 3:].tolist(), strict=True))
    first, *_, last = (piece for piece in pieces if piece.rstrip().endswith("."))
    assert weights[first] > weights["fire"] > weights[last] > weights['", "severity": "']


@pytest.mark.parametrize("answered", [False, True])
def test_the_heads_look_where_an_object_is_named(
    scenes: list[Scene], processor: Idefics3Processor, answered: bool
) -> None:
    """At each number, in the prompt and again in the answer, they are asked about the object of that number."""
    lessons, read = [], []
    for image, truth in scenes[:6]:
        example = examples.make_example(image, truth, random.Random(2))
        lessons.append((prompt_tokens(example, processor), example.things, truth))
        read.append(answers.misread(example.answer, "All is well.", random.Random(3)) if answered else None)
    prompts = [prompt for prompt, _, _ in lessons]
    words = make_words(prompts, [None] * len(prompts), processor.tokenizer, read=read).inputs["input_ids"]
    seen = looking.look(lessons, words, processor.tokenizer)
    expected = []
    for k, (_, things, _) in enumerate(lessons):
        heads = [f"{sign}{n}" for sign in ("- ", '"id": ')[: 1 + answered] for n in range(len(things))]
        verdicts = [thing.verdict for thing in things] * (1 + answered)
        expected += [(k, head, HAZARDS.index(one.hazard)) for head, one in zip(heads, verdicts, strict=True)]
    assert len(expected) == len(seen.lines) == len(seen.wrong) == len(seen.rank) > 20
    for (k, head, hazard), (at, place), wrong in zip(expected, seen.lines.tolist(), seen.wrong.tolist(), strict=True):
        assert (k, hazard) == (at, wrong)
        assert processor.tokenizer.decode(words[k, : place + 1]).endswith(head)
    for k, (_, _, truth) in enumerate(lessons):
        hazards = {HAZARDS[1 + at] for at in seen.present[k].nonzero().flatten().tolist()}
        assert truth.verdict.hazard in (hazards or {"none"})
        assert claims(truth)[-1].workers == int(seen.workers[k])
    losses = looking.LookingHeads(32)(*torch.randn(2, *words.shape, 32), seen)
    assert {"asked hazard", "asked rank"} <= losses.keys()
    assert ("answered hazard" in losses, "answered rank" in losses) == (answered, answered)


@pytest.mark.parametrize("joint", [False, True])
def test_the_language_model_learns_from_what_the_whole_model_sees(
    scenes: list[Scene], processor: Idefics3Processor, tmp_path: Path, joint: bool
) -> None:
    """The loss of answers is that of the model itself, given pictures and words as the product gives them."""
    model = architecture.build_model(processor.tokenizer)
    heads = tower.Heads(model.config.vision_config.hidden_size) if joint else None
    phase = answering(model, processor, Known(scenes[:3], processor), tmp_path, heads=heads)
    batch = phase._batch(0)
    assert (batch.gaps > 0).any()
    batch = dataclasses.replace(batch, gaps=torch.zeros_like(batch.gaps))
    with torch.inference_mode():
        logits = model(**batch.words.inputs, pixel_values=batch.pictures.pixels).logits[:, :-1]
        losses = phase._losses(batch)
    assert {"patch", "cell"} & losses.keys() == ({"patch", "cell"} if joint else set())
    weights = batch.words.weights[:, 1:].flatten()
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.words.labels[:, 1:].flatten(), reduction="none"
    )
    assert float(losses["answer"]) == pytest.approx(float((expected * weights).sum() / weights.sum()), rel=1e-3)


@pytest.mark.parametrize("joint", [False, True])
def test_the_tower_learns_with_the_answers_only_where_its_heads_do(
    scenes: list[Scene], processor: Idefics3Processor, tmp_path: Path, joint: bool
) -> None:
    torch.manual_seed(0)
    model = architecture.build_model(processor.tokenizer)
    heads = tower.Heads(model.config.vision_config.hidden_size) if joint else None
    before = {name: own.clone() for name, own in model.named_parameters()}
    answering(model, processor, Known(scenes[:3], processor), tmp_path, heads=heads).run()
    changed = {name for name, own in model.named_parameters() if not torch.equal(own, before[name])}
    assert any("text_model" in name for name in changed)
    assert any("connector" in name for name in changed)
    assert any("vision_model" in name for name in changed) == joint


def test_no_question_comes_twice(scenes: list[Scene], processor: Idefics3Processor, tmp_path: Path) -> None:
    """Not even about the same scene: what is asked again and again is learned by heart."""
    model = architecture.build_model(processor.tokenizer)
    phase = answering(model, processor, Known(scenes[:1], processor), tmp_path)
    first, second = phase._batch(0), phase._batch(1)
    shown = [picture for batch in (first, second) for picture in batch.pictures.pixels[:, 1]]
    assert all(not torch.equal(one, other) for one, other in itertools.combinations(shown, 2))
    assert torch.equal(first.pictures.pixels, phase._batch(0).pictures.pixels)


def test_the_connector_begins_with_what_the_tower_knows(scenes: list[Scene], processor: Idefics3Processor) -> None:
    """Its first outputs are the cell heads', those behind the patch heads' tell cells apart; all are of one size."""
    model = architecture.build_model(processor.tokenizer)
    heads = tower.Heads(model.config.vision_config.hidden_size)
    shown = sights(model, Known(scenes, processor), versions=2)
    size = model.get_input_embeddings().weight.detach().std()
    begin(model, processor.tokenizer, heads, shown)
    seen = torch.cat(shown)
    with torch.no_grad():
        said = model.model.connector(seen)
        side, scale = PATCHES // architecture.SCALE, architecture.SCALE
        cells = seen.view(len(seen), side, scale, side, scale, -1).transpose(2, 3).flatten(3).flatten(1, 2)
        kinds = cells @ heads.cell["kind"].weight.T
    for k in range(kinds.shape[-1]):
        assert torch.allclose(said[..., k] / said[..., k].std(), kinds[..., k] / kinds[..., k].std(), atol=1e-3)
        assert float(said[..., k].std()) == pytest.approx(float(size), rel=1e-3)
    own = [head.weight.shape[0] for head in heads.cell.values()]
    patches = [head.weight.shape[0] for head in heads.patch.values()]
    places = said[..., sum(own) + 4 * sum(patches) :][..., : 2 * architecture.IMAGE_TOKENS].reshape(
        -1, 2 * architecture.IMAGE_TOKENS, 2 * architecture.IMAGE_TOKENS
    )
    told = (places - places.mean(dim=(0, 1))).argmax(dim=-1)
    assert (told == torch.arange(2 * architecture.IMAGE_TOKENS)).float().mean() > 0.9


def test_the_first_head_begins_by_looking_up_an_objects_cell(
    scenes: list[Scene], processor: Idefics3Processor, tmp_path: Path
) -> None:
    """From its number in the prompt and in the answer, however far away that is."""
    torch.manual_seed(0)
    words = processor.tokenizer
    model = architecture.build_model(words)
    model.set_attn_implementation("eager")
    known = Known([(image, truth) for image, truth in scenes if len(truth.things) > 2], processor)
    begin(model, words, tower.Heads(model.config.vision_config.hidden_size), sights(model, known, versions=10))
    phase = answering(model, processor, known, tmp_path, looks=1)
    found: list[torch.Tensor] = []
    first = model.model.text_model.layers[0].self_attn
    first.register_forward_hook(lambda _module, _given, results: found.append(results[1][:, 0]))
    batch = phase._batch(0)
    with torch.inference_mode():
        phase._losses(batch)
    shares = []
    for row, place in batch.looked.lines.tolist():
        ids = batch.words.inputs["input_ids"][row]
        pictures = (ids == model.config.image_token_id).nonzero().flatten()
        cell = pictures[architecture.IMAGE_TOKENS + int(words.decode(ids[place : place + 1]))]
        shares.append(found[0][row, place, cell])
    assert len(shares) > 50
    assert torch.stack(shares).median() > 0.5


def test_words_may_stand_at_any_distance_behind_the_pictures(
    scenes: list[Scene], processor: Idefics3Processor, tmp_path: Path
) -> None:
    """A gap moves all words of a question, and nothing between its pictures."""
    model = architecture.build_model(processor.tokenizer)
    phase = answering(model, processor, Known(scenes, processor), tmp_path, looks=1)
    seen: list[torch.Tensor] = []
    model.model.text_model.register_forward_pre_hook(
        lambda *given: seen.append(given[2]["position_ids"]), with_kwargs=True
    )
    batch = phase._batch(0)
    with torch.inference_mode():
        phase._losses(batch)
    pictured = batch.words.inputs["input_ids"] == model.config.image_token_id
    for row, where, (gap,) in zip(seen[0].tolist(), pictured, batch.gaps.tolist(), strict=True):
        last = int(where.nonzero().max())
        assert row == [*range(last + 1), *range(last + 1 + gap, len(row) + gap)]


def test_what_is_read_may_be_wrong_and_what_is_learned_is_right(
    scenes: list[Scene], processor: Idefics3Processor, tmp_path: Path
) -> None:
    """At first nothing is written; later three in ten answers are given behind what is not true of the picture."""
    words = processor.tokenizer
    model = architecture.build_model(words)
    known = Known(scenes, processor)
    phase = answering(model, processor, known, tmp_path, looks=1)
    assert (phase._batch(0).words.labels == IGNORE).all()
    wrong = 0
    for step in range(1, 5):
        batch = phase._batch(step).words
        examples_of, _ = tower.ask_about(known, phase._order(step))
        for row, example in enumerate(examples_of):
            truth, things = example.truth, example.things
            prompt = prompt_tokens(example, processor)
            read = words.decode(batch.inputs["input_ids"][row, len(prompt) :]).split(words.eos_token)[0]
            note = json.loads(read)["notes"]
            right = examples.spelled({**examples.answer(truth, things, random.Random(0)), "notes": note})
            learned = words.decode(batch.labels[row][batch.labels[row] != IGNORE])
            if read == right:
                assert learned == right + words.eos_token
                assert all(notes.agrees(claim, truth) for claim in notes.read(note))
                continue
            wrong += 1
            if note not in learned:
                learned = learned.replace('{"notes": "', '{"hazard": "', 1)
            hazards = [truth.verdict.hazard, *(thing.verdict.hazard for thing in things)]
            assert re.findall(r'"hazard": "(.*?)"', learned) == hazards
    assert 8 <= wrong <= 32


def test_it_is_trained_as_the_demo_asks() -> None:
    pipeline = Pipeline.load("demo")
    assert pipeline.vlm is not None
    view = {name: getattr(pipeline.vlm, name) for name in ("longest_side_px", "crops_px", "describe_fields")}
    assert view == {name: getattr(examples.VIEW, name) for name in view}
    assert pipeline.max_objects == examples.MAX_OBJECTS
    assert pipeline.field_schema == "hazard"


def test_answers_satisfy_the_schema(scenes: list[Scene]) -> None:
    for seed, (image, truth) in enumerate(scenes):
        example = examples.make_example(image, truth, random.Random(seed))
        fields = example.question.schema.parse(examples.spelled(example.answer))
        assert fields == example.answer
        assert [entry["id"] for entry in fields["detections"]] == list(range(len(example.things)))


def test_a_mirrored_truth_is_that_of_the_mirrored_picture(scenes: list[Scene]) -> None:
    swap = {"on the left": "on the right", "on the right": "on the left"}
    for _, truth in scenes:
        turned = examples.mirrored(truth)
        assert examples.mirrored(turned) == truth
        sides = [swap.get(claim.side or "", claim.side) for claim in claims(truth)]
        assert sorted(map(str, sides)) == sorted(str(claim.side) for claim in claims(turned))


def test_patches_and_cells_are_labelled(scenes: list[Scene], processor: Idefics3Processor) -> None:
    example = examples.make_example(*scenes[3], random.Random(5))
    batch = make_pictures([example], [squeeze(scenes[3][0], processor)])
    grid, hazards = (batch.patches[name][0].view(PATCHES, PATCHES) for name in ("thing", "hazard"))
    (fire,) = [one for one in example.truth.effects if one.effect.kind == "fire"]
    x0, y0, x1, y1 = fire.box_xyxy_px
    column, row = int((x0 + x1) / 2 / 640 * PATCHES), int((y0 + y1) / 2 / 360 * PATCHES)
    assert int(grid[row, column]) == 1 + len(KINDS)
    assert int(hazards[row, column]) == HAZARDS.index("fire")
    assert (grid == 0).sum() > 40
    for k, thing in enumerate(example.things):
        assert int(batch.cells["kind"][0, k]) == KINDS.index(thing.kind)
        assert int(batch.cells["hazard"][0, k]) == HAZARDS.index(thing.verdict.hazard)
    assert (batch.cells["kind"][0, len(example.things) :] == IGNORE).all()


def test_a_training_that_was_stopped_goes_on_where_it_was(
    scenes: list[Scene], processor: Idefics3Processor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "BATCH", 2)
    known = Known(scenes, processor)
    model = architecture.build_model(processor.tokenizer)

    def weights(folder: Path, *lengths: int) -> torch.Tensor:
        folder.mkdir()
        for length in lengths:
            torch.manual_seed(0)
            model = architecture.build_model(processor.tokenizer)
            heads = tower.Heads(model.config.vision_config.hidden_size)
            tower.Tower(model, heads, known, steps=2, checkpoint=folder / "tower.pt").run(every=1, until=length)
            if length >= 2:
                looking_heads = looking.LookingHeads(model.config.text_config.hidden_size)
                answers.Answers(
                    model, processor, looking_heads, known,
                    steps=2, looks=1, tower=heads, checkpoint=folder / "answers.pt",
                ).run(every=1, until=length - 2)  # fmt: skip
        return torch.cat([model.lm_head.weight.flatten(), next(model.model.vision_model.parameters()).flatten()])

    whole, parts = weights(tmp_path / "a", 4), weights(tmp_path / "b", 1, 2, 3, 4)
    assert torch.equal(whole, parts)
    assert not torch.equal(weights(tmp_path / "c", 3), whole)
    assert (tmp_path / "b" / "model" / "config.json").exists()
    longer = tower.Tower(model, tower.Heads(144), known, steps=3, checkpoint=tmp_path / "a" / "tower.pt")
    with pytest.raises(ValueError, match=r"tower\.pt is of another recipe"):
        longer.run()


def test_each_lesson_comes_once_and_those_of_a_step_are_about_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "BATCH", 2)
    monkeypatch.setattr(training, "_SORTED", 3)
    lengths = [random.Random(k).randrange(9) for k in range(12)]
    order = training.Order(lengths)
    steps = [[k for k, _ in order(step)] for step in range(12)]
    for epoch in (steps[:6], steps[6:]):
        assert sorted(itertools.chain(*epoch)) == list(range(12))
    for group in (steps[at : at + 3] for at in range(0, 12, 3)):
        spans = list(itertools.chain(*sorted(sorted(lengths[k] for k in step) for step in group)))
        assert spans == sorted(spans)
    assert steps[:6] != steps[6:]


class _Knows(Vlm):
    """A fake that answers with given fields."""

    name, enforced, view = "knows", "checked", examples.VIEW

    def __init__(self, hazard: str, severity: str, note: str) -> None:
        self._said = {"notes": note, "hazard": hazard, "severity": severity}

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        entries = [{"id": k, "hazard": "none", "severity": "none"} for k in range(question.asked)]
        sure = {self._said["hazard"]: 0.8, "other": 0.2}
        confidence = {"/hazard": Confidence(p=0.8, choices=sure | {"fire": 0.0}, mask_mass=1.0)}
        return Reply(text=examples.spelled(self._said | {"detections": entries}), confidence=confidence)


def test_the_measure_counts(scenes: list[Scene]) -> None:
    calm = [scene for scene in scenes if scene[1].verdict.hazard == "none"][:2]
    fire = [scene for scene in scenes if scene[1].verdict.hazard == "fire"][:1]
    scores = measure.measure(_Knows("none", "none", "Nothing is wrong. Nine workers in view."), calm + fire)
    objects = sum(len(truth.things) for _, truth in calm + fire)
    part_of_it = sum(bool(thing.verdicts) for thing in fire[0][1].things)
    figures = scores.figures()
    assert (figures["frames"], figures["valid"]) == (3, 1.0)
    assert figures["hazard"] == figures["severity"] == pytest.approx(2 / 3, abs=1e-3)
    assert figures["severity within one rank"] == pytest.approx(2 / 3, abs=1e-3)
    assert figures["objects"] == objects
    assert figures["object hazard"] == pytest.approx(1 - part_of_it / objects, abs=1e-3)
    assert figures["true claims"] == pytest.approx(2 / 6, abs=1e-3)
    assert measure.calibration_errors(scores.judgements, Temperatures(1.0)) == {
        "/hazard": pytest.approx(0.8 - 2 / 3, abs=1e-3),
        "all": pytest.approx(0.8 - 2 / 3, abs=1e-3),
    }
