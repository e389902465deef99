from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import NoReturn
from unittest import mock

import av
import numpy as np
import pytest

from hazardlens.errors import OutputError
from hazardlens.frames.base import Frame
from hazardlens.frames.file import VideoFile
from hazardlens.outputs._encode import Encoder
from hazardlens.outputs.video import VideoWriter
from hazardlens.testing.video import damage, draw_video, number_image, read_number

VARIABLE = [0.0, 0.1, 0.5, 0.6, 1.7, 1.8, 1.9, 2.0, 2.1, 5.0]


def read(path: Path) -> list[Frame]:
    with VideoFile(path) as reader:
        frames = list(reader)
    assert reader.account().reason is None
    return frames


def copy(source: Path, target: Path, *, complete: bool = True, most: int = 10**6) -> list[float]:
    """Write a file's frames again, with its sound; gives their times."""
    with VideoFile(source) as reader:
        writer = VideoWriter(target, size_wh=reader.size_wh, rate=reader.rate, audio_from=source)
        times = []
        for frame in reader:
            if frame.index < most:
                writer.write(frame.image, frame.time_s)
                times.append(frame.time_s)
        writer.close(complete)
    return times


def sound(path: Path) -> tuple[str, float, float, float]:
    """Codec, first and end time in seconds from the container's start, and the share of the tone in the sound."""
    with av.open(str(path)) as media:
        stream = media.streams.audio[0]
        frames = list(media.decode(stream))
        origin = (media.start_time or 0) / 1e6
        first, last = frames[0], frames[-1]
        samples = np.concatenate(
            [frame.to_ndarray().astype(float).reshape(-1)[: frame.samples] for frame in frames[2:]]
        )
        spectrum = np.abs(np.fft.rfft(samples)) ** 2
        at = round(440 * len(samples) / first.sample_rate)
        share = spectrum[at - 20 : at + 20].sum() / spectrum.sum()
        end = float(last.pts * stream.time_base) + last.samples / last.sample_rate
        return stream.codec.canonical_name, float(first.pts * stream.time_base) - origin, end - origin, float(share)


@pytest.mark.parametrize("rate", [Fraction(30000, 1001), Fraction(25, 2), 10, Fraction(1, 3)], ids=str)
def test_constant_rate(tmp_path, rate):
    times = copy(draw_video(tmp_path / "in.mp4", frames=30, rate=rate), tmp_path / "out.mp4")
    frames = read(tmp_path / "out.mp4")
    assert [read_number(frame.image) for frame in frames] == list(range(30))
    assert [frame.time_s for frame in frames] == pytest.approx(times, abs=1e-9)
    with av.open(str(tmp_path / "out.mp4")) as media:
        assert media.duration / 1e6 == pytest.approx(float(30 / Fraction(rate)), abs=1e-3)
        assert media.streams.video[0].average_rate == rate
        assert len(media.streams.audio) == 0


@pytest.mark.parametrize("start", [0.0, 2.5])
def test_variable_rate_and_offset_to_sound(tmp_path, start):
    times = [start + one for one in VARIABLE]
    source = draw_video(tmp_path / "in.mkv", times_s=times, audio="aac", audio_s=9)
    copy(source, tmp_path / "out.mp4")
    frames = read(tmp_path / "out.mp4")
    assert [read_number(frame.image) for frame in frames] == list(range(len(VARIABLE)))
    assert [frame.time_s for frame in frames] == pytest.approx(times, abs=1 / 180_000)


def test_times_that_stand_still_are_moved_by_a_tick(tmp_path):
    with VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=None) as writer:
        for number, time_s in enumerate([0.0, 0.5, 0.5, 0.4, 1.0]):
            writer.write(number_image(number), time_s)
    frames = read(tmp_path / "o.mp4")
    assert [frame.time_s for frame in frames] == pytest.approx([0, 0.5, 0.5 + 1 / 90000, 0.5 + 2 / 90000, 1], abs=1e-9)
    assert [read_number(frame.image) for frame in frames] == list(range(5))


