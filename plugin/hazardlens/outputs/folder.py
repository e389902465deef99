"""Where the results of a video go, and when it is safe to write there."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hazardlens.errors import InputError, OutputError, OutputExistsError, VideoError

IfExists = Literal["refuse", "overwrite", "resume"]
"""What to do with results that are already there."""

RECORDS = "records.jsonl"
SUMMARY = "summary.json"
VIDEO = "annotated.mp4"
PICTURE = "annotated.jpg"
_CANNOT_RESUME = "Use --overwrite to replace them, or another --out."
ALERTS = "alerts.jsonl"
EVIDENCE = "evidence"
RESULTS = (RECORDS, SUMMARY, VIDEO, PICTURE, ALERTS)


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
        told = read_summary(self.path)
        if told is None:
            return False
        video, now = told.get("video") or {}, identity(self.video)
        if video.get("path") != now["path"]:
            raise OutputExistsError(
                f"{self.path} holds results of another video, {video.get('path')}", help=_CANNOT_RESUME
            )
        if not told.get("complete") or video != now or not (self.path / RECORDS).exists():
            return False
        other = [key for key, value in json.loads(json.dumps(setup)).items() if told.get(key) != value]
        if other:
            raise OutputExistsError(
                f"{self.path} holds finished results of other settings ({', '.join(other)})", help=_CANNOT_RESUME
            )
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
            for old in (self.path / EVIDENCE).glob("*s-*.*"):
                if old.suffix in (".jpg", ".mp4"):
                    old.unlink()
        except OSError as error:
            message = f"{self.path} cannot be used: {error.strerror}"
            raise OutputError(message, help="Give another --out that can be written to.") from error


def identity(video: Path) -> dict[str, Any]:
    """What tells a video from another one, and from a newer one of the same name: path, size and time of change.

    Raises:
        VideoError: If it is not there.
    """
    try:
        stat = video.stat()
    except OSError as error:
        raise VideoError(f"{video} cannot be read: {error.strerror}", help="Check the path and its rights.") from error
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
    planned = [VideoFolder(video=video, path=_path(out, video, names)) for video in distinct]
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
        raise OutputExistsError(
            f"{used[0].path} already holds results",
            help="Use --overwrite to replace them, --resume to finish what is unfinished, or another --out.",
        )
    return list(planned)


def _results(planned: Sequence[VideoFolder]) -> Iterator[Path]:
    for folder in planned:
        yield from (folder.path.resolve() / name for name in RESULTS)


def marked_name(video: Path) -> str:
    """A folder's name that no other video shares: the video's, and a mark of its path."""
    mark = hashlib.sha256(str(video.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{os.fsdecode(os.fsencode(video.stem)[:200])}-{mark}"


def _path(out: Path, video: Path, names: Counter[str]) -> Path:
    """The plain name where it is free or this video's already, whatever other videos are named beside it."""
    plain, marked = out / video.stem, out / marked_name(video)
    if not video.stem.strip("."):
        return marked
    told = read_summary(plain)
    if told is not None and (told.get("video") or {}).get("path") == identity(video)["path"]:
        return plain
    return marked if names[video.stem] > 1 or marked.exists() else plain


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary that lies in a folder of results, or None where there is none that can be read."""
    try:
        told = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None
