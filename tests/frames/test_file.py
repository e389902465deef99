from __future__ import annotations

import glob
import io
import logging
import os
import shlex
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from hazardlens.errors import VideoError
from hazardlens.frames.base import Frame
from hazardlens.frames.file import VideoFile
from hazardlens.testing.video import damage, draw_audio, draw_video, number_image, read_number, rotate_mp4, truncate
from tests.threads import left

FASTSTART = {"movflags": "faststart"}
VARIABLE = [0.0, 0.1, 0.5, 0.6, 1.7, 1.8, 1.9, 2.0, 2.1, 5.0]


def read(path: Path) -> tuple[VideoFile, list[Frame]]:
    reader = VideoFile(path)
    with reader:
        return reader, list(reader)


def numbers(frames: list[Frame]) -> list[int]:
    return [read_number(frame.image) for frame in frames]


def threads() -> list[str]:
    return left()


def open_files() -> set[Path]:
    return {link.resolve() for link in Path("/proc/self/fd").iterdir()}


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert threads() == []


@pytest.mark.parametrize("rate", [Fraction(30000, 1001), Fraction(25, 2), Fraction(1000, 33), Fraction(1), 10], ids=str)
@pytest.mark.parametrize("suffix", ["mp4", "mkv", "avi"])
def test_every_frame_at_its_time(tmp_path, rate, suffix):
    path = draw_video(tmp_path / f"a.{suffix}", frames=23, rate=rate, codec="mpeg4" if suffix == "avi" else "libx264")
    reader, frames = read(path)
    assert numbers(frames) == list(range(23))
    assert [frame.index for frame in frames] == list(range(23))
    slack = 0.00051 if suffix == "mkv" else 1e-9  # Matroska counts milliseconds
    assert [frame.time_s for frame in frames] == pytest.approx([k / float(rate) for k in range(23)], abs=slack)
    account = reader.account()
    assert (account.read, account.expected) == (23, None if suffix == "mkv" else 23)
    assert not account.ended_early
    assert float(reader.rate) == pytest.approx(float(rate), rel=0.01)


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [("mkv", "libx264"), ("mp4", "libx264"), ("ts", "libx264"), ("flv", "libx264"), ("webm", "libvpx-vp9")],
)
def test_variable_rate(tmp_path, suffix, codec):
    reader, frames = read(draw_video(tmp_path / f"v.{suffix}", times_s=VARIABLE, codec=codec))
    assert numbers(frames) == list(range(len(VARIABLE)))
    assert [frame.time_s for frame in frames] == pytest.approx(VARIABLE, abs=1e-6)
    assert not reader.account().ended_early


def test_dropped_frames_in_avi_are_no_alarm(tmp_path):
    path = tmp_path / "drops.avi"
    with av.open(str(path), "w") as out:
        video = out.add_stream("mpeg4", rate=10)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        for number, slot in enumerate([0, 1, 5, 6, 17]):
            frame = av.VideoFrame.from_ndarray(number_image(number), format="bgr24")
            frame.pts, frame.time_base = slot, Fraction(1, 10)
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
    reader, frames = read(path)
    assert [frame.time_s for frame in frames] == [0.0, 0.1, 0.5, 0.6, 1.7]
    assert (reader.account().expected, reader.account().reason) == (5, None)


def test_reordered_frames_in_avi_keep_their_times(tmp_path):
    reader, frames = read(draw_video(tmp_path / "b.avi", frames=20, gop=20))
    assert numbers(frames) == list(range(20))
    assert [frame.time_s for frame in frames] == [k / 10 for k in range(20)]
    assert not reader.account().ended_early


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_rotation_is_applied(tmp_path, degrees):
    path = draw_video(tmp_path / "r.mp4", frames=5)
    rotate_mp4(path, degrees)
    reader, frames = read(path)
    stored = [np.rot90(frame.image, degrees // 90) for frame in frames]  # turn back, counterclockwise
    assert [read_number(np.ascontiguousarray(image)) for image in stored] == list(range(5))
    assert reader.size_wh == frames[0].size_wh == ((48, 64) if degrees % 180 else (64, 48))
    assert all(frame.image.flags.c_contiguous and frame.image.flags.writeable for frame in frames)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation):
    upright = Image.fromarray(number_image(1234))
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # orientation: PIL's transpose method that stores it so
    stored = upright.transpose(undo[orientation]) if orientation in undo else upright
    exif = stored.getexif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "still.jpg", exif=exif, quality=95)
    reader, frames = read(tmp_path / "still.jpg")
    assert reader.is_still
    assert numbers(frames) == [1234]
    assert (frames[0].index, frames[0].time_s, reader.size_wh, reader.rate) == (0, 0.0, (64, 48), None)


