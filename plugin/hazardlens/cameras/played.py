"""A video file in the place of a camera, played at its own pace."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import numpy as np
from numpy.typing import NDArray

from hazardlens.cameras.base import Camera, CameraLost, Feed, Picture
from hazardlens.errors import VideoError
from hazardlens.frames.base import FrameAccount
from hazardlens.frames.file import VideoFile


class PlayedFile(Camera):
    """A file, whose pictures and times are those that `VideoFile` gives.

    Args:
        path: The file.
        name: Name in records; the file's name unless given.

    Raises:
        VideoError: If it is no readable video.
    """

    is_paced = True

    def __init__(self, path: str | Path, *, name: str | None = None) -> None:
        self._path = path
        with VideoFile(path, name=name) as reader:
            self.name = reader.name

    def open(self) -> Feed:
        """Open the file.

        Raises:
            CameraLost: If it is no longer readable.
        """
        try:
            return _FileFeed(VideoFile(self._path, ahead=2))
        except VideoError as error:
            raise CameraLost(str(error)) from None


class _FileFeed(Feed):
    def __init__(self, reader: VideoFile) -> None:
        self._reader = reader
        self.note = f"{reader.size_wh[0]}x{reader.size_wh[1]}"

    def pictures(self, stop: Event) -> Iterator[Picture]:
        for frame in self._reader:
            if stop.is_set():
                return
            self._count()
            yield Picture(stamp_s=frame.time_s, decode=functools.partial(_same, frame.image), damaged=frame.damaged)
        account = self._count()
        self.ended_early = account.reason if account.ended_early else None

    def close(self) -> None:
        self._reader.close()

    def _count(self) -> FrameAccount:
        account = self._reader.account()
        self.damaged = account.unreadable + account.damaged
        return account


def _same(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return image
