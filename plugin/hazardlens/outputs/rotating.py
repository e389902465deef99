"""JSON Lines for runs of days: put aside at a size, the oldest deleted, and patient with a full disk."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hazardlens.errors import OutputError
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output

_log = logging.getLogger(__name__)
_WAITING_BYTES = 16 * 2**20
_STAMP = "%Y%m%dT%H%M%S.%fZ"


class RotatingLines:
    """Appends lines to a file, each line whole on disk before the next is begun.

    What cannot be written, as on a full disk, waits in memory, 16 MB at most, and is written once there is room; beyond
    that the oldest lines fall out and are counted. Half a line that an earlier run left behind is cut off. Files put
    aside keep their order where the date goes back.

    Args:
        path: The file; `records.jsonl` is put aside as `records.20261130T151800.123456Z.jsonl`.
        rotate_bytes: Size at which it is put aside, or None for never.
        keep: Files kept, the one being written included.

    Attributes:
        lost: Lines that fell out.
        failure: Why the last line could not be written, or None.

    Raises:
        OutputError: If it cannot be opened.
    """

    def __init__(self, path: Path, *, rotate_bytes: int | None = None, keep: int = 1) -> None:
        self.path = path
        self.lost = 0
        self.failure: str | None = None
        self._rotate_bytes = rotate_bytes
        self._keep = keep
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._closed = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._open()
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error

    @property
    def waiting(self) -> int:
        """Lines that wait to be written."""
        return len(self._waiting)

    def write(self, line: str) -> None:
        """Write a line, or keep it until it can be written."""
        data = (line + "\n").encode(errors="backslashreplace")
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        while self._waiting_bytes > _WAITING_BYTES and len(self._waiting) > 1:
            self._waiting_bytes -= len(self._waiting.popleft())
            self.lost += 1
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as that is possible."""
        try:
            while self._waiting:
                self._write(self._waiting[0])
                self._waiting_bytes -= len(self._waiting.popleft())
        except OSError as error:
            reason = error.strerror or type(error).__name__
            if self.failure is None:
                _log.warning("%s cannot be written: %s; lines wait in memory", self.path, reason)
            self.failure = reason
        else:
            if self.failure is not None:
                _log.warning("%s can be written again; %d lines were lost", self.path, self.lost)
            self.failure = None

    def close(self) -> None:
        """Write what waits and close the file; may be called twice."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        if self._waiting:
            _log.warning("%s: %d lines could not be written: %s", self.path, len(self._waiting), self.failure)
        self._file.close()

    def _open(self) -> None:
        self._file = self.path.open("ab", buffering=0)
        size = self._file.seek(0, os.SEEK_END)
        self._whole_bytes = _whole(self.path, size)
        if self._whole_bytes < size:
            _log.warning("%s: half a line at its end, left by an earlier run, is cut off", self.path)
            self._file.truncate(self._whole_bytes)

    def _write(self, data: bytes) -> None:
        if self._file.closed and not self._closed:  # putting the file aside failed half-way
            self._open()
        full = self._rotate_bytes is not None and self._whole_bytes + len(data) > self._rotate_bytes
        if full and self._whole_bytes:
            self._rotate()
        try:
            written = self._file.write(data)
        except OSError:
            self._file.truncate(self._whole_bytes)
            raise
        if written != len(data):
            self._file.truncate(self._whole_bytes)
            raise OSError(28, "no space left")
        self._whole_bytes += len(data)

    def _rotate(self) -> None:
        self._file.close()
        aside = self._aside()
        date = datetime.now(UTC)
        if aside:  # the machine's date may have gone back since
            date = max(date, max(aside) + timedelta(microseconds=1))
        moved = self.path.with_name(f"{self.path.stem}.{date:{_STAMP}}{self.path.suffix}")
        with contextlib.suppress(FileNotFoundError):  # somebody took it away
            self.path.rename(moved)
            aside[date] = moved
        self._open()
        for old in sorted(aside)[: max(0, len(aside) - self._keep + 1)]:
            aside[old].unlink(missing_ok=True)

    def _aside(self) -> dict[datetime, Path]:
        """Files put aside, by their stamps."""
        found = {}
        for path in self.path.parent.glob(f"{self.path.stem}.*Z{self.path.suffix}"):
            stamp = path.name.removeprefix(f"{self.path.stem}.").removesuffix(self.path.suffix)
            with contextlib.suppress(ValueError):  # a file of somebody else
                found[datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)] = path
        return found


def _whole(path: Path, size: int) -> int:
    """Bytes up to the end of the last whole line."""
    if size == 0:
        return 0
    block = 1 << 16
    with path.open("rb") as file:
        end = size
        while end > 0:
            start = max(0, end - block)
            file.seek(start)
            place = file.read(end - start).rfind(b"\n")
            if place >= 0:
                return start + place + 1
            end = start
    return 0


class RotatingRecords(Output):
    """Writes records into rotating lines.

    Args:
        lines: Where to.
    """

    def __init__(self, lines: RotatingLines) -> None:
        self.lines = lines

    def write(self, outcome: Outcome) -> None:
        """Write the record, or keep it until it can be written."""
        self.lines.write(outcome.record.to_json())

    def close(self, *, complete: bool) -> None:
        """Write what waits and close the file."""
        self.lines.close()
