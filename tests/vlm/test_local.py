"""A local VLM: what is wrong with it is said, nothing runs with random weights by accident, it sees what is shown."""

import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from hazardlens.errors import WeightsError
from hazardlens.merge.lane import answer
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Shown, View
from hazardlens.vlm.loading import load_tokenizer
from hazardlens.vlm.local import LocalVlm
from tests.random_vlm import build, build_qwen2_vl, tokenizer
from tests.vlm.test_decode import ask, question


def copy_of(folder: Path, to: Path) -> Path:
    return Path(shutil.copytree(folder, to))


def without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def with_one_weight_missing(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop("lm_head.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def with_cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])


def without_processor(folder: Path) -> None:
    for name in ("processor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


def without_chat_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


def without_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def with_broken_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_weights, "cannot be loaded"),
        (with_one_weight_missing, "1 weights are missing, the first is lm_head.weight"),
        (with_cut_weights, "cannot be loaded"),
        (without_processor, "cannot"),
        (without_chat_template, "no chat template"),
        (without_config, "cannot"),
        (with_broken_config, "cannot"),
    ],
)
def test_an_incomplete_folder_is_refused(random_vlm_folder: Path, tmp_path: Path, spoil, message: str) -> None:
    folder = copy_of(random_vlm_folder, tmp_path / "vlm")
    spoil(folder)
    with pytest.raises(WeightsError, match=message) as caught:
        LocalVlm(folder, device="cpu")
    assert str(folder) in str(caught.value)
    assert caught.value.help


def test_a_text_only_model_is_refused(tmp_path: Path) -> None:
    words = tokenizer()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    with pytest.raises(WeightsError, match=r"cannot see|cannot be loaded"):
        LocalVlm(tmp_path, device="cpu")


@pytest.mark.parametrize("name", ["/no/such/folder", "./models/vlm", "../vlm", "~/vlm", "a/b/c", "with space"])
def test_a_folder_that_is_not_there_is_no_name_on_the_hub(name: str) -> None:
    with pytest.raises(WeightsError, match="no such folder") as caught:
        LocalVlm(name, device="cpu")
    for part in ("path of a folder", "--base-url URL", "hazardlens demo"):
        assert part in caught.value.help


def test_a_hub_that_cannot_be_reached_is_named_with_a_way_out() -> None:
    with pytest.raises(WeightsError, match="nobody/no-such-model") as caught:
        LocalVlm("nobody/no-such-model", device="cpu")
    for part in ("shipped models", "cache", "path of a folder", "network", "--base-url URL", "hazardlens demo"):
        assert part in caught.value.help


def test_a_model_that_is_not_wholly_in_the_cache_is_named_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hazardlens.vlm.loading.try_to_load_from_cache", lambda *_, **__: "config.json")
    with pytest.raises(WeightsError, match="nobody/no-such-model cannot be loaded") as caught:
        LocalVlm("nobody/no-such-model", device="cpu")
    for part in ("not all of it", "path of a folder", "--base-url URL", "hazardlens demo"):
        assert part in caught.value.help


