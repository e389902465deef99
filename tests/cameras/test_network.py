"""Cameras over HTTP on loopback, well and badly behaved."""

import logging
import threading
from itertools import pairwise

import numpy as np
import pytest

from hazardlens.cameras.base import CameraLost
from hazardlens.cameras.network import NetworkCamera
from hazardlens.pipeline import LiveSettings
from hazardlens.testing.video import read_number
from tests.cameras.http_camera import HttpCamera, serving, transport_stream

SETTINGS = LiveSettings(open_timeout_s=2.0, read_timeout_s=0.5, retry_first_s=0.05, retry_most_s=0.1)


def read(camera: HttpCamera, url: str | None = None) -> tuple[list[tuple[float, int | None]], str]:
    """Stamps and numbers of what one connection gives (None where none can be read), and how it ends."""
    came: list[tuple[float, int | None]] = []
    try:
        feed = NetworkCamera(url or camera.url, name="gate", settings=SETTINGS).open()
        try:
            pictures = feed.pictures(threading.Event())
            came.extend((picture.stamp_s, number_of(picture.decode())) for picture in pictures)
        finally:
            feed.close()
    except CameraLost as error:
        return came, str(error)
    return came, "end"


def number_of(image: np.ndarray) -> int | None:
    try:
        return read_number(image)
    except ValueError:
        return None


def test_a_stream_gives_its_pictures_with_their_distances_and_then_is_lost() -> None:
    with serving(HttpCamera([transport_stream(20)])) as camera:
        came, end = read(camera)
    assert [number for _, number in came] == list(range(20))
    stamps = [stamp for stamp, _ in came]
    assert [round(b - a, 3) for a, b in pairwise(stamps)] == [0.1] * 19
    assert end == "the stream broke off"


def test_a_half_open_connection_is_lost_after_the_time_limit() -> None:
    with serving(HttpCamera([transport_stream(60)], hangs=True)) as camera:
        came, end = read(camera)
    assert len(came) > 40
    assert end == "no picture for 0.5 s"


def test_garbage_between_packets_costs_pictures_but_not_the_stream() -> None:
    stream = transport_stream(40)
    middle = len(stream) // 2 // 188 * 188
    damaged = stream[:middle] + np.random.default_rng(0).bytes(188 * 3) + stream[middle + 188 * 3 :]
    with serving(HttpCamera([damaged])) as camera:
        came, end = read(camera)
    seen = [number for _, number in came if number is not None]
    assert {0, 39} <= set(seen)
    assert len(seen) >= 20
    assert end == "the stream broke off"


def test_nothing_but_garbage_cannot_be_opened() -> None:
    with serving(HttpCamera([b"\x00\xff" * 50_000])) as camera:
        came, end = read(camera)
    assert came == []
    assert any(words in end for words in ("Invalid data", "no video", "broke off"))


def test_a_refusal_and_an_absent_server_are_losses() -> None:
    with serving(HttpCamera([b""], status=401)) as camera:
        assert "401" in read(camera)[1]
        url = camera.url
    assert "refused" in read(camera, url)[1]


def test_no_secret_of_the_address_is_in_what_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(HttpCamera([b"nothing"], status=404)) as camera:
        url = camera.url.replace("http://", "http://us3rname:Passw0rd@") + "?token=T0ken"
        with pytest.raises(CameraLost) as caught:
            NetworkCamera(url, name="gate", settings=SETTINGS).open()
    assert camera.paths == ["/stream?token=T0ken"]
    chain = [
        caught.value,
        caught.value.__cause__,
        caught.value.__context__ if not caught.value.__suppress_context__ else None,
    ]
    said = caplog.text + repr(chain)
    assert not [word for word in ("us3rname", "Passw0rd", "T0ken") if word in said]
