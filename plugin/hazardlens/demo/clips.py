"""The demo's clips: the one that is shipped, and others that are drawn on the spot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hazardlens.errors import OutputError
from hazardlens.resources import asset_package, data_path

_SIZE_WH = (640, 360)


@dataclass(frozen=True, kw_only=True, slots=True)
class Clip:
    """A drawn clip.

    Attributes:
        video: The video file.
        truth_file: What is true of it, as JSON.
    """

    video: Path
    truth_file: Path

    def truth(self) -> dict[str, Any]:
        """What is true of each of its frames, and when which hazard is the worst."""
        told: dict[str, Any] = json.loads(self.truth_file.read_text(encoding="utf-8"))
        return told


def shipped_clip() -> Clip:
    """The clip that is shipped.

    Raises:
        InputError: It is not there: the installation is incomplete.
    """
    return Clip(video=data_path("assets", "demo/site.mp4"), truth_file=data_path("assets", "demo/site.truth.json"))


def clip_of(folder: Path, seed: int) -> Clip:
    """Where the clip of a seed is drawn to."""
    video = folder / f"drawn-site-{seed}.mp4"
    return Clip(video=video, truth_file=video.with_suffix(".truth.json"))


def drawn_clip(folder: Path, seed: int) -> Clip:
    """Draw a clip that no model was trained on.

    Args:
        folder: Where it goes; it is made if it is not there.
        seed: Which one, from 0.

    Raises:
        InputError: If the package that draws is missing: the installation is incomplete.
        OutputError: If it cannot be written.
    """
    asset_package("drawn_site")
    from drawn_site.clip import write_clip
    from drawn_site.seeds import CLIP

    clip = clip_of(folder, seed)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_clip(clip.video, CLIP + 1 + seed, _SIZE_WH, oversample=1)
    except OSError as error:
        raise OutputError(f"{clip.video} cannot be written: {error.strerror}", help="Give another --out.") from error
    return clip
