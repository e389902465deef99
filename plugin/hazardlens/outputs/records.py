"""`records.jsonl`: one line per frame, each line whole on disk before the next is begun."""

from __future__ import annotations

import os
from pathlib import Path

from hazardlens.errors import OutputError
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output


class RecordsFile(Output):
    """Appends records to a new JSON Lines file.

    Args:
        path: The file; it is replaced if it exists.

    Raises:
        OutputError: If it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error
        self._whole_bytes = 0

    def write(self, outcome: Outcome) -> None:
        """Write the record's line whole, or leave the file as it was.

        Raises:
            OutputError: If the line cannot be written, for instance on a full disk.
        """
        line = (outcome.record.to_json() + "\n").encode(errors="backslashreplace")  # \udce9 is valid inside JSON
        try:
            written = self._file.write(line)
        except OSError as error:
            self._cut_back()
            raise self._failed(error.strerror) from error
        if written != len(line):
            self._cut_back()
            raise self._failed("no space left")
        self._whole_bytes += len(line)

    def close(self, *, complete: bool) -> None:
        """Close the file."""
        self._file.close()

    def _cut_back(self) -> None:
        os.ftruncate(self._file.fileno(), self._whole_bytes)

    def _failed(self, why: str | None) -> OutputError:
        return OutputError(
            f"{self.path} cannot be written: {why}",
            help="Make room and run again with --resume; the lines that are there are whole.",
        )
