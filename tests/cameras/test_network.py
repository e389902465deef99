"""Cameras over HTTP on loopback, well and badly behaved."""

import logging
import threading
from itertools import pairwise

import numpy as np
import pytest

from hazardlens.cameras.base import CameraLost
from hazardlens.cameras.network import NetworkCamera
from hazardlens.frames.damage import Damage
from hazardlens.pipeline import LiveSettings
from hazardlens.testing.video import read_number
from tests.cameras.http_camera import HttpCamera, serving, transport_stream

SETTINGS = LiveSettings(open_timeout_s=2.0, read_timeout_s=0.5, retry_first_s=0.05, retry_most_s=0.1)


Came = list[tuple[float, int | None, bool]]


def read(camera: HttpCamera, url: str | None = None) -> tuple[Came, str]:
    """Stamps of what one connection gives, numbers (None where none can be read) and damage, and how it ends."""
    came: Came = []
    try:
        feed = NetworkCamera(url or camera.url, name="gate", settings=SETTINGS).open()
        try:
            pictures = feed.pictures(threading.Event())
            came.extend((picture.stamp_s, number_of(picture.decode()), picture.damaged) for picture in pictures)
            assert feed.damaged >= sum(damaged for _, _, damaged in came)
        finally:
            feed.close()
    except CameraLost as error:
        return came, str(error)
    return came, "end"


def wholes(came: Came) -> list[tuple[int, int | None]]:
    """Of pictures without a mark, what they should show by their stamps, and what they show."""
    return [(round((stamp - came[0][0]) * 10), number) for stamp, number, damaged in came if not damaged]


def number_of(image: np.ndarray) -> int | None:
    try:
        return read_number(image)
    except ValueError:
        return None


def test_a_stream_gives_its_pictures_with_their_distances_and_then_is_lost() -> None:
    with serving(HttpCamera([transport_stream(20)])) as camera:
        came, end = read(camera)
    assert [number for _, number, _ in came] == list(range(20))
    assert not any(damaged for _, _, damaged in came)
    stamps = [stamp for stamp, _, _ in came]
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
    whole = wholes(came)
    assert all(number == place for place, number in whole), "a picture that shows something else has no mark"
    assert {0, 39} <= {number for _, number in whole}
    seen = [number for _, number, _ in came if number is not None]
    assert len(seen) >= 20
    assert end == "the stream broke off"


def test_a_picture_of_which_half_is_missing_is_damaged_and_so_are_those_built_upon_it() -> None:
    with serving(HttpCamera([transport_stream(20, halved=(7,))])) as camera:
        came, _ = read(camera)
    shown = wholes(came)
    assert all(number == place for place, number in shown)
    damaged = set(range(20)) - {place for place, _ in shown}
    assert {7} <= damaged <= {7, 8, 9}, "the next key frame is the tenth at the latest"


def test_damage_lasts_until_a_key_frame_behind_it() -> None:
    damage = Damage()
    assert not damage.is_on(0, is_key=True, is_corrupt=False)
    damage.begins(3)
    assert damage.is_on(2, is_key=True, is_corrupt=False), "it came out late and says nothing of what follows"
    assert damage.is_on(3, is_key=True, is_corrupt=False), "the key frame itself is damaged"
    assert damage.is_on(4, is_key=False, is_corrupt=False)
    assert not damage.is_on(5, is_key=True, is_corrupt=False)
    assert damage.is_on(6, is_key=True, is_corrupt=True)
    assert damage.is_on(7, is_key=False, is_corrupt=False)
    assert not damage.is_on(None, is_key=True, is_corrupt=False)


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
