"""Trains the demo's vision-language model from nothing but drawn scenes.

    python assets/demo/train_vlm.py --out runs/vlm

Run it again to go on where it was stopped.
"""

from __future__ import annotations

import argparse
import functools
import random
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Idefics3Processor

from drawn_site.dataset import read_image, read_scene, write_dataset
from drawn_site.rules import Truth
from drawn_site.seeds import TRAINING
from hazardlens.vlm.prompt import prompt_text
from site_vlm.answers import Answers
from site_vlm.architecture import build_model, build_processor, train_tokenizer
from site_vlm.batches import VERDICTS, squeeze
from site_vlm.beginning import begin
from site_vlm.examples import VIEW, make_example, spelled
from site_vlm.lessons import make_lessons
from site_vlm.tower import Heads, Tower

Image = NDArray[np.uint8]

EARLY, LATE = TRAINING[:10_000], TRAINING[10_000:18_000]
"""Scenes that the vision tower learns from first, and then; answers are learned from those that it knows less well."""
TOKENIZER_SCENES = 1_500
EARLY_STEPS, LATE_STEPS, STEPS = 9_000, 2_800, 2_400
"""Of the vision tower on either, and then of all else."""
LATE_RATE = 0.6
"""Share of the usual learning rates with which the tower goes on."""
VERSIONS = 2
"""How often each scene is shown to the finished tower."""


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

    def __len__(self) -> int:
        return len(self._seeds)

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
    write_dataset(folder, {"train": [*EARLY, *LATE]}, name="vlm")
    options.out.mkdir(parents=True, exist_ok=True)
    words = train_tokenizer(_texts(folder, EARLY[:TOKENIZER_SCENES]), VERDICTS)
    processor, model = build_processor(words), build_model(words)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, {len(words)} tokens", flush=True)
    heads = Heads(model.config.vision_config.hidden_size)
    for name, seeds, steps, rate in (("early", EARLY, EARLY_STEPS, 1.0), ("late", LATE, LATE_STEPS, LATE_RATE)):
        scenes = Scenes(folder, seeds, processor)
        Tower(model, heads, scenes, steps=steps, rate=rate, checkpoint=options.out / f"{name}.pt").run()
    lessons = list(make_lessons(model, processor, scenes, versions=VERSIONS))
    del scenes
    print(f"{len(lessons)} lessons", flush=True)
    begin(model, processor.tokenizer, heads, lessons)
    Answers(model, processor, lessons, steps=STEPS, folder=options.out).run()


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
