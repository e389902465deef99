"""The files of evidence: as many as are to be kept, and none that is half made."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from hazardlens.errors import VideoError
from hazardlens.frames.file import VideoFile

_log = logging.getLogger(__name__)

PICTURE, VIDEO = ".jpg", ".mp4"
_PART = f"{VIDEO}.part"


class Kept:
    """Knows whose evidence is kept; used by two threads.

    A video has the ending `.mp4.part` while it is made. One that an earlier run left behind so gets its own name where
    it plays, as it does up to its last whole piece, and is deleted where it does not.

    Args:
        folder: Where the files are; it need not be there yet.
        keep: Alerts whose files are kept, or None for all; the oldest are deleted beyond that.
    """

    def __init__(self, folder: Path, keep: int | None) -> None:
        self._folder = folder
        self._keep = keep
        self._lock = threading.Lock()
        for part in folder.glob(f"*{_PART}"):
            self._settle(part)
        self._names = self._found() if keep is not None else []

    def add(self, name: str) -> None:
        """An alert begins; the oldest give way, by the order of coming, for the date may go back."""
        if self._keep is None:
            return
        with self._lock:
            self._names.append(name)
            old, self._names = self._names[: -self._keep], self._names[-self._keep :]
        for one in old:
            for ending in (PICTURE, VIDEO):
                (self._folder / f"{one}{ending}").unlink(missing_ok=True)

    def part(self, name: str) -> Path:
        """Where an alert's video is made."""
        return self._folder / f"{name}{_PART}"

    def finish(self, name: str, *, whole: bool) -> None:
        """An alert's video is made, or has failed; it gets its name where it plays and its alert has not given way."""
        part = self.part(name)
        if whole:
            part.replace(part.with_suffix(""))
        else:
            self._settle(part)
        with self._lock:
            wanted = self._keep is None or name in self._names
        if not wanted:
            part.with_suffix("").unlink(missing_ok=True)

    def _settle(self, part: Path) -> None:
        try:
            if _plays(part):
                part.replace(part.with_suffix(""))
            else:
                part.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("%s is left as it is: %s", part, error.strerror)

    def _found(self) -> list[str]:
        """Alerts of earlier runs, oldest first."""
        times: dict[str, int] = {}
        for ending in (PICTURE, VIDEO):
            for path in self._folder.glob(f"*{ending}"):
                times[path.stem] = max(times.get(path.stem, 0), path.stat().st_mtime_ns)
        return sorted(times, key=times.__getitem__)


def _plays(path: Path) -> bool:
    """Whether one picture of a video can be decoded."""
    try:
        VideoFile(path).close()
    except VideoError:
        return False
    return True
