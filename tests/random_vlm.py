"""VLMs with random weights: the strictest judges of a mask, and never judges of content."""

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
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
)

END = "<|im_end|>"
PAD = "<pad>"
CORPUS = [
    '{"notes": "A worker by the truck wears no helmet.", "hazard": "none", "severity": "low", "detections": ',
    '[{"id": 0, "hazard": "missing_ppe", "severity": "medium"}, {"id": 1, "hazard": "none", "severity": "none"}]}',
    "fire smoke spill person_down missing_ppe vehicle_proximity blocked_path other none low medium high critical",
]


def chat_template(image: str) -> str:
    """A template that takes plain strings as well as lists of parts; `image` is what stands for a picture."""
    return (
        "{% for message in messages %}<|im_start|>{{ message['role'] | capitalize }}:"
        "{% if message['content'] is string %} {{ message['content'] }}{% else %}"
        "{% for part in message['content'] %}"
        "{% if part['type'] == 'image' %}" + image + "{% else %} {{ part['text'] }}{% endif %}"
        "{% endfor %}{% endif %}" + END + "\n{% endfor %}"
        "{% if add_generation_prompt %}Assistant: {% endif %}"
    )


def tokenizer(*image_tokens: str, corpus: list[str] = CORPUS) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer that knows a little of the words of `corpus`, by default of the hazard schema."""
    special = ["<|im_start|>", END, PAD, *image_tokens]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(corpus * 20, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|im_start|>",
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=list(image_tokens),
    )


def text_settings(words: PreTrainedTokenizerFast, heads: int = 4) -> dict[str, object]:
    """A language model of two layers whose output is 60 rows wider than the tokenizer."""
    return {
        "vocab_size": len(words) + 60,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // 2,
        "max_position_embeddings": 8192,
        "pad_token_id": words.pad_token_id,
        "bos_token_id": words.bos_token_id,
        "eos_token_id": words.eos_token_id,
    }


def build(folder: Path, *, seed: int = 0, demo: bool = False, heads: int = 4) -> Path:
    """Write an Idefics3 with random weights to `folder`; `demo` marks it as a demo model.

    vLLM takes no heads as narrow as those of the default on a CPU; with 2 `heads` they are 32 wide.
    """
    torch.manual_seed(seed)
    words = tokenizer("<image>", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>")
    vision = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": 16,
    }
    config = Idefics3Config(
        text_config=LlamaConfig(**text_settings(words, heads)),
        vision_config=vision,
        scale_factor=2,
        image_token_id=words.convert_tokens_to_ids("<image>"),
        pad_token_id=words.pad_token_id,
        tie_word_embeddings=False,
        **({"hazardlens_demo": True} if demo else {}),
    )
    size = {"longest_edge": 64}
    pictures = Idefics3ImageProcessor(size=size, max_image_size=size, do_image_splitting=False)
    processor = Idefics3Processor(pictures, words, image_seq_len=4, chat_template=chat_template("<image>"))
    return save(Idefics3ForConditionalGeneration(config), processor, words, folder)


def build_qwen2_vl(folder: Path, *, seed: int = 0) -> Path:
    """Write a Qwen2-VL with random weights to `folder`; its positions have three dimensions."""
    torch.manual_seed(seed)
    marks = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>")
    words = tokenizer(*marks)
    start, image, end, video = (words.convert_tokens_to_ids(mark) for mark in marks)
    rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
    config = Qwen2VLConfig(
        text_config={**text_settings(words), "rope_parameters": rope},
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2},
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=False,
    )
    pictures = Qwen2VLImageProcessor(size={"shortest_edge": 56 * 56, "longest_edge": 112 * 112})
    template = chat_template("".join(marks[:3]))
    processor = Qwen2VLProcessor(pictures, words, Qwen2VLVideoProcessor(), chat_template=template)
    return save(Qwen2VLForConditionalGeneration(config), processor, words, folder)


def save(model: object, processor: object, words: PreTrainedTokenizerFast, folder: Path) -> Path:
    """Write a model with its processor, answers of which end where the tokenizer's text ends."""
    model.generation_config.eos_token_id = words.eos_token_id
    model.generation_config.pad_token_id = words.pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