@pytest.mark.parametrize("rate", [10, None])
def test_a_clock_that_starts_again_goes_on_a_frame_later(tmp_path, rate):
    times = [0.0, 4.1, 3.2, 4.2, 0.0, 0.5, 0.7, 1.9, 0.2, 0.3]
    with VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=rate) as writer:
        for number, time_s in enumerate(times):
            writer.write(number_image(number), time_s)
    frames = read(tmp_path / "o.mp4")
    step = 0.1 if rate else 1.2  # where no rate is known, a picture is shown as long as the one before
    moved = [0.0, 4.1, 4.1, 4.2, 4.3, 4.8, 5.0, 6.2, 6.2 + step, 6.3 + step]
    assert [frame.time_s for frame in frames] == pytest.approx(moved, abs=1e-4)
    assert [read_number(frame.image) for frame in frames] == list(range(10))


@pytest.mark.parametrize("codec", ["aac", "mp2", None])
@pytest.mark.parametrize("lengths", [(30, 30), (30, 80), (80, 30)])
def test_two_recordings_in_one_file(tmp_path, codec, lengths):
    parts = [
        draw_video(tmp_path / f"{k}.ts", frames=length, audio=codec).read_bytes() for k, length in enumerate(lengths)
    ]
    (tmp_path / "in.ts").write_bytes(b"".join(parts))
    times = copy(tmp_path / "in.ts", tmp_path / "out.mp4")
    assert times[lengths[0]] < times[lengths[0] - 1] - 1
    frames = read(tmp_path / "out.mp4")
    assert [read_number(frame.image) for frame in frames] == [k for length in lengths for k in range(length)]
    moved = [times[0] + k / 10 for k in range(sum(lengths))]
    assert [frame.time_s for frame in frames] == pytest.approx(moved, abs=1e-3)
    if codec:
        _, first, end, tone = sound(tmp_path / "out.mp4")
        assert first == pytest.approx(0, abs=0.05)
        assert end > lengths[0] / 10 - 0.1
        assert tone > 0.9


@pytest.mark.parametrize(
    ("codec", "suffix", "kept"),
    [
        ("aac", "mp4", "aac"),
        ("aac", "ts", "aac"),
        ("libmp3lame", "mkv", "mp3"),
        ("ac3", "ts", "ac3"),
        ("alac", "mov", "alac"),
        ("libopus", "mkv", "opus"),
        ("pcm_s16le", "mkv", "aac"),
        ("pcm_s16le", "avi", "aac"),
        ("flac", "mkv", "aac"),
        ("vorbis", "mkv", "aac"),
    ],
)
def test_sound_is_kept(tmp_path, codec, suffix, kept):
    video = "mpeg4" if suffix == "avi" else "libx264"
    source = draw_video(tmp_path / f"in.{suffix}", frames=30, audio=codec, codec=video)
    times = copy(source, tmp_path / "out.mp4")
    name, first, end, tone = sound(tmp_path / "out.mp4")
    _, source_first, source_end, _ = sound(source)
    assert name == kept
    assert (first, end) == pytest.approx((source_first, source_end), abs=0.03)
    assert tone > 0.9
    assert [frame.time_s for frame in read(tmp_path / "out.mp4")] == pytest.approx(times, abs=1e-4)


@pytest.mark.parametrize(("complete", "end"), [(True, 6.0), (False, 1.0)])
def test_sound_ends_with_a_video_that_was_cut_short(tmp_path, complete, end):
    source = draw_video(tmp_path / "in.mp4", frames=60, audio="aac")
    copy(source, tmp_path / "out.mp4", complete=complete, most=10)
    assert sound(tmp_path / "out.mp4")[2] == pytest.approx(end, abs=0.05)
    assert len(read(tmp_path / "out.mp4")) == 10


