"""The VLM of real size that the benchmarks serve."""

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForImageTextToText, AutoProcessor

from tests.servers.peers import smollm2
from tests.smollm2_vlm import build_smollm2


@pytest.mark.full
def test_it_is_smollm2_and_takes_pictures(tmp_path: Path) -> None:
    folder = build_smollm2(tmp_path / "vlm", smollm2())
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    assert model.num_parameters() > 134_000_000
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight

    def said(*parts: dict[str, str], images: list[np.ndarray] | None = None) -> tuple[int, str]:
        messages = [{"role": "user", "content": list(parts)}]
        prompt = processor.apply_chat_template(messages, add_generation_prompt=True)
        inputs = processor(text=prompt, images=images, return_tensors="pt")
        length = inputs["input_ids"].shape[1]
        tokens = model.generate(**inputs, max_new_tokens=8, do_sample=False)
        return length, processor.decode(tokens[0, length:])

    question = {"type": "text", "text": "What is the capital of France?"}
    length, answer = said(question)
    assert "Paris" in answer
    seeing, _ = said({"type": "image"}, question, images=[np.zeros((576, 1024, 3), np.uint8)])
    assert seeing - length >= 64
