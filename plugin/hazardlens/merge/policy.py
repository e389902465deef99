"""When the VLM is asked, and about which detections; every clock is video time."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Mapping

import numpy as np

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.merge.again import Key, Unanswered
from hazardlens.merge.clock import RESTART_S
from hazardlens.merge.zones import inside_zone
from hazardlens.pipeline import AskSettings, AskZone, Zone

REMEMBERED = 4096
"""Tracks remembered per purpose; the longest unseen are forgotten first."""

_NEW_TRACK = "new_track"
_TOLERANCE_S = 0.001
"""Containers round times to a millisecond; a frame this much too early is on time."""


class _Memory:
    """A set that forgets its longest unseen members beyond `REMEMBERED`."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, None] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, key: Hashable) -> None:
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)

    def discard(self, key: Hashable) -> None:
        self._seen.pop(key, None)


class _Every:
    """Fires every n seconds on a grid that starts at the first frame, so that delays do not add up."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._start_s: float | None = None
        self._next = 0

    def due(self, time_s: float) -> bool:
        """Whether the grid was crossed since it last fired; a long gap counts once."""
        if self._start_s is None:
            self._start_s = time_s
        elapsed_s = time_s - self._start_s + _TOLERANCE_S
        if elapsed_s < self._next * self._every_s:
            return False
        self._next = math.floor(elapsed_s / self._every_s) + 1
        return True


class _Entries:
    """Who entered one zone and was not asked about yet.

    Members are track ids; None stands for all detections without a track together.
    """

    def __init__(self, zone: Zone, reference: AskZone) -> None:
        self._zone = zone
        self._classes = reference.classes
        self._inside = _Memory()
        self._waiting: set[int | None] = set()
        self._occupied = False

    def waiting(self, frame: Frame, detections: Detections) -> bool:
        """Take in one frame; whether somebody who entered is still waiting to be asked about."""
        indices = inside_zone(self._zone, detections, frame.size_wh)
        if self._classes is not None:
            indices = [index for index in indices if detections.class_name(index) in self._classes]
        inside = {detections.track_id[index] for index in indices}
        self._drop_gone(inside, detections)
        for track in inside:
            if not (self._occupied if track is None else track in self._inside):
                self._waiting.add(track)
            if track is not None:
                self._inside.add(track)
        self._occupied = bool(inside)
        return bool(self._waiting)

    def asked(self) -> set[int | None]:
        """Nobody waits any more; who did."""
        asked, self._waiting = self._waiting, set()
        return asked

    def again(self, track: int | None) -> None:
        """Somebody was asked about in vain."""
        self._waiting.add(track)

    def _drop_gone(self, inside: set[int | None], detections: Detections) -> None:
        """Forget who left: outside the zone it may enter again, out of the picture it waits no more."""
        present = {track for track in detections.track_id if track is not None}
        gone = self._waiting - present - (inside & {None})
        self._waiting -= gone
        for key in gone | (present - inside):
            self._inside.discard(key)


class AskPolicy:
    """Decides for the frames of one source when the VLM is asked; keep one per source.

    Args:
        ask: The pipeline's `ask`.
        zones: The pipeline's zones by name.
    """

    def __init__(self, ask: AskSettings, zones: Mapping[str, Zone]) -> None:
        self._ask = ask
        self._zones = zones
        self._last_s = -math.inf
        self._restart()

    def _restart(self) -> None:
        self._every = None if self._ask.every_s is None else _Every(self._ask.every_s)
        self._every_waits = False
        self._tracks = _Memory()
        self._asked_about = _Memory()
        self._asked_s = -math.inf
        self._unanswered = Unanswered()
        self._entries = [(item.zone, _Entries(self._zones[item.zone], item)) for item in self._ask.zones]

    def decide(self, frame: Frame, detections: Detections, *, may_ask: bool = True) -> tuple[str, ...]:
        """Say why this frame is to be asked about; call it once for every frame, in order.

        A trigger within `min_gap_s` of the last question waits until the gap is over, as long as the track that
        caused it is still in the picture. A jump back of more than a second starts afresh.

        Args:
            frame: The frame.
            detections: What the detector found on it.
            may_ask: Whether a question could be taken now; if not, triggers wait as they do within `min_gap_s`.

        Returns:
            Any of `every`, `new_track` and `zone:NAME`; empty where the frame is not to be asked about.
        """
        if frame.time_s < self._last_s - RESTART_S:
            self._restart()
        self._last_s = frame.time_s
        self._hand_back(frame.time_s)
        triggers = self._triggers(frame, detections)
        if not (triggers and may_ask) or frame.time_s - self._asked_s < self._ask.min_gap_s - _TOLERANCE_S:
            return ()
        self._asked(frame, detections)
        return triggers

    def settled(self, frame: Frame, *, ok: bool) -> None:
        """A question about a frame is over; where it failed, whoever caused it causes another one.

        Args:
            frame: The frame.
            ok: Whether there is an answer.
        """
        if ok:
            self._unanswered.answered((frame.index, frame.time_s))
        else:
            self._unanswered.failed((frame.index, frame.time_s))

    def dropped(self, frame: Frame) -> None:
        """A question about a frame was never asked; whoever caused it, and is in no later question, causes another."""
        self._unanswered.dropped((frame.index, frame.time_s))

    def _hand_back(self, time_s: float) -> None:
        """Those who were asked about in vain are new again."""
        for name, track in self._unanswered.due(time_s):
            self._tracks.discard((name, track))
            for zone, entries in self._entries:
                if name == f"zone:{zone}":
                    entries.again(track)

    def _triggers(self, frame: Frame, detections: Detections) -> tuple[str, ...]:
        if self._every is not None and self._every.due(frame.time_s):
            self._every_waits = True
        triggers = ["every"] if self._every_waits else []
        if self._new(detections):
            triggers.append(_NEW_TRACK)
        # Every zone must see every frame, so no short cut here.
        entered = [name for name, entries in self._entries if entries.waiting(frame, detections)]
        return (*triggers, *dict.fromkeys(f"zone:{name}" for name in entered))

    def _asked(self, frame: Frame, detections: Detections) -> None:
        self._asked_s = frame.time_s
        self._every_waits = False
        new: list[Key] = list(self._new(detections))
        for key in self._chosen(detections):
            self._tracks.add(key)
        for zone, entries in self._entries:
            new += [(f"zone:{zone}", track) for track in sorted(entries.asked(), key=str)]
        self._unanswered.asked((frame.index, frame.time_s), new, set(detections.track_id))

    def _new(self, detections: Detections) -> list[Key]:
        """Tracks to be asked about that were not."""
        return [key for key in self._chosen(detections) if key not in self._tracks]

    def _chosen(self, detections: Detections) -> list[Key]:
        """Tracks of the classes whose new tracks are asked about."""
        return [
            (_NEW_TRACK, track)
            for index, track in enumerate(detections.track_id)
            if track is not None and detections.class_name(index) in self._ask.new_track
        ]

    def select(self, detections: Detections, max_objects: int) -> tuple[Detections, int]:
        """Choose whom to ask about on a frame that is asked.

        Args:
            detections: All detections of the frame.
            max_objects: Most detections asked about.

        Returns:
            The detections and how many of them are asked about, from the first. Their order stays as it is where all
            fit; else tracks never asked about come first, then large boxes.
        """
        asked = min(len(detections), max_objects)
        if asked < len(detections):
            boxes = detections.boxes_xyxy_px.astype(np.float64)
            areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
            order = sorted(
                range(len(detections)), key=lambda index: (not self._is_new(detections, index), -areas[index])
            )
            detections = detections.reordered(order)
        for track in detections.track_id[:asked]:
            if track is not None:
                self._asked_about.add(track)
        return detections, asked

    def _is_new(self, detections: Detections, index: int) -> bool:
        track = detections.track_id[index]
        return track is not None and track not in self._asked_about