@pytest.mark.parametrize("codec", ["aac", "flac"])
def test_damaged_sound_does_not_stop_the_video(tmp_path, codec):
    source = draw_video(tmp_path / "in.mkv", frames=60, audio=codec)
    sick = tmp_path / "sick.mkv"
    sick.write_bytes(source.read_bytes())
    damage(sick, start=0.2, stop=0.8)
    writer = VideoWriter(tmp_path / "out.mp4", size_wh=(64, 48), rate=10, audio_from=sick)
    with writer, VideoFile(source) as reader:
        for frame in reader:
            writer.write(frame.image, frame.time_s)
    assert len(read(tmp_path / "out.mp4")) == 60


@pytest.mark.parametrize(("source", "warns"), [("missing.mp4", True), ("silent.mp4", False)])
def test_no_sound_to_take(tmp_path, caplog, source, warns):
    draw_video(tmp_path / "silent.mp4")
    with VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10, audio_from=tmp_path / source) as writer:
        writer.write(number_image(7), 0.0)
    assert bool(caplog.records) is warns
    assert [read_number(frame.image) for frame in read(tmp_path / "o.mp4")] == [7]


@pytest.mark.parametrize("size_wh", [(65, 48), (64, 49), (63, 47), (641, 359)])
def test_odd_sizes_are_padded(tmp_path, size_wh):
    with VideoWriter(tmp_path / "o.mp4", size_wh=size_wh, rate=10) as writer:
        writer.write(number_image(21, size_wh), 0.0)
    frame = read(tmp_path / "o.mp4")[0]
    assert frame.size_wh == (size_wh[0] + size_wh[0] % 2, size_wh[1] + size_wh[1] % 2)
    assert read_number(frame.image) == 21


def test_pictures_of_another_size_are_fitted(tmp_path):
    with VideoWriter(tmp_path / "o.mp4", size_wh=(128, 96), rate=10) as writer:
        writer.write(number_image(1, (128, 96)), 0.0)
        writer.write(number_image(2, (64, 48)), 0.1)
        writer.write(number_image(3, (96, 96)), 0.2)
    first, scaled, boxed = read(tmp_path / "o.mp4")
    assert [read_number(image) for image in (first.image, scaled.image, boxed.image[:, 16:112])] == [1, 2, 3]
    assert int(boxed.image[:, :12].max()) < 40


@pytest.mark.parametrize(
    "bgr", [(0, 0, 255), (0, 255, 0), (255, 0, 0), (255, 255, 255), (0, 0, 0), (30, 160, 90)], ids=str
)
def test_colours_come_back(tmp_path, bgr):
    with VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10, crf=10) as writer:
        writer.write(np.full((48, 64, 3), bgr, np.uint8), 0.0)
    assert np.abs(read(tmp_path / "o.mp4")[0].image.astype(int) - bgr).max() <= 6
    with av.open(str(tmp_path / "o.mp4")) as media:
        context = media.streams.video[0].codec_context
        assert (context.colorspace, context.color_primaries, context.color_trc, context.color_range) == (1, 1, 1, 1)
        assert context.pix_fmt == "yuv420p"


def test_non_contiguous_pictures(tmp_path):
    with VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10) as writer:
        writer.write(np.repeat(number_image(5), 2, axis=1)[:, ::2], 0.0)
    assert read_number(read(tmp_path / "o.mp4")[0].image) == 5


@pytest.mark.parametrize(
    "image", [np.zeros((48, 64), np.uint8), np.zeros((48, 64, 4), np.uint8), np.zeros((48, 64, 3), np.float32)]
)
def test_other_arrays_are_refused(tmp_path, image):
    writer = VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10)
    with writer, pytest.raises(ValueError, match="expected uint8"):
        writer.write(image, 0.0)


def test_close_without_a_picture_leaves_no_file(tmp_path):
    VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10).close()
    assert list(tmp_path.iterdir()) == []


def test_close_twice_and_write_after_close(tmp_path):
    writer = VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10)
    writer.write(number_image(0), 0.0)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.write(number_image(1), 0.1)
    assert not [thread for thread in threading.enumerate() if thread.name == "hazardlens-write"]


