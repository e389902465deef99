"""A VLM with random weights: the strictest judge of a mask, and never a judge of content."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlamaConfig,
    PreTrainedTokenizerFast,
)

SPECIAL_TOKENS = [
    "<|im_start|>",
    "<end_of_utterance>",
    "<pad>",
    "<image>",
    "<fake_token_around_image>",
    "<global-img>",
    "<row_1_col_1>",
]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] | capitalize }}:"
    "{% if message['content'] is string %} {{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant: {% endif %}"
)

CORPUS = [
    '{"notes": "A worker by the truck wears no helmet.", "hazard": "none", "severity": "low", "detections": ',
    '[{"id": 0, "hazard": "missing_ppe", "severity": "medium"}, {"id": 1, "hazard": "none", "severity": "none"}]}',
    "fire smoke spill person_down missing_ppe vehicle_proximity blocked_path other none low medium high critical",
]


def tokenizer(vocab_size: int = 420) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that knows a little of the hazard schema's words."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(CORPUS * 20, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>",
        pad_token="<pad>",
        additional_special_tokens=SPECIAL_TOKENS[3:],
        chat_template=CHAT_TEMPLATE,
    )


def build(folder: Path, *, seed: int = 0, spare_rows: int = 60) -> Path:
    """Write an Idefics3 with random weights to `folder`; its lm_head is `spare_rows` wider than the tokenizer."""
    torch.manual_seed(seed)
    words = tokenizer()
    text = LlamaConfig(
        vocab_size=len(words) + spare_rows,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        pad_token_id=words.pad_token_id,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    vision = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": 16,
    }
    config = Idefics3Config(
        text_config=text,
        vision_config=vision,
        scale_factor=2,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        pad_token_id=words.pad_token_id,
        tie_word_embeddings=False,
    )
    model = Idefics3ForConditionalGeneration(config)
    model.generation_config.eos_token_id = words.eos_token_id
    model.generation_config.pad_token_id = words.pad_token_id
    pictures = Idefics3ImageProcessor(
        size={"longest_edge": 64}, max_image_size={"longest_edge": 64}, do_image_splitting=False
    )
    processor = Idefics3Processor(pictures, words, image_seq_len=4, chat_template=CHAT_TEMPLATE)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
