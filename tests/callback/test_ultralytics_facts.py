"""What Ultralytics does that the plugin is built on; a test that fails here says that a new version does otherwise."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hazardlens.frames.file import VideoFile
from hazardlens.testing.video import draw_video, truncate
from tests.callback.test_live import Camera, taken, wait_until

AFTER = "on_predict_postprocess_end"


def test_callbacks_run_as_registered_and_the_tracker_comes_after_those_before_its_call(
    load: Callable, clip: Path
) -> None:
    model, heard = load(), []
    model.add_callback(AFTER, lambda p: heard.append((p.results[0].boxes.id, p.results[0])))
    model.add_callback(AFTER, lambda p: heard.append("second"))
    (result,) = taken(model.track(clip, stream=True), 1)
    (ids, seen), second = heard
    assert second == "second"
    assert ids is None, "the tracker has not run yet"
    assert result.boxes.id is not None
    assert result is not seen, "the tracker puts another object in its place"


def test_a_callback_put_last_when_the_call_begins_sees_the_ids(load: Callable, clip: Path) -> None:
    model, heard = load(), []

    def last(predictor: Any) -> None:
        heard.append(predictor.results[0].boxes.id)

    def move(predictor: Any) -> None:
        callbacks = predictor.callbacks[AFTER]
        callbacks.remove(last)
        callbacks.append(last)

    model.add_callback(AFTER, last)
    model.add_callback("on_predict_start", move)
    taken(model.track(clip, stream=True), 1)
    assert heard[0] is not None


def test_a_model_and_its_predictor_share_their_callbacks(load: Callable, clip: Path) -> None:
    model = load()
    taken(model.predict(clip, stream=True), 1)
    assert model.predictor.callbacks is model.callbacks


def test_results_are_drawn_after_the_event_and_have_their_speed_before_the_batch_ends(
    load: Callable, clip: Path, tmp_path: Path
) -> None:
    import cv2

    model, speeds = load(), []

    def blank(predictor: Any) -> None:
        speeds.append(predictor.results[0].speed["inference"])
        predictor.results[0].orig_img = np.zeros_like(predictor.results[0].orig_img)
        predictor.results[0] = predictor.results[0][:0]

    model.add_callback(AFTER, blank)
    model.add_callback("on_predict_batch_end", lambda p: speeds.append(p.results[0].speed["inference"]))
    model.predict(clip, save=True, project=str(tmp_path), name="out")
    capture = cv2.VideoCapture(str(tmp_path / "out" / "clip.avi"))
    assert capture.read()[1].max() < 40
    assert speeds[0] is None
    assert speeds[1] > 0


@pytest.mark.parametrize("change", [lambda r: r.cpu(), lambda r: r.numpy(), lambda r: r[:1], lambda r: r.new()])
def test_what_is_set_on_a_result_is_lost_by_its_copies(load: Callable, clip: Path, change: Callable) -> None:
    (result,) = taken(load().predict(clip, stream=True), 1)
    result.fields = 1
    assert not hasattr(change(result), "fields")


def test_an_exception_in_a_callback_ends_the_prediction(load: Callable, clip: Path) -> None:
    model = load()
    model.add_callback(AFTER, lambda predictor: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.predict(clip)


def test_leaving_the_loop_closes_the_loader_and_no_end_is_heard(load: Callable, clip: Path) -> None:
    from ultralytics.data.loaders import LoadImagesAndVideos

    class Watched(LoadImagesAndVideos):
        def close(self) -> None:
            heard.append("closed")
            super().close()

    model, heard = load(), []
    model.add_callback("on_predict_end", lambda predictor: heard.append("end"))
    model.add_callback("on_predict_start", lambda predictor: setattr(predictor.dataset, "__class__", Watched))
    run = model.predict(clip, stream=True)
    taken(run, 2)
    run.close()
    assert heard == ["closed"]
    model.predict(clip)
    assert heard == ["closed", "closed", "end"]


def test_the_class_of_a_loader_can_be_changed_when_the_call_begins(load: Callable, clip: Path) -> None:
    from ultralytics.data.loaders import LoadImagesAndVideos

    class Counting(LoadImagesAndVideos):
        def __next__(self) -> Any:
            numbers.append(len(numbers))
            return super().__next__()

    model, numbers = load(), []
    model.add_callback("on_predict_start", lambda predictor: setattr(predictor.dataset, "__class__", Counting))
    model.predict(clip)
    assert len(numbers) == 26, "25 frames, and the end"


def test_a_second_call_while_a_stream_is_open_waits_for_the_first(load: Callable, clip: Path) -> None:
    model, done = load(), threading.Event()
    run = model.predict(clip, stream=True)
    next(run)
    second = threading.Thread(target=lambda: (model.predict(clip), done.set()), daemon=True)
    second.start()
    assert not done.wait(1.0)
    run.close()
    assert done.wait(60)
    second.join(10)


def variable(folder: Path, quick: int, slow: int) -> Path:
    """A video whose header knows no number of frames, and whose rate is not even."""
    times = [k * 0.01 for k in range(quick)]
    times += [times[-1] + 0.5 * (k + 1) for k in range(slow)]
    return draw_video(folder / "variable.mkv", times_s=times, rate=10, size_wh=(96, 64))


def test_the_file_loader_stops_where_the_header_stops_counting(load: Callable, tmp_path: Path) -> None:
    path = draw_video(
        tmp_path / "v.mkv", times_s=[k * 0.02 for k in range(100)], rate=10, size_wh=(96, 64), codec="libx264"
    )
    with VideoFile(path) as video:
        there = len(list(video))
    assert there == 100
    assert len(load().predict(path)) < 60


def test_index_by_rate_is_not_the_time_of_a_variable_rate(load: Callable, tmp_path: Path) -> None:
    path = variable(tmp_path, quick=10, slow=10)
    with VideoFile(path) as video:
        times = [frame.time_s for frame in video]
    model = load()
    list(model.predict(path, stream=True))
    fps = model.predictor.dataset.fps
    assert max(abs(index / fps - time_s) for index, time_s in enumerate(times)) > 2


def test_a_file_that_was_cut_off_ends_without_a_word(load: Callable, tmp_path: Path, caplog: Any) -> None:
    path = draw_video(
        tmp_path / "cut.mp4",
        frames=40,
        rate=10,
        codec="mpeg4",
        size_wh=(96, 64),
        container_options={"movflags": "faststart"},
    )
    truncate(path, 0.8)
    results = list(load().predict(path, stream=True))
    assert 0 < len(results) < 40
    assert caplog.text == ""


def test_a_camera_that_drops_out_gives_black_frames_without_times(monkeypatch: pytest.MonkeyPatch) -> None:
    from ultralytics.data.loaders import LoadStreams

    shows = [np.full((64, 96, 3), 9, np.uint8)] * 2 + [None] * 3
    monkeypatch.setattr("ultralytics.data.loaders.cv2.VideoCapture", lambda address: Camera(shows))
    loader = LoadStreams("rtsp://user:secret@host/cam", buffer=True)
    try:
        names, _, said = next(iter(loader))
        wait_until(lambda: len(loader.imgs[0]) > 4)
        seen = [next(loader)[1][0].max() for _ in range(4)]
    finally:
        loader.close()
    assert seen == [9, 0, 0, 0]
    assert said == [""]
    assert "secret" in names[0], "the name that Ultralytics gives holds the password"


def test_one_stream_that_ends_ends_all(load: Callable, tmp_path: Path) -> None:
    clips = [draw_video(tmp_path / f"{n}.mp4", frames=n, rate=10, size_wh=(96, 64)) for n in (3, 400)]
    (tmp_path / "both.streams").write_text("\n".join(map(str, clips)))
    results = list(load().predict(str(tmp_path / "both.streams"), stream=True, stream_buffer=True))
    assert len(results) <= 6


def test_without_lap_ultralytics_would_install_it_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    import ultralytics.utils.checks

    from hazardlens.detect import ultralytics_setup  # noqa: F401 - sets it

    installed: list[Any] = []
    monkeypatch.setattr("ultralytics.utils.checks.subprocess.check_output", lambda *a, **k: installed.append(a))
    assert ultralytics.utils.checks.check_requirements("no-such-package-of-ours") is False
    assert installed == []
    source = Path(ultralytics.utils.checks.__file__).parents[1] / "trackers" / "utils" / "matching.py"
    assert 'check_requirements("lap' in source.read_text(encoding="utf-8")
