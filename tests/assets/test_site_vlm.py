"""The demo's VLM before it is trained: its words, its inputs, its lessons, its measure."""

import itertools
import random
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import Idefics3Processor

from drawn_site.compose import compose
from drawn_site.notes import claims
from drawn_site.render import render
from drawn_site.rules import Truth, judge
from drawn_site.scene import KINDS
from hazardlens.record import Confidence
from hazardlens.resources import asset_package
from hazardlens.vlm.base import Question, Reply, Shown, Vlm
from hazardlens.vlm.prompt import prompt_text, show

asset_package("site_detector")
asset_package("site_vlm")
from site_vlm import architecture, examples, measure, training  # noqa: E402
from site_vlm.batches import HAZARDS, IGNORE, PATCHES, VERDICTS, make_batch, squeeze  # noqa: E402

Scene = tuple[NDArray[np.uint8], Truth]


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
        batch = make_batch([example], [squeeze(image, processor)], processor)
        length = expected["input_ids"].shape[1]
        assert torch.equal(batch.inputs["input_ids"][:, :length], expected["input_ids"])
        assert (batch.inputs["pixel_values"] - expected["pixel_values"]).abs().max() < 0.01
        answer = batch.inputs["input_ids"][0, length:-1]
        assert processor.tokenizer.decode(answer) == examples.spelled(example.answer)
        assert int(batch.inputs["input_ids"][0, -1]) == processor.tokenizer.eos_token_id
        assert (batch.labels[0, :length] == IGNORE).all()
        assert torch.equal(batch.labels[0, length:-1], answer)


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
    batch = make_batch([example], [squeeze(scenes[3][0], processor)], processor)
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
    known = _Known((image, squeeze(image, processor), truth) for image, truth in scenes)

    def weights(folder: Path, *lengths: int) -> torch.Tensor:
        for length in lengths:
            torch.manual_seed(0)
            model = architecture.build_model(processor.tokenizer)
            trainer = training.Trainer(model, processor, known, steps=4, tower_steps=2, folder=folder)
            trainer.run(every=1, until=length)
        return model.lm_head.weight.detach().clone()

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, parts = weights(tmp_path / "a", 4), weights(tmp_path / "b", 1, 3, 4)
    assert torch.equal(whole, parts)
    assert (tmp_path / "b" / "model" / "config.json").exists()


class _Known(list[tuple[NDArray[np.uint8], NDArray[np.uint8], Truth]]):
    """Scenes to learn from, as the trainer asks for them."""

    def things(self, index: int) -> int:
        return len(self[index][2].things)


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


def test_each_scene_comes_once_and_those_of_a_step_are_about_as_full(
    scenes: list[Scene], processor: Idefics3Processor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "BATCH", 2)
    monkeypatch.setattr(training, "_SORTED", 3)
    known = _Known((image, image, truth) for image, truth in scenes)
    model = architecture.build_model(processor.tokenizer)
    trainer = training.Trainer(model, processor, known, steps=6, tower_steps=0, folder=tmp_path)
    steps = [[k for k, _ in trainer._order(step)] for step in range(6)]
    assert sorted(itertools.chain(*steps)) == list(range(len(known)))
    for group in (steps[:3], steps[3:]):
        spans = sorted(sorted(known.things(k) for k in step) for step in group)
        counts = list(itertools.chain(*spans))
        assert counts == sorted(counts)


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
    assert measure.calibration_errors(scores.judgements, 1.0) == {
        "hazard": pytest.approx(0.8 - 2 / 3, abs=1e-3),
        "all": pytest.approx(0.8 - 2 / 3, abs=1e-3),
    }