def test_folder_that_does_not_exist(tmp_path):
    with pytest.raises(OutputError, match="cannot be written"):
        VideoWriter(tmp_path / "no" / "o.mp4", size_wh=(64, 48), rate=10)


@pytest.mark.parametrize(
    "settings", [{"size_wh": (16_386, 16)}, {"size_wh": (20_000, 20_000)}, {"preset": "hasty"}], ids=str
)
def test_what_the_encoder_refuses_is_told_at_once(tmp_path, settings):
    with pytest.raises(OutputError, match=r"o\.mp4 cannot be written[^\0]*x264 refuses"):
        VideoWriter(tmp_path / "o.mp4", **{"size_wh": (64, 48), "rate": 10, **settings})


@pytest.mark.parametrize("broken", ["_encode.Encoder._add_video", "_encode.open_audio", "_audio.AudioTrack._copy"])
def test_a_failed_start_leaves_nothing_open(tmp_path, monkeypatch, broken):
    def fail(*_: object) -> NoReturn:
        raise av.ExternalError(1, "broken")

    source = draw_video(tmp_path / "in.mp4", audio="aac")
    monkeypatch.setattr(f"hazardlens.outputs.{broken}", fail)
    # The error holds on to all that was made, so what is closed by now was closed on purpose.
    with pytest.raises(OutputError, match="broken"):
        VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10, audio_from=source)
    links = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert {source, tmp_path / "o.mp4"}.isdisjoint(path.readlink() for path in links)


def test_a_file_that_cannot_even_be_closed_frees_the_caller(tmp_path, monkeypatch, caplog):
    def fail(*_: object) -> NoReturn:
        raise OSError(5, "broken")

    writer = VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10)
    gate, closed = threading.Event(), []
    real = writer._encoder.abandon
    monkeypatch.setattr(writer._encoder, "encode", lambda *_: (gate.wait(10), fail()))
    monkeypatch.setattr(writer._encoder, "abandon", lambda: (real(), closed.append(True), fail()))

    def produce() -> None:
        with contextlib.suppress(OutputError):
            for number in range(40):
                writer.write(number_image(0), number / 10)

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    while not writer._queue.full():
        time.sleep(0.005)
    gate.set()
    producer.join(10)
    assert not producer.is_alive()
    with contextlib.suppress(OutputError):
        writer.close()
    assert not writer._thread.is_alive()
    assert closed
    assert "could not be closed: broken" in caplog.text


def test_giving_up_closes_everything(tmp_path, monkeypatch):
    encoder = Encoder(
        tmp_path / "o.mp4",
        size_wh=(64, 48),
        rate=Fraction(10),
        audio_from=draw_video(tmp_path / "in.mp4", audio="aac"),
        crf=23,
        preset="veryfast",
    )
    real = encoder._out

    def fail() -> NoReturn:
        real.close()
        raise OSError(5, "broken")

    monkeypatch.setattr(encoder, "_out", mock.Mock(close=fail))
    monkeypatch.setattr(encoder, "_audio", mock.Mock(wraps=encoder._audio))
    with pytest.raises(OSError, match="broken"):
        encoder.abandon()
    assert encoder._sink.closed
    encoder._audio.close.assert_called_once()


def test_error_of_the_caller_finishes_the_file_and_stays(tmp_path):
    def fail() -> None:
        with VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10) as writer:
            writer.write(number_image(3), 0.0)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert [read_number(frame.image) for frame in read(tmp_path / "o.mp4")] == [3]


