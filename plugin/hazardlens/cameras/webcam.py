"""Cameras at this machine, read by OpenCV."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from hazardlens.cameras.base import Camera, CameraLost, Feed, Picture

_FAILS_AT_MOST = 5
"""Reads in a row that may fail; some devices miss one while they change their exposure."""


class Webcam(Camera):
    """A camera at this machine.

    Args:
        device: Its number, or its path such as `/dev/video1`.
        name: Name in records.
        size_wh: Width and height in pixels to ask it for, or None for its own choice.
        open_capture: Gives an object that behaves as `cv2.VideoCapture`, in its place.
    """

    def __init__(
        self,
        device: int | str,
        *,
        name: str,
        size_wh: tuple[int, int] | None = None,
        open_capture: Callable[[int | str], Any] | None = None,
    ) -> None:
        self.name = name
        self._device = device
        self._size_wh = size_wh
        self._open_capture: Callable[..., Any] = open_capture or cv2.VideoCapture

    def open(self) -> Feed:
        """Open the device; one that refuses a size goes on with its own, and the feed's note says so.

        Raises:
            CameraLost: If it cannot be opened.
        """
        try:
            capture = self._open_capture(self._device)
        except cv2.error as error:
            raise CameraLost(f"cannot be opened: {error.err}") from None
        if not capture.isOpened():
            capture.release()
            raise CameraLost("cannot be opened: no such device, or another program uses it")
        if self._size_wh is not None:
            capture.set(cv2.CAP_PROP_FRAME_WIDTH, self._size_wh[0])
            capture.set(cv2.CAP_PROP_FRAME_HEIGHT, self._size_wh[1])
        given = (round(capture.get(cv2.CAP_PROP_FRAME_WIDTH)), round(capture.get(cv2.CAP_PROP_FRAME_HEIGHT)))
        note = f"{given[0]}x{given[1]}"
        if self._size_wh is not None and given != self._size_wh:
            note += f", for it refuses {self._size_wh[0]}x{self._size_wh[1]}"
        return _WebcamFeed(capture, note)


class _WebcamFeed(Feed):
    def __init__(self, capture: Any, note: str) -> None:
        self._capture = capture
        self.note = note

    def pictures(self, stop: Event) -> Iterator[Picture]:
        failed = 0
        while not stop.is_set():
            try:
                came, image = self._capture.read()
            except cv2.error as error:
                raise CameraLost(f"cannot be read: {error.err}") from None
            if came:
                failed = 0
                yield Picture(stamp_s=None, decode=functools.partial(_three_channels, image))
                continue
            failed += 1
            if failed > _FAILS_AT_MOST or not self._capture.isOpened():
                raise CameraLost("the device gives no pictures; it may be unplugged")

    def close(self) -> None:
        self._capture.release()


def _three_channels(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if image.ndim == 2:
        return np.ascontiguousarray(np.repeat(image[:, :, None], 3, axis=2))
    return image
