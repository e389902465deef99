"""A camera's thread: what it tells, what falls out, how it comes back."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from hazardlens.cameras.base import Camera, CameraLost, Feed
from hazardlens.cameras.buffer import Arrival, Arrivals
from hazardlens.cameras.reader import Reader
from hazardlens.cameras.webcam import Webcam
from hazardlens.pipeline import LiveSettings
from hazardlens.testing.cameras import FakeCamera, FakeCapture, FakeClock
from hazardlens.testing.video import number_image, read_number
from tests.monitor.test_lane import HandClock, eventually

FAST = FakeClock(speed=50.0)
SETTINGS = LiveSettings(retry_first_s=1.0, retry_most_s=8.0)


def arrivals_of(camera: Camera, *, until: Callable[[list[Arrival]], bool], frames: int = 1000) -> list[Arrival]:
    """What comes from a camera until it is enough."""
    changed, stop = threading.Condition(), threading.Event()
    held = Arrivals(changed, frames=frames, waits=False)
    reader = Reader(camera, held, settings=SETTINGS, clock=FAST, stop=stop)
    reader.start()
    came: list[Arrival] = []
    ends = time.monotonic() + 20
    while not until(came):
        assert time.monotonic() < ends, came
        with changed:
            arrival = held.take()
            if arrival is None:
                changed.wait(0.05)
            else:
                came.append(arrival)
    stop.set()
    assert reader.join(5)
    return came


def states(came: list[Arrival]) -> list[str]:
    return [one.event.state for one in came if one.event is not None]


def ended(came: list[Arrival]) -> bool:
    return "ended" in states(came)


def numbers(came: list[Arrival]) -> list[int]:
    return [read_number(one.picture.decode()) for one in came if one.picture is not None]


def test_a_camera_that_drops_out_comes_back_and_tells() -> None:
    camera = FakeCamera(sessions=["no route to host", 3, "no route to host", "no route to host", 2], clock=FAST)
    came = arrivals_of(camera, until=ended)
    assert states(came) == [
        *("offline", "reconnecting", "online", "offline", "reconnecting"),
        *("offline", "reconnecting", "reconnecting", "online", "ended"),
    ]
    assert numbers(came) == [0, 1, 2, 3, 4]
    assert [one.index for one in came if one.picture is not None] == [0, 1, 2, 3, 4]
    times = [one.time_s for one in came]
    assert times == sorted(times)
    assert camera.closed == 2
    (first, *_) = [one.event for one in came if one.event is not None]
    assert first.reason == "no route to host"


def test_waits_grow_up_to_the_longest_and_begin_anew_after_pictures() -> None:
    camera = FakeCamera(sessions=["down"] * 6 + [1] + ["down"] * 2 + [1], clock=FAST)
    waits = [one.event.wait_s for one in arrivals_of(camera, until=ended) if one.event and one.event.wait_s is not None]
    for wait, longest in zip(waits, [1, 2, 4, 8, 8, 8, 1, 2, 4], strict=True):
        assert 0.75 * longest <= wait <= longest
    assert len(set(waits[3:6])) > 1, "waits at the longest must differ, or all cameras come at once"


def test_whatever_a_driver_raises_is_a_loss_and_not_the_end() -> None:
    class Broken(Camera):
        name = "broken"
        opened = 0

        def open(self) -> Feed:
            self.opened += 1
            raise ZeroDivisionError("rtsp://user:secret@host")

    camera = Broken()
    came = arrivals_of(camera, until=lambda came: camera.opened > 2)
    assert states(came)[:2] == ["offline", "reconnecting"]
    assert "secret" not in str([one.event for one in came])


def test_newest_frame_wins_and_what_falls_out_is_counted() -> None:
    changed, stop = threading.Condition(), threading.Event()
    held = Arrivals(changed, frames=1, waits=False)
    reader = Reader(FakeCamera(sessions=[20], fps=None), held, settings=SETTINGS, clock=FAST, stop=stop)
    reader.start()
    assert reader.join(5)
    with changed:
        left = [held.take() for _ in range(len(held))]
    assert [one.index for one in left if one.picture is not None] == [19]
    assert states(left) == ["online", "ended"]
    assert held.dropped == 19


def test_a_bounded_buffer_drops_the_oldest_and_never_an_event() -> None:
    changed, stop = threading.Condition(), threading.Event()
    held = Arrivals(changed, frames=5, waits=False)
    Reader(FakeCamera(sessions=[8], fps=None), held, settings=SETTINGS, clock=FAST, stop=stop).start()
    with changed:
        changed.wait_for(lambda: len(held) == 7 and held.dropped == 3, timeout=5)
        left = [held.take() for _ in range(len(held))]
    assert [one.index for one in left if one.picture is not None] == [3, 4, 5, 6, 7]
    assert states(left) == ["online", "ended"]


def webcam(capture: FakeCapture, size_wh: tuple[int, int] | None = None) -> Webcam:
    return Webcam(0, name="desk", size_wh=size_wh, open_capture=lambda _: capture)


def test_a_fake_webcam_that_misses_a_read_goes_on() -> None:
    pictures = [number_image(0), None, None, number_image(1), None, number_image(2)[:, :, 0]]
    came = arrivals_of(webcam(FakeCapture(pictures)), until=lambda came: len(numbers(came)) == 3)
    assert numbers(came) == [0, 1, 2]
    assert states(came) == ["online"]


def test_a_fake_webcam_that_is_unplugged_is_lost_and_let_go() -> None:
    capture = FakeCapture([number_image(k) for k in range(9)], unplugged_after=3)
    came = arrivals_of(webcam(capture), until=lambda came: "reconnecting" in states(came))
    assert numbers(came) == [0, 1, 2]
    assert "unplugged" in next(one.event.reason for one in came if one.event and one.event.state == "offline")
    assert capture.released


def test_a_fake_webcam_that_refuses_a_size_says_which_it_has() -> None:
    capture = FakeCapture([number_image(0)], sizes=[(64, 48), (320, 240)])
    came = arrivals_of(webcam(capture, (1920, 1080)), until=lambda came: bool(came))
    assert came[0].event.reason == "64x48, for it refuses 1920x1080"
    granted = FakeCapture([number_image(0)], sizes=[(64, 48), (320, 240)])
    assert webcam(granted, (320, 240)).open().note == "320x240"


def test_a_webcam_that_is_not_there() -> None:
    with pytest.raises(CameraLost, match="cannot be opened"):
        webcam(FakeCapture(opens=False)).open()


def test_a_driver_that_hangs_as_it_opens_is_told_once() -> None:
    freed = threading.Event()

    class Hanging(FakeCamera):
        def open(self) -> Feed:
            freed.wait(10)
            return super().open()

    clock = HandClock()
    changed, stop = threading.Condition(), threading.Event()
    held = Arrivals(changed, frames=9, waits=False)
    reader = Reader(Hanging(sessions=[1], fps=None), held, settings=SETTINGS, clock=clock, stop=stop)
    reader.look(99.0, 10.0)
    reader.start()
    try:
        eventually(lambda: reader._opening_s is not None)
        for clock.time_s in (9.0, 11.0, 30.0):
            reader.look(99.0, 10.0)
        assert [one.event.reason for one in held.rest()] == ["does not open within 10 s; its driver hangs"]
        assert reader.state == "offline"
        freed.set()
        assert reader.join(5)
        assert states(held.rest()) == ["online", "ended"]
        reader.look(99.0, 10.0)
        assert held.rest() == []
    finally:
        stop.set()
        freed.set()
        reader.join(5)


def test_a_driver_that_hangs_is_told_by_whoever_looks() -> None:
    freed = [threading.Event(), threading.Event()]

    class Hanging(FakeCapture):
        """Hangs before its second picture, and again behind it."""

        def read(self) -> tuple[bool, np.ndarray]:
            if self._reads:
                freed[min(self._reads, 2) - 1].wait(10)
            return super().read()

    changed, stop = threading.Condition(), threading.Event()
    held = Arrivals(changed, frames=9, waits=False)
    reader = Reader(webcam(Hanging([number_image(0), number_image(1)])), held, settings=SETTINGS, clock=FAST, stop=stop)
    reader.start()
    try:
        with changed:
            changed.wait_for(lambda: reader.last_frame_s is not None, timeout=5)
        FAST.wait(stop, 3.0)
        reader.look(2.0, 2.0)
        assert (reader.state, reader.reason) == ("offline", "no picture for 2 s; its driver hangs")
        freed[0].set()
        with changed:
            changed.wait_for(lambda: reader.read == 2, timeout=5)
        assert reader.state == "online"
    finally:
        stop.set()
        freed[1].set()
        reader.join(5)
