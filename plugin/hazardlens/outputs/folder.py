"""Where the results of a video go, and when it is safe to write there."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hazardlens.errors import InputError, OutputError, OutputExistsError

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
    def used(self) -> bool:
        """Whether results of a run lie there, finished or not."""
        return any((self.path / name).exists() for name in RESULTS)

    def is_finished(self, setup: Mapping[str, Any]) -> bool:
        """Whether the folder holds the whole results of this video, as it is now, with this setup.

        Raises:
            OutputExistsError: If it holds results of another video, or finished ones with another setup.
        """
        told = self._summary()
        if told is None:
            return False
        video, now = told.get("video") or {}, identity(self.video)
        if video.get("path") != now["path"]:
            raise _in_the_way(self.path, f"of another video, {video.get('path')}")
        if not told.get("complete") or video != now:
            return False
        if any(told.get(key) != value for key, value in json.loads(json.dumps(setup)).items()):
            raise _in_the_way(self.path, "that were made with other settings")
        return True

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

    def _summary(self) -> dict[str, Any] | None:
        try:
            told = json.loads((self.path / SUMMARY).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return told if isinstance(told, dict) else None


def identity(video: Path) -> dict[str, Any]:
    """What tells a video from another one, and from a newer one of the same name: path, size and time of change."""
    stat = video.stat()
    path = str(video.resolve()).encode("utf-8", "backslashreplace").decode()
    return {"path": path, "size_bytes": stat.st_size, "modified_ns": stat.st_mtime_ns}


def folders(out: Path, videos: Sequence[Path]) -> list[VideoFolder]:
    """One folder per video below `out`: its name without the ending, and a mark of its path where names meet.

    A video that is named twice gets one folder.

    Raises:
        InputError: If a video is itself one of the results that would be replaced.
    """
    distinct = list({video.resolve(): video for video in videos}.values())
    names = Counter(video.stem for video in distinct)
    planned = [VideoFolder(video=video, path=out / _name(video, names)) for video in distinct]
    for folder in planned:
        if folder.video.resolve() in _results(planned):
            raise InputError(
                f"{folder.video} is itself a result and would be replaced", help="Give another --out, or move it away."
            )
    return planned


def to_do(planned: Sequence[VideoFolder], if_exists: IfExists, setup: Mapping[str, Any]) -> list[VideoFolder]:
    """The videos that are still to be processed.

    Raises:
        OutputExistsError: If results are there and neither overwriting nor resuming was asked for, or if resuming would
            lose results of another video or of another setup.
    """
    if if_exists == "resume":
        return [folder for folder in planned if not folder.is_finished(setup)]
    used = [folder for folder in planned if folder.used]
    if used and if_exists == "refuse":
        raise _in_the_way(used[0].path, "")
    return list(planned)


def _in_the_way(path: Path, whose: str) -> OutputExistsError:
    return OutputExistsError(
        f"{path} already holds results {whose}".rstrip(),
        help="Use --overwrite to replace them, --resume to finish what is unfinished, or another --out.",
    )


def _results(planned: Sequence[VideoFolder]) -> Iterator[Path]:
    for folder in planned:
        yield from (folder.path.resolve() / name for name in RESULTS)


def _name(video: Path, names: Counter[str]) -> str:
    if names[video.stem] == 1 and video.stem.strip("."):
        return video.stem
    mark = hashlib.sha256(str(video.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{video.stem}-{mark}"