@pytest.mark.parametrize("mode", ["RGBA", "L", "P", "1", "I;16"])
def test_odd_stills(tmp_path, mode):
    picture = Image.fromarray(number_image(77, (65, 47))).convert("I;16" if mode == "I;16" else mode)
    picture = picture.point(lambda value: value * 257) if mode == "I;16" else picture
    picture.save(tmp_path / "a%03d.png")
    reader, frames = read(tmp_path / "a%03d.png")
    assert (reader.size_wh, numbers(frames), frames[0].image.shape) == ((65, 47), [77], (47, 65, 3))
    assert (reader.account().expected, reader.account().reason) == (1, None)


@pytest.mark.parametrize(
    ("codec", "pixel_format", "size_wh"),
    [
        ("libx264", "yuv420p10le", (64, 48)),
        ("libx264", "gray", (64, 48)),
        ("libx264", "yuv444p", (65, 49)),
        ("ffv1", "bgra", (63, 47)),
    ],
)
def test_pixel_formats_and_odd_sizes(tmp_path, codec, pixel_format, size_wh):
    path = draw_video(tmp_path / "p.mkv", frames=3, codec=codec, pixel_format=pixel_format, size_wh=size_wh)
    reader, frames = read(path)
    assert (reader.size_wh, numbers(frames)) == (size_wh, [0, 1, 2])
    assert int(frames[0].image[0, 0].min()) > 240  # white is white, whatever the range


def test_size_that_changes(tmp_path):
    small = draw_video(tmp_path / "1.ts", frames=5).read_bytes()
    large = draw_video(tmp_path / "2.ts", frames=5, size_wh=(128, 96)).read_bytes()
    (tmp_path / "both.ts").write_bytes(small + large)
    _, frames = read(tmp_path / "both.ts")
    assert [frame.size_wh for frame in frames] == [(64, 48)] * 5 + [(128, 96)] * 5
    assert numbers(frames) == [*range(5), *range(5)]


@pytest.mark.parametrize(
    ("suffix", "codec", "container_options", "tells"),
    [
        ("mp4", "libx264", FASTSTART, True),
        ("avi", "mpeg4", {}, True),
        ("mkv", "libx264", {}, True),
        ("ts", "libx264", {}, False),  # a transport stream promises nothing
    ],
)
@pytest.mark.parametrize("audio", [None, "aac"])
def test_cut_off_file(tmp_path, caplog, suffix, codec, container_options, tells, audio):
    path = draw_video(
        tmp_path / f"cut.{suffix}", frames=100, codec=codec, container_options=container_options, audio=audio,
        size_wh=(320, 240),
    )  # fmt: skip
    truncate(path, 0.6)
    with caplog.at_level(logging.WARNING, "hazardlens"):
        reader, frames = read(path)
    account = reader.account()
    assert 20 < account.read == len(frames) < 90
    assert account.ended_early is tells is bool(caplog.records)
    if tells:
        assert account.reason is not None
        assert "the file ends" in account.reason or "reading stopped" in account.reason


def test_cut_off_matroska_with_only_a_container_duration(tmp_path):
    path = draw_video(tmp_path / "cut.mkv", frames=100, size_wh=(320, 240))
    path.write_bytes(path.read_bytes().replace(b"DURATION", b"UNKNOWN_"))
    assert read(path)[0].account().reason is None
    truncate(path, 0.6)
    assert "before the 10.000 s" in str(read(path)[0].account().reason)


def test_last_frame_shown_long_and_longer_audio_are_no_alarm(tmp_path):
    held = draw_video(tmp_path / "held.mkv", times_s=[0, 0.1, 3.0], audio="aac", audio_s=5.5)
    held.write_bytes(held.read_bytes().replace(b"DURATION", b"UNKNOWN_"))
    assert read(held)[0].account().reason is None


