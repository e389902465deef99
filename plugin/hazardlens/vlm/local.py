"""A local VLM: any transformers image-text-to-text model, its answers held to the schema inside this process."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import BatchFeature, GenerationConfig, LogitsProcessorList, PreTrainedModel

from hazardlens.errors import PipelineError, WeightsError
from hazardlens.record import Confidence
from hazardlens.resources import model_source
from hazardlens.schema import GroundedSchema
from hazardlens.vlm.base import Question, Reply, Shown, View, Vlm
from hazardlens.vlm.calibration import Temperatures, tempered
from hazardlens.vlm.decode import Decoding, Reasoning, jump_forward
from hazardlens.vlm.draft import Drafts
from hazardlens.vlm.exact import exact_choices
from hazardlens.vlm.loading import Quantization, load_model, load_processor
from hazardlens.vlm.mask import MaskFactory, MaskProcessor

_SEPARATOR = b"\n\n"
_NEXT_TRY = 2**40
"""What lies between the seeds of two tries; no video has as many frames."""
CONFIDENCE_TEMPERATURE = "hazardlens_confidence_temperature"
"""Key of a model's `config.json`."""


class LocalVlm(Vlm):
    """A model of `AutoModelForImageTextToText` with its `AutoProcessor`, decoded under a mask.

    Args:
        model: Folder, name of a shipped model, or hub name.
        device: `auto` (a GPU where there is one), `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: `auto` (as saved), `float32`, `bfloat16`, `float16`.
        quantization: `8bit` or `4bit` through bitsandbytes, or None.
        max_new_tokens: Tokens an answer may take, None for no limit of its own. As they run out, free text is ended and
            what is optional left out; a verdict is never narrowed.
        temperature: 0 picks the likeliest token; above 0 samples.
        top_k: Sample among the k likeliest tokens, or None.
        top_p: Sample among the likeliest tokens of this total probability, or None.
        seed: Seed of the sampling; an answer depends on it and on the frame's index, not on the order of questions.
        timeout_s: Wall time that one answer may take in seconds, or None.
        exact_confidence: Whether the model's own probability of each value of a choice is found too, by one more
            forward pass for each choice.
        answer_tries: Most times to ask where an answer satisfies the mask, but not what is only checked; from the
            second on it is sampled.
        reasoning_tokens: Tokens of free text that the model may write ahead of the answer; 0 for none. They do not
            count as the answer's.
        keep_reasoning: Whether that text is given in the reply.
        draft_tokens: Most tokens of the last answer about the same source that are tried in one forward pass, 0 for
            none. They save time, and change nothing but the rounding of the model's logits.
        view: How it is shown its questions.
        trust_remote_code: Whether code that comes with the model may run.
        revision: Revision on the hub, or None.

    Raises:
        WeightsError: If the model cannot be had, is incomplete, or is not an image-text-to-text model, or the
            temperature of its confidence is not a number above 0.
    """

    enforced = "mask"

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        quantization: Quantization | None = None,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        timeout_s: float | None = None,
        exact_confidence: bool = False,
        answer_tries: int = 3,
        reasoning_tokens: int = 0,
        keep_reasoning: bool = False,
        draft_tokens: int = 32,
        view: View = Vlm.view,
        trust_remote_code: bool = False,
        revision: str | None = None,
    ) -> None:
        model = model_source(model)
        self.name = Path(model).resolve().name if Path(model).is_dir() else str(model)
        self.view = replace(view, reason_first=reasoning_tokens > 0)
        self.max_new_tokens = max_new_tokens
        self._timeout_s = timeout_s
        self._exact_confidence = exact_confidence
        self._answer_tries = answer_tries
        self._reasoning_tokens = reasoning_tokens
        self._keep_reasoning = keep_reasoning
        self._drafts = Drafts(most=draft_tokens)
        self._seed = seed
        self._lock = threading.Lock()
        self._decoding: Decoding | None = None
        where = {"trust_remote_code": trust_remote_code, "revision": revision}
        self._processor = load_processor(model, where)
        self._model = load_model(model, device=device, dtype=dtype, quantization=quantization, where=where)
        self.demo = bool(getattr(self._model.config, "hazardlens_demo", False))
        self._confidence_temperatures = _confidence_temperatures(self._model)
        for layers in self._model.modules():
            if isinstance(layers, torch.nn.ModuleList):
                for layer in layers:
                    layer.register_forward_pre_hook(self._look_up)
        self._sampling = _sampling(self._model, temperature, top_k, top_p)
        self._retrying = _sampling(self._model, temperature or 1.0, top_k, top_p)
        self._masks = MaskFactory(
            self._processor.tokenizer,
            vocab_rows=_output_rows(self._model),
            eos_token_ids=_end_token_ids(self._model, self._processor.tokenizer),
        )
        for config in (self._sampling, self._retrying):
            config.eos_token_id = _end_token_ids(self._model, self._processor.tokenizer)

    def prepare(self, schema: GroundedSchema) -> None:
        """Compile the mask for `schema`, and see that the token budget is enough for every answer.

        Raises:
            PipelineError: If an answer may need more tokens than `max_new_tokens`.
            SchemaError: If the schema does not compile for this model's tokenizer.
        """
        with self._lock:
            self._masks.session(schema)
            if self.max_new_tokens is not None:
                _check_budget(self.max_new_tokens, self._masks.shortest_tokens(schema), schema.count)

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        """Answer under the mask.

        Raises:
            TimeoutError: If the answer takes longer than `timeout_s`, or `stop` is set.
            ConstraintError: If mask and model do not fit together, or the answer needs more tokens than it may take.
        """
        with self._lock:
            inputs = self.inputs(shown)
            deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
            steps = tokens = 0
            for attempt in range(1, self._answer_tries + 1):
                decoding = self._decoding_of(question, attempt, deadline, stop)
                self.decode(inputs, decoding, sampling=self._sampling if attempt == 1 else self._retrying)
                steps += decoding.model_steps
                tokens += decoding.generated
                text = self._masks.text(decoding.tokens)
                if question.schema.takes(text):
                    break
            self._drafts.keep(question.frame.source, decoding.tokens)
            confidence = self._confidence(inputs, decoding)
            return Reply(
                text=text,
                extra_passes=len(confidence) if self._exact_confidence else 0,
                confidence=confidence,
                input_tokens=int(inputs["input_ids"].shape[-1]),
                output_tokens=tokens,
                model_steps=steps,
                reasoning=self._kept(decoding),
                attempts=attempt,
            )

    def _decoding_of(self, question: Question, attempt: int, deadline: float | None, stop: threading.Event) -> Decoding:
        schema = question.schema
        budget, is_bounded = schema.token_budget(self.max_new_tokens, lambda: self._masks.shortest_tokens(schema))
        seed = self._seed + question.frame.index + (attempt - 1) * _NEXT_TRY
        separator = self._masks.write(_SEPARATOR)
        return Decoding(
            session=self._masks.session(schema),
            generator=torch.Generator().manual_seed(seed),
            max_new_tokens=budget,
            is_bounded=is_bounded,
            deadline=deadline,
            stop=stop,
            reasoning=Reasoning(most=self._reasoning_tokens, separator=separator) if self._reasoning_tokens else None,
            draft=self._drafts.of(question.frame.source),
        )

    def _kept(self, decoding: Decoding) -> str | None:
        if not self._keep_reasoning or decoding.reasoning is None:
            return None
        return self._masks.text(decoding.reasoning.tokens)

    def _confidence(self, inputs: BatchFeature, decoding: Decoding) -> dict[str, Confidence]:
        verdicts = decoding.session.verdicts
        temperature = self._confidence_temperatures
        made = {pointer: tempered(own, temperature(pointer)) for pointer, own in verdicts.made.items()}
        if not self._exact_confidence:
            return made
        for pointer, own in made.items():
            decoding.check_time()
            written, values = decoding.session.spellings(pointer)
            before = [*decoding.before, *decoding.tokens[:written]]
            exact = exact_choices(self._model, inputs, before, values)
            made[pointer] = replace(own, exact=exact)
        return made

    def _look_up(self, *_: object) -> None:
        """Runs before every layer, so that a pass over a long prompt can be given up half-way."""
        if self._decoding is not None:
            self._decoding.check_time()

    def inputs(self, shown: Shown) -> BatchFeature:
        """The model's inputs for what is shown, on its device."""
        return self.encode([shown.image, *([] if shown.crops is None else [shown.crops])], shown.prompt)

    def encode(self, pictures: Sequence[NDArray[np.uint8]], prompt: str) -> BatchFeature:
        """The model's inputs for pictures, shape (H, W, 3), RGB, and a prompt, on its device."""
        content = [{"type": "image", "image": Image.fromarray(picture)} for picture in pictures]
        inputs = self._processor.apply_chat_template(
            [{"role": "user", "content": [*content, {"type": "text", "text": prompt}]}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        return inputs.to(self._model.device, dtype=self._model.dtype)

    def decode(
        self,
        inputs: BatchFeature,
        decoding: Decoding,
        *,
        preferences: LogitsProcessorList | None = None,
        sampling: GenerationConfig | None = None,
    ) -> None:
        """Decode one answer.

        Args:
            inputs: The model's inputs.
            decoding: Where the answer goes.
            preferences: Change the model's logits before they are masked.
            sampling: How to choose tokens, or None for the model's settings.
        """
        mask = MaskProcessor(decoding.session, free=lambda: self._masks.free_text if decoding.is_reasoning else None)
        processors = LogitsProcessorList([*(preferences or []), mask])
        config = copy.copy(sampling or self._sampling)
        config.max_new_tokens = decoding.max_new_tokens
        if decoding.reasoning:
            config.max_new_tokens += decoding.reasoning.most + len(decoding.reasoning.separator)
        self._decoding = decoding
        try:
            with torch.inference_mode():
                self._model.generate(
                    **inputs,
                    generation_config=config,
                    logits_processor=processors,
                    custom_generate=jump_forward,
                    decoding=decoding,
                )
        finally:
            self._decoding = None


def _check_budget(budget: int, needed: int, count: int) -> None:
    if budget < needed:
        raise PipelineError(
            f"vlm.max_new_tokens is {budget}, but an answer about {count} detections may need {needed} tokens "
            "for its verdicts alone",
            help=f"Set vlm.max_new_tokens to {needed} or more or to null, or lower max_objects.",
        )


def _sampling(model: PreTrainedModel, temperature: float, top_k: int | None, top_p: float | None) -> GenerationConfig:
    """A generation config of our own: a model's shipped penalties and samplers would fight the mask."""
    own = model.generation_config
    config = GenerationConfig(
        do_sample=temperature > 0,
        pad_token_id=own.pad_token_id,
        bos_token_id=own.bos_token_id,
        use_cache=True,
    )
    if temperature > 0:
        config.temperature, config.top_k, config.top_p = temperature, top_k or 0, 1.0 if top_p is None else top_p
    return config


def _confidence_temperatures(model: PreTrainedModel) -> Temperatures:
    """The temperatures that were fitted to this model's confidence, 1 where none were."""
    try:
        return Temperatures(getattr(model.config, CONFIDENCE_TEMPERATURE, 1.0))
    except ValueError as error:
        raise WeightsError(
            f"{CONFIDENCE_TEMPERATURE} in the model's config.json: {error}",
            help="Fit it with hazardlens.vlm.calibration, or take it out.",
        ) from error


def _output_rows(model: PreTrainedModel) -> int:
    return int(model.get_output_embeddings().weight.shape[0])


def _end_token_ids(model: PreTrainedModel, tokenizer: Any) -> list[int]:
    ids = model.generation_config.eos_token_id
    if ids is None:
        ids = tokenizer.eos_token_id
    return list(ids) if isinstance(ids, (list, tuple)) else [int(ids)]
