"""The VLM of random weights as llama.cpp reads it: a GGUF file for the language model and one for the eyes."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

TEXT, VISION, CONNECTOR, HEAD = "model.text_model.", "model.vision_model.", "model.connector.", "lm_head."
TWO_LINES = "\u010a\u010a"
"""Two line breaks as byte-level BPE spells them: llama.cpp puts that word in front of a picture of this kind."""


def build(folder: Path, out: Path) -> tuple[Path, Path]:
    """Write the Idefics3 of a folder, as `random_vlm.build` makes it, as `text.gguf` and `mmproj.gguf` to `out`."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = load_file(folder / "model.safetensors")
    return _text(folder, config["text_config"], weights, out / "text.gguf"), _eyes(config, weights, out / "mmproj.gguf")


def _text(folder: Path, config: dict[str, Any], weights: dict[str, NDArray[Any]], path: Path) -> Path:
    heads, narrow_heads, layers = (
        config[f"num_{name}"] for name in ("attention_heads", "key_value_heads", "hidden_layers")
    )
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(layers)
    writer.add_head_count(heads)
    writer.add_head_count_kv(narrow_heads)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    writer.add_vocab_size(config["vocab_size"])
    _add_words(writer, folder, config)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for name, weight in weights.items():
        if name.startswith((TEXT, HEAD)):
            if name.endswith(("q_proj.weight", "k_proj.weight")):
                weight = _interleaved(weight, heads if "q_proj" in name else narrow_heads)
            _add(writer, names, name.replace(TEXT, "model."), weight)
    return _written(writer, path)


def _eyes(config: dict[str, Any], weights: dict[str, NDArray[Any]], path: Path) -> Path:
    vision = config["vision_config"]
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type(gguf.VisionProjectorType.IDEFICS3)
    writer.add_vision_image_size(vision["image_size"])
    writer.add_vision_preproc_image_size(2 * vision["image_size"])
    writer.add_vision_patch_size(vision["patch_size"])
    writer.add_vision_embedding_length(vision["hidden_size"])
    writer.add_vision_feed_forward_length(vision["intermediate_size"])
    writer.add_vision_block_count(vision["num_hidden_layers"])
    writer.add_vision_head_count(vision["num_attention_heads"])
    writer.add_vision_attention_layernorm_eps(vision["layer_norm_eps"])
    writer.add_vision_projection_dim(config["text_config"]["hidden_size"])
    writer.add_vision_projector_scale_factor(config["scale_factor"])
    writer.add_vision_image_mean([0.5, 0.5, 0.5])
    writer.add_vision_image_std([0.5, 0.5, 0.5])
    writer.add_vision_use_gelu(True)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, vision["num_hidden_layers"])
    for name, weight in weights.items():
        if name.startswith((VISION, CONNECTOR)):
            _add(writer, names, name, weight)
    return _written(writer, path)


def _add_words(writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any]) -> None:
    """The tokenizer; rows of the output beyond it become words that nobody writes, but for the first."""
    read = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    numbers = dict(read["model"]["vocab"])
    numbers |= {one["content"]: one["id"] for one in read["added_tokens"]}
    special = {one["id"] for one in read["added_tokens"] if one["special"]}
    words = {number: word for word, number in numbers.items()}
    if TWO_LINES not in numbers:
        words[len(words)] = TWO_LINES
    size = config["vocab_size"]
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([words.get(number, f"[PAD{number}]") for number in range(size)])
    writer.add_token_types(
        [
            kinds.UNUSED if number not in words else kinds.CONTROL if number in special else kinds.NORMAL
            for number in range(size)
        ]
    )
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in read["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    writer.add_chat_template((folder / "chat_template.jinja").read_text(encoding="utf-8"))


def _interleaved(weight: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of a head in the order in which llama.cpp turns them: pairs side by side in place of halves."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _add(writer: gguf.GGUFWriter, names: gguf.TensorNameMap, name: str, weight: NDArray[Any]) -> None:
    written = names.get_name(name, try_suffixes=(".weight", ".bias"))
    assert written is not None, name
    writer.add_tensor(written, np.ascontiguousarray(weight, np.float32))


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