def test_a_shipped_model_is_loaded_by_name_and_its_config_says_that_it_is_a_demo_model(
    random_vlm_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = build(tmp_path / "models" / "small-vlm", demo=True)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr("hazardlens.resources.shipped_model", lambda name: shipped if name == "small-vlm" else None)
    vlm = LocalVlm("small-vlm", device="cpu")
    assert (vlm.name, vlm.demo) == ("small-vlm", True)
    assert load_tokenizer("small-vlm").count_tokens("A worker.") == load_tokenizer(shipped).count_tokens("A worker.")
    vlm._model.save_pretrained(tmp_path / "copy")
    assert json.loads((tmp_path / "copy" / "config.json").read_text())["hazardlens_demo"] is True
    shutil.copytree(random_vlm_folder, "small-vlm")
    assert not LocalVlm("small-vlm", device="cpu").demo, "a folder that is there comes first"


@pytest.mark.parametrize("device", ["cuda:77", "gpu"])
def test_a_device_that_is_not_there_is_a_clear_error(random_vlm_folder: Path, device: str) -> None:
    with pytest.raises(WeightsError, match="cannot be loaded") as caught:
        LocalVlm(random_vlm_folder, device=device)
    assert "device" in caught.value.help


def test_config_and_weights_that_do_not_belong_together_are_refused(random_vlm_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(random_vlm_folder, tmp_path / "vlm")
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["intermediate_size"] *= 2
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="cannot be loaded"):
        LocalVlm(folder, device="cpu")


def test_quantisation_without_its_packages_is_named(random_vlm_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(WeightsError, match="accelerate and bitsandbytes") as caught:
        LocalVlm(random_vlm_folder, device="cpu", quantization="8bit")
    assert "pip install accelerate bitsandbytes" in caught.value.help


@pytest.mark.parametrize(("quantization", "layer"), [("8bit", "Linear8bitLt"), ("4bit", "Linear4bit")])
def test_a_quantised_model_answers(random_vlm_folder: Path, quantization, layer: str) -> None:
    vlm = LocalVlm(random_vlm_folder, device="cpu", quantization=quantization)
    assert layer in {type(module).__name__ for module in vlm._model.modules()}
    asked = question(FieldSchema.load("hazard"), 2, 0)
    reply = ask(vlm, asked)
    assert reply.end == "complete"
    asked.schema.parse(reply.text)


@pytest.mark.parametrize("make", [build, build_qwen2_vl])
def test_the_second_picture_reaches_the_model(make: Callable[[Path], Path], tmp_path: Path) -> None:
    vlm = LocalVlm(make(tmp_path), device="cpu")
    first, second, third = np.random.default_rng(0).integers(0, 256, (3, 112, 112, 3), np.uint8)

    def said(image: NDArray[np.uint8], crops: NDArray[np.uint8] | None) -> tuple[list[int], torch.Tensor]:
        """The prompt's tokens, and what the model thinks of the token after each."""
        inputs = vlm.inputs(Shown(image=image, prompt="What is seen?", crops=crops))
        with torch.inference_mode():
            return inputs["input_ids"][0].tolist(), vlm._model(**inputs).logits[0]

    alone, both = said(first, None), said(first, second)
    assert torch.equal(both[1], said(first, second)[1])
    for different in (alone, said(first, third), said(third, second), said(second, first)):
        assert not torch.allclose(both[1][-1], different[1][-1], atol=1e-5)
    mark = vlm._model.config.image_token_id
    assert both[0].count(mark) == 2 * alone[0].count(mark) > 0
    end = len(alone[0]) - alone[0][::-1].index(mark)
    assert torch.allclose(both[1][:end], alone[1][:end], atol=1e-5), "the first picture stands first"
    assert both[0][-len(alone[0][end:]) :] == alone[0][end:], "the text stands last"
    assert "What is seen?" in vlm._processor.tokenizer.decode(alone[0][end:])


@pytest.mark.parametrize("make", [build, build_qwen2_vl])
def test_an_answer_about_two_pictures_is_held_to_the_schema(make: Callable[[Path], Path], tmp_path: Path) -> None:
    vlm = LocalVlm(make(tmp_path), device="cpu", view=View(longest_side_px=64, crops_px=16, describe_fields=False))
    result = answer(vlm, question(FieldSchema.load("hazard"), 2, 0), threading.Event())
    assert result.status == "ok", result.reason
    assert result.shown.crops.shape == (64, 64, 3)
    assert len(result.fields["detections"]) == 2


def test_shipped_samplers_of_a_model_do_not_fight_the_mask(random_vlm_folder: Path, tmp_path: Path) -> None:
    folder = copy_of(random_vlm_folder, tmp_path / "vlm")
    path = folder / "generation_config.json"
    shipped = json.loads(path.read_text())
    path.write_text(json.dumps({**shipped, "repetition_penalty": 5.0, "do_sample": True, "temperature": 2.0}))
    config = LocalVlm(folder, device="cpu")._sampling
    assert not config.do_sample
    assert config.repetition_penalty in (None, 1.0)
