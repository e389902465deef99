"""Drafts: the last answer saves passes of the model and never decides what is written."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import DynamicCache, LlamaConfig, MistralConfig

from hazardlens.schema import FieldSchema
from hazardlens.vlm.decode import Decoding, _can_forget
from hazardlens.vlm.draft import Draft, Drafts
from hazardlens.vlm.local import LocalVlm
from hazardlens.vlm.prompt import show
from tests.random_vlm import build, build_qwen2_vl
from tests.vlm.test_decode import VIEW, ask, question


def test_a_draft_is_what_came_behind_the_same_tokens() -> None:
    draft = Draft([1, 2, 3, 4, 1, 2, 5, 6], most=3)
    assert draft.after([1, 2], missed=0) == [3, 4, 1]
    assert draft.after([9, 9, 4, 1, 2], missed=0) == [5, 6]
    assert draft.after([9, 2], missed=0) == []
    assert draft.after([1], missed=0) == [2, 3, 4], "an answer's first token is known by standing first"


def test_a_draft_is_as_long_as_it_proves_right() -> None:
    draft = Draft(list(range(300)), most=64)
    lengths = [len(draft.after([0, 1], missed=missed)) for missed in (0, 0, 0, 0, 54, 10, 1)]
    assert lengths == [16, 32, 64, 64, 10, 4, 4]


def test_the_last_answer_of_each_source_is_kept() -> None:
    drafts = Drafts(most=8)
    assert drafts.of("door") is None
    drafts.keep("door", [1, 2, 3])
    drafts.keep("yard", [1, 5, 6])
    kept = drafts.of("door")
    assert kept is not None
    assert kept.after([1, 2], missed=0) == [3]
    for number in range(64):
        drafts.keep(f"camera {number}", [1])
    assert drafts.of("door") is None
    assert Drafts(most=0).of("door") is None


@pytest.mark.parametrize("make", [build, build_qwen2_vl])
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_answers_are_the_same_with_drafts_and_take_fewer_passes(
    make: Callable[[Path], Path], temperature: float, tmp_path: Path
) -> None:
    """The same frame again is foreseen as a whole; others are foreseen in part, and their answers are their own."""
    schema = FieldSchema.load("hazard")
    folder = make(tmp_path)
    plain, drafting = (LocalVlm(folder, device="cpu", temperature=temperature, draft_tokens=n) for n in (0, 32))
    asked = [question(schema, count, index) for count, index in ((5, 0), (5, 0), (5, 1), (3, 2), (0, 2))]
    for number, one in enumerate(asked):
        own, quick = ask(plain, one), ask(drafting, one)
        assert quick.text == own.text
        assert quick.confidence.keys() == own.confidence.keys()
        for pointer, sure in own.confidence.items():
            assert quick.confidence[pointer].p == pytest.approx(sure.p, abs=1e-4)
            assert quick.confidence[pointer].mask_mass == pytest.approx(sure.mask_mass, abs=1e-4)
        assert quick.output_tokens == own.output_tokens
        if number == 1:
            assert quick.model_steps < own.model_steps / 4


@pytest.mark.parametrize("more", [0, 12])
def test_a_draft_keeps_within_a_small_budget(random_vlm_folder: Path, more: int) -> None:
    schema = FieldSchema.load("hazard")
    asked = question(schema, 5, 0)
    free = LocalVlm(random_vlm_folder, device="cpu")
    least = free._masks.shortest_tokens(asked.schema)
    earlier = ask(free, asked)
    plain, drafting = (
        LocalVlm(random_vlm_folder, device="cpu", max_new_tokens=least + more, draft_tokens=n) for n in (0, 32)
    )
    drafting._drafts = free._drafts
    own, quick = ask(plain, asked), ask(drafting, asked)
    assert quick.text == own.text != earlier.text
    assert quick.model_steps < own.model_steps


def test_every_wrong_draft_is_forgotten(random_vlm_folder: Path) -> None:
    """Drafts that end in a token which is not the next one, at every place of an answer."""
    asked = question(FieldSchema.load("hazard"), 2, 0)
    vlm = LocalVlm(random_vlm_folder, device="cpu")
    inputs, masks = vlm.inputs(show(asked, VIEW)), vlm._masks

    def decoded(draft: Draft | None) -> Decoding:
        session = masks.session(asked.schema)
        decoding = Decoding(session=session, generator=torch.Generator(), max_new_tokens=4000, draft=draft)
        vlm.decode(inputs, decoding)
        return decoding

    right = decoded(None)
    wrong = [(token + 1) % 256 if place % 7 == 3 else token for place, token in enumerate(right.tokens)]
    tried = decoded(Draft(wrong, most=16))
    assert tried.tokens == right.tokens
    assert tried.model_steps < right.model_steps


def test_a_cache_that_cannot_go_back_gets_no_draft() -> None:
    assert _can_forget(DynamicCache(config=LlamaConfig(num_hidden_layers=2)))
    assert not _can_forget(DynamicCache(config=MistralConfig(num_hidden_layers=2, sliding_window=8)))
