"""Where the results of a video go, and when it is safe to write there."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hazardlens.errors import OutputError, OutputExistsError

IfExists = Literal["refuse", "overwrite", "resume"]
"""What to do with results that are already there."""

RECORDS = "records.jsonl"
SUMMARY = "summary.json"
VIDEO = "annotated.mp4"
PICTURE = "annotated.jpg"
RESULTS = (RECORDS, SUMMARY, VIDEO, PICTURE)


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoFolder:
    """The results of one video.

    Attributes:
        video: The video.
        path: The folder.
    """

    video: Path
    path: Path

    @property
    def finished(self) -> bool:
        """Whether the folder holds the whole results of this video."""
        try:
            summary = json.loads((self.path / SUMMARY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return bool(summary.get("complete")) and summary.get("source") == self.video.name

    @property
    def used(self) -> bool:
        """Whether results of a run lie there, finished or not."""
        return any((self.path / name).exists() for name in RESULTS)

    def clear(self) -> None:
        """Make the folder, without results of an earlier run.

        Raises:
            OutputError: If that fails.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name in RESULTS:
                (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"{self.path} cannot be used: {error.strerror}") from error


def folders(out: Path, videos: Sequence[Path]) -> list[VideoFolder]:
    """One folder per video below `out`: its name without the ending, and a mark of its path where names meet."""
    names = Counter(video.stem for video in videos)
    return [
        VideoFolder(video=video, path=out / (video.stem if names[video.stem] == 1 else f"{video.stem}-{_mark(video)}"))
        for video in videos
    ]


def to_do(planned: Sequence[VideoFolder], if_exists: IfExists) -> list[VideoFolder]:
    """The videos that are still to be processed.

    Raises:
        OutputExistsError: If results are there and neither overwriting nor resuming was asked for.
    """
    if if_exists == "resume":
        return [folder for folder in planned if not folder.finished]
    used = [folder for folder in planned if folder.used]
    if used and if_exists == "refuse":
        raise OutputExistsError(
            f"{used[0].path} already holds results",
            help="Use --overwrite to replace them, --resume to finish what is unfinished, or another --out.",
        )
    return list(planned)


def _mark(video: Path) -> str:
    return hashlib.sha256(str(video.resolve()).encode()).hexdigest()[:8]
