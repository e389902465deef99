"""Evidence of alerts: the frame as JPEG, and a few seconds of video before and after it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import queue
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from hazardlens.alerts.kept import PICTURE, VIDEO, Kept
from hazardlens.alerts.ring import Ring, jpeg
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.draw import Painter
from hazardlens.outputs.video import VideoWriter
from hazardlens.pipeline import EvidenceSettings, Pipeline
from hazardlens.schema import FieldSchema

_log = logging.getLogger(__name__)

_LATENESS_S = 10.0
"""An answer that comes this much later than its frame still finds the pictures before it."""
_CLIPS_WAITING = 16
_LETTERS = 80
_DIGEST_LETTERS = 8
_SIZES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class _Clip:
    """A video that is to be made once its last picture is there."""

    source: str
    name: str
    from_s: float
    to_s: float


class Evidence:
    """Keeps the pictures that alerts need, and writes them; videos are made in a thread of their own.

    Args:
        folder: Where to; it is made with the first alert.
        settings: How much is kept.
        pipeline: Its zones are drawn.
        schema: The schema of the records' fields.
        keep: Alerts whose evidence is kept, or None for all; the oldest are deleted beyond that.
        demo: Whether pictures and videos are marked as made by demo models.

    Attributes:
        lost: Pictures and videos that could not be written.
    """

    def __init__(
        self,
        folder: Path,
        *,
        settings: EvidenceSettings,
        pipeline: Pipeline,
        schema: FieldSchema,
        keep: int | None = None,
        demo: bool = False,
    ) -> None:
        self.lost = 0
        self._folder = folder
        self._settings = settings
        self._schema = schema
        self._zones = {name: zone.polygon for name, zone in pipeline.zones.items()}
        self._kept = Kept(folder, keep)
        self._demo = demo
        self._horizon_s = settings.before_s + settings.after_s + _LATENESS_S
        self._painters: dict[tuple[int, int], Painter] = {}
        self._rings: dict[str, Ring] = {}
        self._pending: list[_Clip] = []
        self._jobs: queue.Queue[tuple[str, list[tuple[float, bytes]]] | None] = queue.Queue(_CLIPS_WAITING)
        self._worker: threading.Thread | None = None

    def see(self, outcome: Outcome) -> None:
        """Take in a frame as it comes, before the alerts that it begins."""
        record = outcome.record
        for clip in [one for one in self._pending if one.source == record.source and record.time_s > one.to_s]:
            self._pending.remove(clip)
            self._make(clip)
        ring = self._rings.setdefault(record.source, Ring(self._settings, self._horizon_s))
        ring.add(self._painter(record.size_wh).mark(outcome.frame.image), record.time_s)

    def begin(self, alert: Mapping[str, Any], outcome: Outcome) -> dict[str, str]:
        """Keep the evidence of an alert that begins with this outcome.

        Returns:
            The files' names in the folder: `picture`, and `video`, which is there later.
        """
        name = _name(alert)
        before_s, after_s = self._settings.before_s, self._settings.after_s
        time_s = float(alert["time_s"])
        clip = _Clip(source=alert["source"], name=name, from_s=time_s - before_s, to_s=time_s + after_s)
        try:
            self._kept.add(name)
            drawn = self._painter(outcome.record.size_wh).draw(np.array(outcome.frame.image), outcome.record)
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / f"{name}{PICTURE}").write_bytes(jpeg(drawn))
        except Exception as error:  # noqa: BLE001 - whatever the picture fails with, the video may still be made
            self._fail(f"{name}{PICTURE}", _why(error))
        self._pending.append(clip)
        return {"picture": f"{name}{PICTURE}", "video": f"{name}{VIDEO}"}

    def close(self, seconds: float | None) -> None:
        """Make the videos that are still due, of the pictures there are; wait for `seconds`, or until they are made."""
        for clip in self._pending:
            self._make(clip)
        self._pending.clear()
        if self._worker is None:
            return
        half = None if seconds is None else seconds / 2
        with contextlib.suppress(queue.Full):
            self._jobs.put(None, timeout=half)
        self._worker.join(half)
        if self._worker.is_alive():
            _log.warning("%s: videos of the last alerts are not finished", self._folder)
        self._worker = None

    def _painter(self, size_wh: tuple[int, int]) -> Painter:
        """The painter for pictures of a size; few sizes come up."""
        if size_wh not in self._painters:
            if len(self._painters) >= _SIZES:
                self._painters.clear()
            self._painters[size_wh] = Painter(self._schema, size_wh, self._zones, demo=self._demo)
        return self._painters[size_wh]

    def _make(self, clip: _Clip) -> None:
        pictures = self._rings[clip.source].between(clip.from_s, clip.to_s) if clip.source in self._rings else []
        if not pictures:
            self._fail(f"{clip.name}{VIDEO}", "its pictures are gone, for the answer came too late")
            return
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name="hazardlens-evidence", daemon=True)
            self._worker.start()
        try:
            self._jobs.put_nowait((clip.name, pictures))
        except queue.Full:
            self._fail(f"{clip.name}{VIDEO}", "too many videos are waiting to be made")

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            name, pictures = job
            try:
                self._write(name, pictures)
            except Exception as error:  # noqa: BLE001 - the next video may be made
                self._fail(f"{name}{VIDEO}", _why(error))

    def _write(self, name: str, pictures: list[tuple[float, bytes]]) -> None:
        whole = False
        try:
            _write_video(self._kept.part(name), pictures, self._settings.fps)
            whole = True
        finally:
            self._kept.finish(name, whole=whole)

    def _fail(self, name: str, why: str) -> None:
        self.lost += 1
        _log.warning("%s: evidence cannot be kept: %s", name, why)


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return f"{type(error).__name__}: {error}"


def _write_video(path: Path, pictures: list[tuple[float, bytes]], fps: float) -> None:
    first_s = pictures[0][0]
    first = _decoded(pictures[0][1])
    with VideoWriter(path, size_wh=(first.shape[1], first.shape[0]), rate=fps) as writer:
        for time_s, data in pictures:
            writer.write(_decoded(data), time_s - first_s)


def _decoded(data: bytes) -> NDArray[np.uint8]:
    return np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), np.uint8)


def _name(alert: Mapping[str, Any]) -> str:
    """A file's name that no other alert of the folder has: date where there is one, source, rule with number."""
    whole = f"{alert['source']}-{alert['id']}"
    words = re.sub(r"[^\w.-]+", "_", whole).strip("._")
    if words != whole or len(words) > _LETTERS:  # another alert's may become the same words
        digest = hashlib.sha256(whole.encode(errors="backslashreplace")).hexdigest()[:_DIGEST_LETTERS]
        words = f"{words[: _LETTERS - 1 - _DIGEST_LETTERS]}-{digest}"
    stamp = re.sub(r"[-:]", "", str(alert["at"])) if alert["at"] else f"{alert['time_s']:010.3f}s"
    return f"{stamp}-{words}"
