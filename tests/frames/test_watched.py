"""A capture that is read as Ultralytics reads it: which picture, at what time, and what was missed."""

import random
from fractions import Fraction
from pathlib import Path

import cv2
import pytest

from hazardlens.frames.file import VideoFile
from hazardlens.frames.watched import WatchedVideo
from hazardlens.testing.video import draw_video, read_number, truncate


def variable(count: int) -> list[float]:
    rng = random.Random(1)
    times = [0.0]
    for _ in range(count - 1):
        times.append(times[-1] + rng.choice([0.02, 0.033, 0.1, 0.5]))
    return times


CLIPS = {
    "constant.mp4": {"frames": 12, "rate": 10},
    "ntsc.mp4": {"frames": 12, "rate": Fraction(30000, 1001), "audio": "aac"},
    "variable.mkv": {"times_s": variable(20)},
    "variable.mp4": {"times_s": variable(20)},
    "late.mp4": {"times_s": [1 + k / 10 for k in range(12)], "audio": "aac"},
    "plain.avi": {"frames": 12, "rate": 10, "codec": "mjpeg", "pixel_format": "yuvj420p"},
    "stream.ts": {"frames": 12, "rate": 25},
}


def watched(path: Path, stride: int = 1) -> WatchedVideo:
    return WatchedVideo(cv2.VideoCapture(str(path)), path, stride=stride)


@pytest.mark.parametrize("name", CLIPS)
@pytest.mark.parametrize("stride", [1, 3])
def test_numbers_and_times_are_those_of_the_file(tmp_path: Path, name: str, stride: int) -> None:
    path = draw_video(tmp_path / name, **CLIPS[name])
    with VideoFile(path) as video:
        times = [frame.time_s for frame in video]
    capture, seen = watched(path, stride), []
    while all(capture.grab() for _ in range(stride)):
        seen.append(read_number(capture.retrieve()[1]))
    capture.release()
    assert seen == list(range(stride - 1, len(times), stride))
    assert [one.index for one in capture.taken] == seen
    assert [one.time_s for one in capture.taken] == [times[index] for index in seen]
    assert capture.loss is None


def test_a_reader_that_stops_before_the_end_misses_the_rest(tmp_path: Path) -> None:
    path = draw_video(tmp_path / "clip.mp4", frames=12, rate=10, size_wh=(64, 48))
    capture = watched(path)
    for _ in range(5):
        assert capture.grab()
        capture.retrieve()
    capture.release()
    assert capture.loss is not None
    assert (capture.loss.first.index, capture.loss.first.time_s, capture.loss.size_wh) == (5, 0.5, (64, 48))
    assert "stopped after frame 4" in capture.loss.reason


def test_frames_left_over_by_a_stride_are_no_loss(tmp_path: Path) -> None:
    path = draw_video(tmp_path / "clip.mp4", frames=11, rate=10)
    capture = watched(path, stride=4)
    for _ in range(8):
        capture.grab()
    capture.release()
    assert capture.loss is None


def test_who_gives_up_of_his_own_accord_misses_nothing(tmp_path: Path) -> None:
    capture = watched(draw_video(tmp_path / "clip.mp4", frames=12, rate=10))
    capture.grab()
    capture.is_watching = False
    capture.release()
    assert capture.loss is None


def test_a_file_that_was_cut_off_says_how_much_is_missing(tmp_path: Path) -> None:
    faststart = {"movflags": "faststart"}
    path = draw_video(
        tmp_path / "clip.mp4", frames=40, rate=10, codec="mpeg4", size_wh=(160, 120), container_options=faststart
    )
    truncate(path, 0.6)
    capture = watched(path)
    while capture.grab():
        capture.retrieve()
    capture.release()
    assert capture.loss is not None
    assert 0 < capture.loss.first.index == len(capture.taken) < 40
    assert "of the 40 frames" in capture.loss.reason
    assert capture.loss.first.time_s == capture.taken[-1].time_s


def test_where_the_container_cannot_be_read_the_captures_times_are_taken(tmp_path: Path) -> None:
    path = draw_video(tmp_path / "clip.mp4", frames=3, rate=10)
    capture = WatchedVideo(cv2.VideoCapture(str(path)), tmp_path / "gone.mp4", stride=1)
    while capture.grab():
        capture.retrieve()
    assert [one.time_s for one in capture.taken] == pytest.approx([0.0, 0.1, 0.2])
    capture.release()
    assert capture.loss is None


def test_a_file_that_is_gone_at_the_end_is_no_error(tmp_path: Path) -> None:
    faststart = {"movflags": "faststart"}
    path = draw_video(
        tmp_path / "clip.mp4", frames=40, rate=10, codec="mpeg4", size_wh=(160, 120), container_options=faststart
    )
    truncate(path, 0.6)
    capture = watched(path)
    while capture.grab():
        capture.retrieve()
    path.unlink()
    capture.release()
    assert capture.loss is None
    assert not capture.isOpened()
