"""One picture of all sources: each with its boxes and fields, its camera's state, and a bar of the last minutes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from hazardlens.cameras.clock import Clock
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output
from hazardlens.outputs.draw import Painter, write_line
from hazardlens.pipeline import Pipeline
from hazardlens.record import CameraEvent, FrameRecord
from hazardlens.schema import FieldSchema

_Colour = tuple[int, int, int]

TILE_WH = (640, 400)
_BAR_PX = 16
_LINE_PX = 24
_MINUTES = 5
_KEPT_ALERTS = 50
_FROZEN_S = 3.0
"""A picture that is older than this is not to be taken for live."""
_NOTHING: _Colour = (30, 30, 30)


@dataclass(kw_only=True, eq=False, slots=True)
class _Tile:
    """What is known of one source; `came_s` is the clock's time of its newest picture."""

    image: NDArray[np.uint8] | None = None
    record: FrameRecord | None = None
    came_s: float = 0.0
    event: CameraEvent | None = None
    bar: deque[tuple[int, _Colour, bool]] = field(default_factory=lambda: deque(maxlen=60 * _MINUTES))


class Board(Output):
    """Keeps the newest of each source and paints it when somebody looks; safe to look at from another thread.

    A picture that is older than three seconds is dark and says its age, whatever has stopped: camera, detector or
    program.

    Args:
        schema: The schema of the records' fields.
        pipeline: Its zones are drawn.
        demo: Whether demo models take part; the picture says so.
        clock: The clock by which pictures grow old, or None for the machine's.
    """

    needs_pixels = True

    def __init__(
        self, schema: FieldSchema, pipeline: Pipeline, *, demo: bool = False, clock: Clock | None = None
    ) -> None:
        self._schema = schema
        self._clock = clock or Clock()
        self._zones: Mapping[str, Sequence[tuple[float, float]]] = {
            name: zone.polygon for name, zone in pipeline.zones.items()
        }
        self._demo = demo
        self._tiles: dict[str, _Tile] = {}
        self._alerts: deque[dict[str, Any]] = deque(maxlen=_KEPT_ALERTS)
        self._lock = threading.Lock()
        self._painter = Painter(schema, TILE_WH, {})

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The last alerts, newest first."""
        with self._lock:
            return list(reversed(self._alerts))

    def write(self, outcome: Outcome) -> None:
        """Take in the next record."""
        record = outcome.record
        with self._lock:
            tile = self._tiles.setdefault(record.source, _Tile())
            self._alerts.extend(record.alerts)
            if record.event is not None:
                tile.event = record.event
            elif not outcome.is_late:
                tile.image, tile.record, tile.came_s = outcome.frame.image, record, self._clock.now()
                self._lengthen(tile, record)

    def close(self, *, complete: bool) -> None:
        """Nothing is held open."""

    def paint(self) -> NDArray[np.uint8]:
        """The picture, shape (H, W, 3), uint8, BGR."""
        with self._lock:
            seen = {name: replace(tile, bar=tile.bar.copy()) for name, tile in self._tiles.items()}
        tiles = [self._paint(name, seen[name]) for name in sorted(seen)]
        if not tiles:
            tiles = [self._paint("no source yet", _Tile())]
        columns = 1 if len(tiles) == 1 else 2 if len(tiles) <= 4 else 3
        tiles += [np.full_like(tiles[0], _NOTHING) for _ in range(-len(tiles) % columns)]
        return np.vstack([np.hstack(tiles[row : row + columns]) for row in range(0, len(tiles), columns)])

    def _lengthen(self, tile: _Tile, record: FrameRecord) -> None:
        """One column a second; what is known stands over what is not, for a second has many frames."""
        second, known = int(record.time_s), record.fields is not None
        colour = self._painter.colour(record)
        if tile.bar and tile.bar[-1][0] == second:
            if known or not tile.bar[-1][2]:
                tile.bar[-1] = (second, colour, known)
        else:
            tile.bar.append((second, colour, known))

    def _paint(self, name: str, seen: _Tile) -> NDArray[np.uint8]:
        width, height = TILE_WH
        tile = np.full((height, width, 3), _NOTHING, np.uint8)
        room_wh = (width, height - _BAR_PX - _LINE_PX)
        image, record = seen.image, seen.record
        age_s = self._clock.now() - seen.came_s if image is not None else 0.0
        online = seen.event is None or seen.event.state == "online"
        if image is not None and record is not None:
            painter = Painter(self._schema, record.size_wh, self._zones, demo=self._demo)
            shown = _fitted(painter.draw(np.array(image), record), room_wh)
            left = (width - shown.shape[1]) // 2
            area = tile[_LINE_PX : _LINE_PX + shown.shape[0], left : left + shown.shape[1]]
            area[:] = shown if online and age_s <= _FROZEN_S else shown // 3
        write_line(tile, _line(name, record, seen.event, age_s), 0, 0, 16)
        self._paint_bar(tile, seen.bar, record)
        return tile

    @staticmethod
    def _paint_bar(tile: NDArray[np.uint8], bar: deque[tuple[int, _Colour, bool]], record: FrameRecord | None) -> None:
        """Newest at the right; a second without a frame stays dark."""
        if record is None:
            return
        height, width = tile.shape[:2]
        seconds = 60 * _MINUTES
        for second, colour, _ in bar:
            age = int(record.time_s) - second
            if 0 <= age < seconds:
                right = width - age * width // seconds
                tile[height - _BAR_PX :, max(0, right - max(1, width // seconds)) : right] = colour


def _line(name: str, record: FrameRecord | None, event: CameraEvent | None, picture_age_s: float) -> str:
    """Age of the picture where it is not live, state of camera and VLM, in words."""
    camera: str = "not opened yet" if event is None else event.state
    if picture_age_s > _FROZEN_S:
        camera = f"picture {picture_age_s:.0f} s old   {camera}"
    if event is not None and event.state != "online" and event.reason:
        camera += f": {event.reason}"
    vlm = "" if record is None else f"   VLM: {record.vlm.status}"
    age_s = None if record is None else record.vlm.age_s
    return f"{name}   {camera}{vlm}" + (f", {age_s:.1f} s old" if age_s is not None else "")


def _fitted(image: NDArray[np.uint8], room_wh: tuple[int, int]) -> NDArray[np.uint8]:
    scale = min(room_wh[0] / image.shape[1], room_wh[1] / image.shape[0])
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
