"""The file under a muxer, which stays as it was at its first failed write."""

from __future__ import annotations

from pathlib import Path


class Sink:
    """A seekable file for writing.

    Once a write has failed, every further one is refused: on closing, a muxer would otherwise go back and rewrite the
    header of a file whose end is missing, which makes the readable part unreadable.

    Args:
        path: The file, created or emptied.

    Attributes:
        failure: The error of the first failed write, or None.

    Raises:
        OSError: It cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self.name = str(path)
        self.failure: OSError | None = None

    @property
    def closed(self) -> bool:
        """Whether `close` was called; the muxer then leaves the file alone."""
        return self._file.closed

    def write(self, data: bytes) -> int:
        """Write all of the data, or fail for good."""
        if self.failure is not None:
            raise self.failure
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.failure = error
            raise
        return len(data)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Tell the position."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()