@pytest.mark.parametrize(
    ("suffix", "codec"), [("mp4", "libx264"), ("avi", "mpeg4"), ("mkv", "libx264"), ("ts", "libx264")]
)
def test_damaged_file_goes_on(tmp_path, suffix, codec):
    path = draw_video(
        tmp_path / f"d.{suffix}", frames=100, codec=codec, container_options=FASTSTART if suffix == "mp4" else {},
        size_wh=(320, 240),
    )  # fmt: skip
    damage(path, start=0.5, stop=0.6)
    reader, frames = read(path)
    account = reader.account()
    assert account.read == len(frames) > 60
    assert numbers(frames[:20]) == list(range(20))
    assert read_number(frames[-1].image) == 99
    if suffix == "mp4":
        assert account.unreadable > 0
        assert account.damaged + account.unreadable > 0
        assert account.ended_early
        assert "packets could not be decoded" in str(account.reason)
    if suffix == "avi":
        assert "or is damaged: " in str(account.reason)
    if suffix == "ts":
        assert account.damaged > 0
    assert account.damaged == sum(frame.damaged for frame in frames)
    if suffix == "mp4":
        whole = [frame for frame in frames if not frame.damaged]
        assert numbers(whole) == [round(frame.time_s * 10) for frame in whole], "what shows something else has a mark"


@pytest.mark.parametrize("frames", [1, 2])
def test_very_short(tmp_path, frames):
    reader, got = read(draw_video(tmp_path / "one.mp4", frames=frames))
    assert (numbers(got), got[0].time_s, reader.account().reason) == (list(range(frames)), 0.0, None)


def unusable(folder: Path, kind: str) -> Path:
    path = folder / "in.mp4"
    if kind == "folder":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("not a video\n" * 100)
    elif kind == "terminal text":
        path = folder / "in.txt"
        path.write_text("not a video\n" * 100)
    elif kind == "audio":
        draw_audio(path, codec="aac")
    elif kind == "noise":
        damage(draw_video(path, frames=20, container_options=FASTSTART), start=0.6, stop=1)
        data = path.read_bytes()
        start = data.index(b"mdat") + 4
        path.write_bytes(data[:start] + bytes(len(data) - start))
    return path


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "does not exist"),
        ("folder", "is a folder"),
        ("empty", "is empty"),
        ("text", "is not a video"),
        ("terminal text", "holds no video"),
        ("audio", "only audio"),
        ("noise", "no frame of"),
    ],
)
def test_what_is_no_video_is_refused(tmp_path, kind, message):
    path = unusable(tmp_path, kind)
    with pytest.raises(VideoError, match=message) as caught:
        VideoFile(path)
    assert str(path) in str(caught.value)
    assert caught.value.help


def test_of_a_folder_it_is_told_which_pattern_names_its_videos(tmp_path):
    folder = tmp_path / "my videos"
    folder.mkdir()
    clip = draw_video(folder / "a.mp4", frames=2)
    with pytest.raises(VideoError) as caught:
        VideoFile(folder)
    assert glob.glob(shlex.split(caught.value.help)[-1]) == [str(clip)]  # noqa: PTH207 - as the command line does


