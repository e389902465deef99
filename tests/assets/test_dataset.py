"""Scenes on disk."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from drawn_site.compose import compose
from drawn_site.dataset import labels, read_image, read_scene, write_dataset
from drawn_site.render import render
from drawn_site.rules import judge
from drawn_site.scene import KINDS
from tests.assets.scenes import scene, thing

SEEDS = range(40, 44)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    description = write_dataset(tmp_path, {"train": SEEDS, "val": []}, processes=1)
    said = yaml.safe_load(description.read_text())
    assert said["names"] == dict(enumerate(KINDS))
    for seed in SEEDS:
        drawn = render(compose(seed), seed=seed)
        picture, truth = read_scene(tmp_path, "train", seed)
        assert np.abs(picture.image.astype(int) - drawn.image).mean() < 4
        assert truth == judge(compose(seed), drawn)
        assert (tmp_path / "labels" / "train" / f"{seed:07d}.txt").read_text() == labels(truth)


def test_what_is_there_is_not_drawn_again(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"train": SEEDS[:1]}, processes=1)
    (picture,) = (tmp_path / "images" / "train").iterdir()
    before = picture.stat().st_mtime_ns
    write_dataset(tmp_path, {"train": SEEDS[:2]}, processes=1)
    assert picture.stat().st_mtime_ns == before
    assert len(list((tmp_path / "images" / "train").iterdir())) == 2


def test_only_the_named_scenes_are_in_a_data_set(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"test": SEEDS[:3]}, processes=1)
    part = yaml.safe_load(write_dataset(tmp_path, {"test": SEEDS[:1]}, name="part", processes=1).read_text())
    assert len((tmp_path / part["test"]).read_text().splitlines()) == 1
    assert len((tmp_path / "data-test.txt").read_text().splitlines()) == 3


def test_a_scene_of_which_the_writing_was_broken_off_is_drawn_again(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"train": SEEDS[:1]}, processes=1)
    (shown,) = (tmp_path / "shown" / "train").iterdir()
    whole = shown.read_bytes()
    shown.rename(shown.with_suffix(".new"))
    write_dataset(tmp_path, {"train": SEEDS[:1]}, processes=1)
    assert shown.read_bytes() == whole


def test_scenes_of_another_renderer_are_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path, {"train": SEEDS[:1]}, processes=1)
    (tmp_path / "drawn-by").write_text("another")
    with pytest.raises(ValueError, match="another version of the renderer"):
        write_dataset(tmp_path, {"train": SEEDS[:1]}, processes=1)


def test_a_scene_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="scene 40 of 'train'"):
        read_image(tmp_path, "train", 40)


def test_labels_are_shares_of_the_picture() -> None:
    shown = scene(thing("worker", (0.0, 9.0)), thing("cone", (2.0, 9.0)))
    truth = judge(shown, render(shown))
    rows = [line.split() for line in labels(truth).splitlines()]
    assert [int(row[0]) for row in rows] == [KINDS.index("worker"), KINDS.index("cone")]
    for row, one in zip(rows, truth.things, strict=True):
        x, y, w, h = (float(value) for value in row[1:])
        box = ((x - w / 2) * 640, (y - h / 2) * 360, (x + w / 2) * 640, (y + h / 2) * 360)
        assert box == pytest.approx(one.box_xyxy_px, abs=0.01)