CHILD = """
import os, resource, signal, sys
import numpy as np
from hazardlens.errors import OutputError
from hazardlens.outputs.video import VideoWriter
from hazardlens.testing.video import number_image

target, source, limit = sys.argv[1], sys.argv[2] or None, int(sys.argv[3])
if limit:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
noise = np.random.default_rng(0)
writer = VideoWriter(target, size_wh=(320, 240), rate=10, audio_from=source)
try:
    for number in range(120):
        image = number_image(number, (320, 240))
        image[:24, 100:] = noise.integers(0, 255, (24, 220, 3), dtype=np.uint8)
        writer.write(image, 0.5 + number / 10)
    if not limit:
        while writer._queue.qsize() or writer._encoder._last < (0.5 + 11.9) * 90_000 - 1:
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    writer.close()
except OutputError as error:
    print(error)
    sys.exit(7)
"""


def playable(path: Path) -> list[int]:
    with VideoFile(path) as reader:
        frames = list(reader)
    assert [frame.time_s for frame in frames] == pytest.approx([frames[0].time_s + k / 10 for k in range(len(frames))])
    return [read_number(frame.image) for frame in frames]


@pytest.mark.parametrize("audio", [None, "aac", "flac"])
def test_killed_process_leaves_a_playable_file(tmp_path, audio):
    source = draw_video(tmp_path / "in.mkv", frames=200, audio=audio) if audio else ""
    done = subprocess.run([sys.executable, "-c", CHILD, tmp_path / "o.mp4", source, "0"], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    shown = playable(tmp_path / "o.mp4")
    assert shown == list(range(len(shown)))
    assert len(shown) >= 80  # of 120 at 10 per second: two pieces of two seconds are missing at most


@pytest.mark.parametrize("limit", [60_000, 150_000, 300_000])
@pytest.mark.parametrize("audio", [None, "aac"])
def test_full_disk_is_told_and_leaves_a_playable_file(tmp_path, audio, limit):
    source = draw_video(tmp_path / "in.mkv", frames=200, audio=audio) if audio else ""
    arguments = [sys.executable, "-c", CHILD, tmp_path / "o.mp4", source, str(limit)]
    done = subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (7, "")
    assert "o.mp4 could not be written further: File too large" in done.stdout
    assert "What was written before plays" in done.stdout
    shown = playable(tmp_path / "o.mp4")
    assert shown == list(range(len(shown)))
    assert len(shown) >= 10


def test_limit_reached_only_while_closing(tmp_path):
    full = tmp_path / "full.mp4"
    draw = [sys.executable, "-c", CHILD, full, "", str(10**9)]
    assert subprocess.run(draw, check=False, timeout=60).returncode == 0
    arguments = [sys.executable, "-c", CHILD, tmp_path / "o.mp4", "", str(full.stat().st_size - 500)]
    assert subprocess.run(arguments, check=False, capture_output=True, timeout=60).returncode == 7
    assert len(playable(tmp_path / "o.mp4")) >= 100


def test_queue_is_bounded_and_a_slow_encoder_holds_the_caller(tmp_path, monkeypatch):
    writer = VideoWriter(tmp_path / "o.mp4", size_wh=(64, 48), rate=10)
    gate = threading.Event()
    encode = writer._encoder.encode
    monkeypatch.setattr(writer._encoder, "encode", lambda *item: (gate.wait(10), encode(*item)))
    written: list[int] = []

    def produce() -> None:
        for number in range(40):
            writer.write(number_image(number), number / 10)
            written.append(number)

    producer = threading.Thread(target=produce)
    producer.start()
    time.sleep(0.3)
    held = len(written)
    gate.set()
    producer.join()
    writer.close()
    assert 2 <= held <= 10
    assert len(read(tmp_path / "o.mp4")) == 40


def test_closed_file_is_an_ordinary_mp4(tmp_path):
    copy(draw_video(tmp_path / "in.mp4", frames=80, audio="aac"), tmp_path / "out.mp4")
    data = (tmp_path / "out.mp4").read_bytes()
    boxes, at = [], 0
    while at < len(data):
        boxes.append(data[at + 4 : at + 8])
        size = int.from_bytes(data[at : at + 4], "big")
        at += size if size != 1 else int.from_bytes(data[at + 8 : at + 16], "big")
    assert b"moof" not in boxes
    assert boxes.count(b"moov") == 1
    assert len(data) == at
