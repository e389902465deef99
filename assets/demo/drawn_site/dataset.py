"""Scenes on disk: pictures, what shows in them, and boxes as Ultralytics reads them."""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np
import yaml
from numpy.typing import NDArray

from .compose import compose
from .render import Picture, Shown, render
from .rules import Truth, judge
from .scene import KINDS

_FOLDERS = {"images": ".jpg", "labels": ".txt", "shown": ".json"}
_STAMP = "drawn-by"
_NO_PIXELS = {"__init__", "actors", "clip", "dataset", "notes", "seeds", "story"}
"""Modules that have no part in a composed scene's picture and truth."""


def write_dataset(folder: Path, splits: dict[str, Iterable[int]], *, name: str = "data", processes: int = 2) -> Path:
    """Draw scenes that are not there yet.

    Args:
        folder: Where to; `images/SPLIT/SEED.jpg`, `labels/SPLIT/SEED.txt` and `shown/SPLIT/SEED.json` come there.
        splits: Seeds of each split.
        name: Of the file that describes these splits, and of the lists of their pictures.
        processes: Drawn by so many at once.

    Returns:
        The file that describes the data set to Ultralytics.

    Raises:
        ValueError: Another version of the renderer drew what is in the folder.
        OSError: A picture cannot be written.
    """
    _check_stamp(folder)
    lists = {}
    with multiprocessing.Pool(processes, cv2.setNumThreads, (1,)) as pool:
        for split, seeds in splits.items():
            for kind in _FOLDERS:
                (folder / kind / split).mkdir(parents=True, exist_ok=True)
            wanted = list(seeds)
            missing = [seed for seed in wanted if not _path(folder, "shown", split, seed).exists()]
            for _ in pool.imap_unordered(functools.partial(_write_scene, folder, split), missing, chunksize=16):
                pass
            lists[split] = f"{name}-{split}.txt"
            pictures = [str(_path(folder, "images", split, seed).resolve()) for seed in wanted]
            (folder / lists[split]).write_text("\n".join(pictures))
    # Ultralytics wants all of these to be named, also where only one is used.
    any_list = next(iter(lists.values()))
    description = {"path": str(folder.resolve()), "train": any_list, "val": any_list, **lists}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**description, "names": dict(enumerate(KINDS))}))
    return path


def _check_stamp(folder: Path) -> None:
    """See that a folder holds no scenes that another version of the renderer drew."""
    sources = sorted(path for path in Path(__file__).parent.glob("*.py") if path.stem not in _NO_PIXELS)
    stamp = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    path = folder / _STAMP
    if path.exists() and path.read_text() != stamp:
        raise ValueError(f"{folder} holds scenes of another version of the renderer; delete it, or name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(stamp)


def read_image(folder: Path, split: str, seed: int) -> NDArray[np.uint8]:
    """A picture that `write_dataset` drew, shape (H, W, 3), BGR."""
    image = cv2.imread(str(_path(folder, "images", split, seed)))
    if image is None:
        raise FileNotFoundError(f"scene {seed} of '{split}' is not in {folder}; draw it with write_dataset")
    return np.asarray(image, np.uint8)


def read_scene(folder: Path, split: str, seed: int) -> tuple[Picture, Truth]:
    """A drawn scene and its truth."""
    image = read_image(folder, split, seed)
    things, effects = json.loads(_path(folder, "shown", split, seed).read_text())
    picture = Picture(
        image=image,
        things=tuple(Shown(box_xyxy_px=b and tuple(b), share=s, upper=u) for b, s, u in things),
        effects=tuple(Shown(box_xyxy_px=b and tuple(b), share=s, upper=u) for b, s, u in effects),
    )
    return picture, judge(compose(seed), picture)


def labels(truth: Truth) -> str:
    """Boxes in Ultralytics' form: class, then centre, width and height as shares of the picture."""
    width, height = truth.size_wh
    lines = []
    for thing in truth.things:
        x0, y0, x1, y1 = thing.box_xyxy_px
        values = (x0 + x1) / 2 / width, (y0 + y1) / 2 / height, (x1 - x0) / width, (y1 - y0) / height
        lines.append(" ".join([str(KINDS.index(thing.kind)), *(f"{value:.6f}" for value in values)]) + "\n")
    return "".join(lines)


def _path(folder: Path, kind: str, split: str, seed: int) -> Path:
    return folder / kind / split / f"{seed:07d}{_FOLDERS[kind]}"


def _write_scene(folder: Path, split: str, seed: int) -> None:
    """Draw a scene; what shows of it comes last and at once, and says that the rest is there."""
    scene = compose(seed)
    picture = render(scene, seed=seed)
    image = _path(folder, "images", split, seed)
    if not cv2.imwrite(str(image), picture.image, [cv2.IMWRITE_JPEG_QUALITY, 92]):
        raise OSError(f"{image} cannot be written")
    _path(folder, "labels", split, seed).write_text(labels(judge(scene, picture)))
    shown = [[[s.box_xyxy_px, s.share, s.upper] for s in many] for many in (picture.things, picture.effects)]
    path = _path(folder, "shown", split, seed)
    path.with_suffix(".new").write_text(json.dumps(shown))
    path.with_suffix(".new").replace(path)
