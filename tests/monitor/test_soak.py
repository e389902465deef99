"""Days in minutes: frames, questions, alerts and reconnections through the real lane and outputs, on flat memory."""

import functools
import gc
import json
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hazardlens
from hazardlens.cameras.base import Picture
from hazardlens.cameras.clock import Clock
from hazardlens.cameras.names import CAMERA_THREAD_NAME
from hazardlens.frames.base import Frame
from hazardlens.testing import FakeDetector, FunctionVlm
from hazardlens.testing.cameras import FakeCamera
from hazardlens.testing.video import number_image
from hazardlens.vlm.base import Question
from tests.threads import left

FPS = 10
SESSION = 400
PERIOD = 200
"""Frames from one alert to the next."""


class LeapingClock(Clock):
    """Leaps to where a camera waits for; others wait a moment."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now(self) -> float:
        return self._now_s

    def date(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._now_s)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        if threading.current_thread().name.startswith(CAMERA_THREAD_NAME):
            self._now_s += max(0.0, seconds)
            return event.is_set()
        return event.wait(0.02)


class SoakCamera(FakeCamera):
    """Has one picture every tenth of a second, through all of its sessions, and waits for whoever takes them."""

    is_paced = True
    taken = 0

    def _pictures(self, count: int, size_wh: tuple[int, int], stop: threading.Event) -> Iterator[Picture]:
        for _ in range(count):
            yield Picture(
                stamp_s=self.taken / FPS, decode=functools.partial(number_image, self.taken % PERIOD, size_wh)
            )
            self.taken += 1


def burning(question: Question) -> dict:
    """A fire for six seconds out of twenty."""
    burns = question.frame.index % PERIOD < 60
    found = {"hazard": "fire", "severity": "high"} if burns else {"hazard": "none", "severity": "none"}
    return {
        "notes": "What there is to be seen.",
        **found,
        "detections": [{"id": k, **found} for k in range(question.asked)],
    }


def walkers(frame: Frame) -> list:
    """Somebody new every five seconds."""
    return [("person", 1 + frame.index // 50, 2.0, 2.0, 20.0, 30.0)]


def resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak(folder: Path, frames: int) -> tuple[list[int], dict]:
    """Watch so many frames; resident memory after each tenth, and the status at the end."""
    camera = SoakCamera(sessions=[SESSION] * (frames // SESSION))
    pipeline = {
        "schema": "hazard",
        "ask": {"every_s": 2.0},
        "max_age_s": 6.0,
        "alerts": {
            "rules": [
                {"name": "fire", "at_least": {"severity": "high"}, "for_answers": 2, "clear_s": 2, "cooldown_s": 1},
                {"name": "worker", "scope": "object", "classes": ["person"], "for_s": 1000, "clear_s": 1},
            ],
            "evidence": {"before_s": 1, "after_s": 1, "fps": 5},
        },
        "live": {"frames": "every", "buffer": 8, "rotate_mb": 1, "keep_files": 3, "keep_evidence": 20},
    }
    memory: list[int] = []
    arguments = {"detector": FakeDetector(walkers), "vlm": FunctionVlm(burning), "clock": LeapingClock()}
    with hazardlens.live(camera, pipeline=pipeline, out=folder, **arguments) as run:
        for record in run:
            if record.vlm.trigger and not record.vlm.attempts:
                while not run.lane.is_idle:
                    threading.Event().wait(0.0005)
            if record.event is None and not record.vlm.attempts and (record.frame + 1) % (frames // 10) == 0:
                memory.append(resident_bytes())
        threads = threading.active_count()
    status = json.loads((folder / "status.json").read_text())
    assert threads <= 8
    assert left() == []
    return memory, status


def check(folder: Path, status: dict, frames: int) -> None:
    source = status["sources"]["fake"]
    assert source["frames_read"] == source["frames_detected"] == frames
    assert source["frames_dropped"] == 0
    assert source["connections"] == frames // SESSION
    assert source["questions"] == {"ok": frames // FPS // 2, "superseded": 0}
    alerts = frames // PERIOD
    assert status["alerts"] == {"begun": alerts, "ended": alerts, "evidence_lost": 0, "told": {}}
    assert status["output_failures"] == {}
    assert len(list((folder / "evidence").glob("*.jpg"))) <= 20
    assert len(list(folder.glob("records*.jsonl"))) <= 3
    for path in folder.glob("*.jsonl"):
        assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_short_soak(tmp_path: Path) -> None:
    _, status = soak(tmp_path, 1200)
    check(tmp_path, status, 1200)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_frames_on_flat_memory(tmp_path: Path) -> None:
    memory, status = soak(tmp_path, 100_000)
    check(tmp_path, status, 100_000)
    assert source_reconnections(status) >= 200
    assert memory[-1] <= 1.05 * memory[0], [round(one / 2**20, 1) for one in memory]


def source_reconnections(status: dict) -> int:
    return status["sources"]["fake"]["connections"] - 1
