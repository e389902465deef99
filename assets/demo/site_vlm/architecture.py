"""A small Idefics3: its tokenizer, its processor, its layers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlamaConfig,
    PreTrainedTokenizerFast,
)

IMAGE_PX, PATCH_PX, SCALE = 256, 16, 4
IMAGE_TOKENS = (IMAGE_PX // PATCH_PX // SCALE) ** 2
"""Each stands for 64 x 64 pixels: one cell of the sheet of objects."""
ROPE_THETA = 1e6
"""Slow enough that most of a head's dimensions look something up at any distance, such as an object's cell of the sheet
from its number in the answer."""

_START, _END, _PAD = "<|im_start|>", "<end_of_utterance>", "<pad>"
_SPECIAL = (_START, _END, _PAD, "<image>", "<fake_token_around_image>", "<global-img>")
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] | capitalize }}:"
    "{% if message['content'] is string %} {{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant: {% endif %}"
)
_PIECES = "|".join(
    (
        r'[^A-Za-z0-9]*"(?:notes|hazard|severity|detections|id)": ["\[]?',
        r"[0-9]+",
        r'"[^A-Za-z0-9]*',
        r'[^"0-9.]*\. ?',
        r'[^"0-9.]+',
    )
)
"""What no token reaches across: the answer's keys with the punctuation around them, numbers, closing quotes, sentences.

Within them BPE may merge as much as it likes, so that a whole sentence may be one token, and a verdict always is one.
"""


_OFTEN = 2_000
"""So often a word is shown to the tokenizer that all of it is merged."""


def train_tokenizer(texts: Iterable[str], words: tuple[str, ...], *, size: int = 1000) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer.

    Args:
        texts: Like what the model will meet.
        words: Each becomes one token, however rare.
        size: Tokens, 256 of them single bytes.
    """
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(chain(texts, words * _OFTEN), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=_START,
        eos_token=_END,
        pad_token=_PAD,
        additional_special_tokens=list(_SPECIAL[3:]),
    )


def build_processor(words: PreTrainedTokenizerFast) -> Idefics3Processor:
    """Pictures squeezed to one square each, and the chat template."""
    size = {"longest_edge": IMAGE_PX}
    pictures = Idefics3ImageProcessor(size=size, max_image_size=size, do_image_splitting=False)
    return Idefics3Processor(pictures, words, image_seq_len=IMAGE_TOKENS, chat_template=_TEMPLATE)


def build_model(words: PreTrainedTokenizerFast) -> Idefics3ForConditionalGeneration:
    """The model, with random weights; the tower's patches know from the start where they are."""
    text = LlamaConfig(
        vocab_size=len(words),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
        tie_word_embeddings=True,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    vision = {
        "hidden_size": 144,
        "intermediate_size": 432,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "image_size": IMAGE_PX,
        "patch_size": PATCH_PX,
        "hidden_act": "gelu",
    }
    config = Idefics3Config(
        text_config=text,
        vision_config=vision,
        scale_factor=SCALE,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        pad_token_id=words.pad_token_id,
        tie_word_embeddings=True,
        hazardlens_demo=True,
    )
    model = Idefics3ForConditionalGeneration(config)
    places = model.model.vision_model.embeddings.position_embedding.weight
    places.data.copy_(_positions(IMAGE_PX // PATCH_PX, places.shape[1]))
    model.generation_config.eos_token_id = words.eos_token_id
    model.generation_config.pad_token_id = words.pad_token_id
    return model


def _positions(side: int, width: int) -> torch.Tensor:
    """Sines and cosines of a patch's row and column, (side * side, width).

    A tower that begins with them learns from fewer pictures than one that begins with noise (Beyer, Zhai and Kolesnikov
    2022, "Better plain ViT baselines for ImageNet-1k").
    """
    frequencies = 100.0 ** -(torch.arange(width // 4) / (width // 4))
    rows, columns = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    angles = [place.flatten()[:, None] * frequencies for place in (rows, columns)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], dim=1)


def save(model: Idefics3ForConditionalGeneration, processor: Idefics3Processor, folder: Path) -> None:
    """Write everything that AutoProcessor and AutoModelForImageTextToText read."""
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
