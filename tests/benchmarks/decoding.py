"""Jump-forward decoding against one model step per token: same model, same mask, same text.

    python -m tests.benchmarks.decoding [--pairs 15]

Prints two ratios: model steps per output token, and wall time against `transformers.generate` with a masking processor.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from hazardlens.schema import ITEM_SEPARATOR, KEY_SEPARATOR, FieldSchema
from hazardlens.vlm.base import Shown
from hazardlens.vlm.decode import Decoding
from hazardlens.vlm.local import LocalVlm
from hazardlens.vlm.mask import MaskSession
from tests.benchmarks.pairs import ratios, spread
from tests.random_vlm import build

VERDICTS = [
    ("none", "none"),
    ("missing_ppe", "medium"),
    ("none", "none"),
    ("vehicle_proximity", "high"),
    ("person_down", "critical"),
]
NOTE_TOKENS = 12


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


@dataclass
class Bench:
    """One model, one question, one answer to be replayed."""

    vlm: LocalVlm
    count: int = len(VERDICTS)

    def __post_init__(self) -> None:
        self.schema = FieldSchema.load("hazard").ground(self.count)
        picture = np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)
        self.inputs = self.vlm.inputs(Shown(image=picture, prompt="What is the hazard? " * 20))
        self.prompt_length = int(self.inputs["input_ids"].shape[-1])
        self.tokens = self.vlm._masks._tokenizer.tokenize_str(self.text())

    def text(self) -> str:
        """The answer: a note of `NOTE_TOKENS` tokens and mixed verdicts."""
        sentence = "A worker by the truck wears no helmet while the other one waits."
        words = self.vlm._masks._tokenizer.tokenize_str(sentence)
        note = self.vlm._masks.text(words[:NOTE_TOKENS])
        detections = [{"id": i, "hazard": hazard, "severity": rank} for i, (hazard, rank) in enumerate(VERDICTS)]
        answer = {"notes": note, "hazard": "person_down", "severity": "critical", "detections": detections}
        return json.dumps(answer, separators=(ITEM_SEPARATOR, KEY_SEPARATOR))

    def jump_forward(self) -> Decoding:
        """The product's own loop."""
        decoding = Decoding(
            session=self.vlm._masks.session(self.schema),
            generator=torch.Generator(),
            max_new_tokens=self.schema.longest_bytes,
            is_bounded=False,
        )
        preferences = LogitsProcessorList([Replay(self.tokens, self.prompt_length)])
        self.vlm.decode(self.inputs, decoding, preferences=preferences)
        return decoding

    def token_by_token(self) -> list[int]:
        """`transformers.generate` with a masking processor."""
        session = self.vlm._masks.session(self.schema)
        processors = [Replay(self.tokens, self.prompt_length), MaskEachToken(session, self.prompt_length)]
        with torch.inference_mode():
            ids = self.vlm._model.generate(
                **self.inputs,
                max_new_tokens=len(self.tokens),
                do_sample=False,
                logits_processor=LogitsProcessorList(processors),
            )
        return ids[0, self.prompt_length :].tolist()

    def steps_per_token(self) -> float:
        """Model steps over output tokens; both ways must give the same text, the replayed one."""
        decoding, plain = self.jump_forward(), self.token_by_token()
        texts = {self.vlm._masks.text(decoding.tokens), self.vlm._masks.text(plain), self.text()}
        if len(texts) != 1 or not decoding.complete:
            raise RuntimeError(f"the texts differ: {texts}")
        return decoding.model_steps / len(decoding.tokens)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(LocalVlm(build(Path(folder))))
        steps = bench.steps_per_token()
        print(f"output tokens: {len(bench.tokens)}")
        print(f"model steps per output token: {steps:.3f}")
        walls = ratios(bench.jump_forward, bench.token_by_token, pairs=pairs)
        print(f"wall time over transformers.generate with a masking processor: {spread(walls)}")


if __name__ == "__main__":
    main()