@pytest.fixture
def ordinary_user():
    """Root may read everything, so the test gives that up for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


@pytest.fixture
def secret_file(tmp_path):
    path = draw_video(tmp_path / "secret.mp4")
    path.chmod(0)
    return path


def test_file_without_permission(secret_file, ordinary_user):
    with pytest.raises(VideoError, match="cannot be read"):
        VideoFile(secret_file)


def with_cover(path: Path, *, video: bool) -> Path:
    cover = io.BytesIO()
    Image.new("RGB", (600, 600), "red").save(cover, "jpeg")
    source = draw_video(path.with_name("plain.mp4"), audio="aac")
    with av.open(str(source)) as plain, av.open(str(path), "w") as out:
        picture = out.add_mux_stream("mjpeg", width=600, height=600)
        picture.disposition = int(av.stream.Disposition.attached_pic)
        kept = [stream for stream in plain.streams if video or stream.type == "audio"]
        targets = {stream.index: out.add_stream_from_template(stream, opaque=True) for stream in kept}
        packet = av.Packet(cover.getvalue())
        packet.stream, packet.pts, packet.dts, packet.time_base = picture, 0, 0, Fraction(1, 90000)
        out.mux(packet)
        for packet in plain.demux(kept):
            if packet.dts is not None:
                packet.stream = targets[packet.stream_index]
                out.mux(packet)
    return path


def test_cover_picture_is_not_the_video(tmp_path):
    reader, frames = read(with_cover(tmp_path / "cover.mp4", video=True))
    assert (reader.size_wh, numbers(frames)) == ((64, 48), list(range(10)))
    with pytest.raises(VideoError, match="only audio"):
        VideoFile(with_cover(tmp_path / "song.mp4", video=False))


@pytest.mark.parametrize(
    "name", ["with space.mp4", 'it\'s "it".mp4', "現場 видео é.mp4", "a:b%03d[1]*?.mp4", "#1&2.mp4"]
)
def test_names(tmp_path, monkeypatch, name):
    draw_video(tmp_path / "plain.mp4", frames=3).rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    reader, frames = read(Path(name))
    assert (reader.name, frames[0].source, numbers(frames)) == (name, name, [0, 1, 2])


def test_start_offset_and_relation_to_audio(tmp_path):
    _, alone = read(draw_video(tmp_path / "alone.ts", frames=5, container_options={"output_ts_offset": "1.4"}))
    assert [frame.time_s for frame in alone] == [k / 10 for k in range(5)]
    path = draw_video(tmp_path / "late.mkv", times_s=[2.5, 2.6, 2.7], audio="libopus", audio_s=4.0)
    assert [frame.time_s for frame in read(path)[1]] == pytest.approx([2.5, 2.6, 2.7], abs=1e-9)


def leave_by_error(reader: VideoFile) -> None:
    for _ in reader:
        raise KeyError


@pytest.mark.parametrize("way", ["close", "break", "with", "never iterated", "raise"])
def test_leaving_midway_ends_the_thread(tmp_path, way):
    path = draw_video(tmp_path / "long.mp4", frames=200)
    reader = VideoFile(path, ahead=3)
    assert path.resolve() in open_files()
    if way == "close":
        frames = iter(reader)
        next(frames)
        assert threads() == ["hazardlens-read"]
        reader.close()
        assert list(frames) == []
    elif way == "break":
        for _ in reader:
            break
    elif way == "raise":
        with pytest.raises(KeyError), reader:
            leave_by_error(reader)
    elif way == "with":
        with reader:
            next(iter(reader))
    reader.close()
    reader.close()
    assert threads() == []
    assert not reader.account().ended_early
    assert path.resolve() not in open_files()
    with pytest.raises(RuntimeError, match="open it again"):
        iter(reader)


@pytest.mark.parametrize(("ahead", "size_wh", "most"), [(3, (64, 48), 3), (50, (64, 48), 50), (50, (1280, 720), 2)])
def test_look_ahead_is_bounded(tmp_path, monkeypatch, ahead, size_wh, most):
    monkeypatch.setattr("hazardlens.frames.file._MAX_BYTES_AHEAD", 100 * 64 * 48 * 3)
    path = draw_video(tmp_path / "slow.mp4", frames=70, size_wh=size_wh, options={"preset": "ultrafast"})
    with VideoFile(path, ahead=ahead) as reader:
        frames = iter(reader)
        next(frames)
        held = reader._ahead._held
        deadline = time.monotonic() + 5
        while len(held) < most and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.1)
        assert len(held) == most


def test_error_in_the_thread_reaches_the_consumer(tmp_path, monkeypatch):
    reader = VideoFile(draw_video(tmp_path / "a.mp4"))
    calls = iter(range(100))

    def convert(frame):
        if next(calls) == 3:
            raise MemoryError("no room")
        return np.zeros((48, 64, 3), np.uint8)

    monkeypatch.setattr(reader._decoder, "_upright", convert)
    got = []
    with pytest.raises(MemoryError, match="no room"):
        got.extend(frame.index for frame in reader)
    assert got == [0, 1, 2, 3]
    assert reader.account().read == 4


def test_package_does_not_import_av():
    code = "import hazardlens.frames, sys; sys.exit('av' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
