"""Trains the demo's vision-language model from nothing but drawn scenes.

    python assets/demo/train_vlm.py --out runs/vlm

Run it again to go on where it was stopped.
"""

from __future__ import annotations

import argparse
import functools
import random
from collections.abc import Sequence
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Idefics3ForConditionalGeneration, Idefics3Processor

from drawn_site.dataset import read_image, read_scene, write_dataset
from drawn_site.rules import Truth
from drawn_site.seeds import TRAINING
from hazardlens.vlm.prompt import prompt_text
from site_vlm.answers import Answers
from site_vlm.architecture import build_model, build_processor, train_tokenizer
from site_vlm.batches import VERDICTS, squeeze
from site_vlm.beginning import begin
from site_vlm.examples import VIEW, make_example, spelled
from site_vlm.looking import LookingHeads
from site_vlm.tower import Heads, Tower, ask_about, see

Image = NDArray[np.uint8]

SEEDS = TRAINING[:18_000]
TOKENIZER_SCENES, BEGINNING_SCENES = 1_500, 512
"""What the tokenizer, and what the connector, is made of."""
TOWER_STEPS, ANSWER_STEPS, JOINT_STEPS = 6_000, 1_500, 2_600
"""Of the vision tower; then of all else; then of both together."""
LOOKS = 300
"""So many of the answers' steps at first are for their heads alone: what learns to look and to write at once learns to
write without."""
JOINT_RATE = 0.6
"""Share of the usual learning rates at which both go on together."""


class Scenes:
    """Drawn scenes on disk; their truths, and their pictures as the model sees them, in memory.

    Args:
        folder: Where `write_dataset` drew them.
        seeds: Their seeds.
        processor: The model's.
    """

    def __init__(self, folder: Path, seeds: range, processor: Idefics3Processor) -> None:
        self._folder, self._seeds = folder, seeds
        with Pool(2, torch.set_num_threads, (1,)) as pool:
            self._known = pool.map(functools.partial(_know, folder, processor), seeds, chunksize=100)
        self.things = [len(truth.things) for _, truth in self._known]

    def __getitem__(self, index: int) -> tuple[Image, Image, Truth]:
        """A scene's picture, the same as the model sees it, and its truth."""
        return read_image(self._folder, "train", self._seeds[index]), *self._known[index]


def main() -> None:
    """Draw, train, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="working folder")
    parser.add_argument(
        "--scenes", type=Path, help="scenes already drawn, such as the detector's; OUT/scenes otherwise"
    )
    options = parser.parse_args()
    torch.manual_seed(0)
    folder = options.scenes or options.out / "scenes"
    write_dataset(folder, {"train": SEEDS}, name="vlm")
    options.out.mkdir(parents=True, exist_ok=True)
    words = train_tokenizer(_texts(folder, SEEDS[:TOKENIZER_SCENES]), VERDICTS)
    processor, model = build_processor(words), build_model(words)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, {len(words)} tokens", flush=True)
    scenes = Scenes(folder, SEEDS, processor)
    tower, looking = Heads(model.config.vision_config.hidden_size), LookingHeads(model.config.text_config.hidden_size)
    Tower(model, tower, scenes, steps=TOWER_STEPS, checkpoint=options.out / "tower.pt").run()
    begin(model, processor.tokenizer, tower, _sights(model, scenes))
    learn = functools.partial(Answers, model, processor, looking, scenes)
    learn(steps=ANSWER_STEPS, looks=LOOKS, tower=None, checkpoint=options.out / "answers.pt").run()
    learn(steps=JOINT_STEPS, rate=JOINT_RATE, tower=tower, checkpoint=options.out / "joint.pt").run()


def _sights(model: Idefics3ForConditionalGeneration, scenes: Scenes) -> Sequence[torch.Tensor]:
    """What the tower sees of some questions' pictures."""
    _, pictures = ask_about(scenes, [(k, random.Random(k)) for k in range(BEGINNING_SCENES)])
    with torch.no_grad():
        seen: Sequence[torch.Tensor] = see(model.model.vision_model, pictures).split(pictures.counts)
    return seen


def _texts(folder: Path, seeds: range) -> list[str]:
    """What the tokenizer is made of: prompts and answers."""
    texts = []
    for seed in seeds:
        picture, truth = read_scene(folder, "train", seed)
        example = make_example(picture.image, truth, random.Random(seed))
        texts += [prompt_text(example.question, VIEW), spelled(example.answer)]
    return texts


def _know(folder: Path, processor: Idefics3Processor, seed: int) -> tuple[Image, Truth]:
    picture, truth = read_scene(folder, "train", seed)
    return squeeze(picture.image, processor), truth


if __name__ == "__main__":
    main()
