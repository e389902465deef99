"""A VLM of the size of real small ones: SmolLM2-135M behind a vision tower that was never trained."""

from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
)

from tests.random_vlm import chat_template, save

SIDE_PX, PATCH_PX, SCALE = 512, 16, 4
MARKS = ("<image>", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>")


def build_smollm2(folder: Path, weights: Path) -> Path:
    """Write an Idefics3 to `folder`: pictures of 512 px in 64 tokens as in SmolVLM, four random layers that see them.

    It writes English and sees nothing; of use where only the work counts.

    Args:
        folder: Where to.
        weights: Weights of SmolLM2-135M as GGUF.
    """
    torch.manual_seed(0)
    words = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    words.add_special_tokens({"additional_special_tokens": list(MARKS)})
    language = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype=torch.float32)
    language.resize_token_embeddings(len(words), mean_resizing=False)
    del language.config.quantization_config  # how the GGUF was packed; vLLM would take the weights for packed ones
    config = Idefics3Config(
        text_config=language.config,
        vision_config={
            "hidden_size": 192,
            "intermediate_size": 768,
            "num_hidden_layers": 4,
            "num_attention_heads": 3,
            "image_size": SIDE_PX,
            "patch_size": PATCH_PX,
        },
        scale_factor=SCALE,
        image_token_id=words.convert_tokens_to_ids(MARKS[0]),
        pad_token_id=words.pad_token_id,
        tie_word_embeddings=True,
    )
    model = Idefics3ForConditionalGeneration(config)
    model.model.text_model.load_state_dict(language.model.state_dict())
    model.tie_weights()
    side = {"longest_edge": SIDE_PX}
    pictures = Idefics3ImageProcessor(size=side, max_image_size=side, do_image_splitting=False)
    tokens = (SIDE_PX // PATCH_PX // SCALE) ** 2
    processor = Idefics3Processor(pictures, words, image_seq_len=tokens, chat_template=chat_template(MARKS[0]))
    return save(model, processor, words, folder)
