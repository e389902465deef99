"""The Ultralytics detector: random weights for what needs no content, real ones where they are at hand."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hazardlens.detect.base import Detections
from hazardlens.detect.yolo import YoloDetector, class_ids
from hazardlens.errors import DetectionError, PipelineError, WeightsError
from hazardlens.frames.base import Frame
from hazardlens.frames.file import VideoFile


def bus() -> Path:
    import ultralytics

    return Path(ultralytics.__file__).parent / "assets" / "bus.jpg"


def frames(path: Path, count: int, source: str) -> list[Frame]:
    with VideoFile(path, name=source) as video:
        return [frame for frame, _ in zip(video, range(count), strict=False)]


@pytest.fixture(scope="session")
def real_weights(shared_file: Callable[[str], Path]) -> Path:
    return shared_file("real/yolo26n_int8.tflite")


@pytest.fixture(scope="session")
def yard(shared_file: Callable[[str], Path]) -> Path:
    return shared_file("real/vtest.avi")


def test_a_picture_with_a_bus_and_its_passengers(real_weights: Path) -> None:
    detector = YoloDetector(real_weights, track=False)
    (found,) = detector.detect(frames(bus(), 1, "bus"))
    names = sorted(found.class_name(k) for k in range(len(found)))
    assert names == ["bus", "person", "person", "person", "person"]
    assert found.track_id == (None,) * 5
    assert found.boxes_xyxy_px.shape == (5, 4)
    assert (found.boxes_xyxy_px[:, 2:] > found.boxes_xyxy_px[:, :2]).all()
    assert ((found.confidence > 0.25) & (found.confidence <= 1)).all()


def test_only_the_chosen_classes_are_found(real_weights: Path) -> None:
    detector = YoloDetector(real_weights, classes=["bus"], track=False)
    (found,) = detector.detect(frames(bus(), 1, "bus"))
    assert [found.class_name(k) for k in range(len(found))] == ["bus"]


def test_tracks_last_and_each_source_has_its_own(real_weights: Path, yard: Path) -> None:
    a = frames(yard, 12, "a")
    alone = [ids(YoloDetector(real_weights), [frame]) for frame in a[:1]]
    detector = YoloDetector(real_weights)
    seen = [ids(detector, [frame]) for frame in a]
    assert seen[0] == alone[0]
    assert len(set.intersection(*map(set, seen[2:]))) >= 4

    mixed = YoloDetector(real_weights)
    both = [(ids(mixed, [frame], "a"), ids(mixed, [frame], "b")) for frame in a]
    assert [first for first, _ in both] == seen
    assert [second for _, second in both] == seen

    mixed.forget("a")
    assert ids(mixed, [a[0]], "a") == seen[0]


def ids(detector: YoloDetector, given: list[Frame], stream: str = "a") -> tuple[int | None, ...]:
    (found,) = detector.detect(given, stream=stream)
    return found.track_id


def test_a_batch_gives_what_single_frames_give(real_weights: Path, yard: Path) -> None:
    given = frames(yard, 6, "a")
    single = YoloDetector(real_weights)
    one_by_one = [single.detect([frame], stream=1)[0] for frame in given]
    batch = YoloDetector(real_weights)
    by_three = [found for at in (0, 3) for found in batch.detect(given[at : at + 3], stream=1)]
    assert [found.track_id for found in by_three] == [found.track_id for found in one_by_one]
    for a, b in zip(by_three, one_by_one, strict=True):
        assert np.allclose(a.boxes_xyxy_px, b.boxes_xyxy_px, atol=1.0)


def test_weights_of_torch_find_nothing_at_random(random_yolo: Path) -> None:
    detector = YoloDetector(random_yolo, image_size_px=64)
    (found,) = detector.detect(frames(bus(), 1, "bus"))
    assert len(found) == 0
    assert detector.class_names[0] == "person"


def test_a_checkpoint_with_the_mark_is_a_demo_model_and_so_is_a_copy_of_it(
    random_yolo: Path, tmp_path: Path, marked: Path
) -> None:
    detector = YoloDetector(marked, image_size_px=64)
    detector._model.save(tmp_path / "copy.pt")
    assert detector.demo
    assert YoloDetector(tmp_path / "copy.pt", image_size_px=64).demo
    assert not YoloDetector(random_yolo, image_size_px=64).demo


@pytest.fixture
def marked(random_yolo: Path, tmp_path: Path) -> Path:
    """The detector of random weights, with the mark of a demo model."""
    checkpoint = torch.load(random_yolo, weights_only=False)
    torch.save({**checkpoint, "hazardlens_demo": True}, tmp_path / "marked.pt")
    return tmp_path / "marked.pt"


def test_a_format_that_carries_no_mark_is_no_demo_model(real_weights: Path) -> None:
    assert not YoloDetector(real_weights).demo


def test_a_shipped_model_is_loaded_by_name_before_one_that_is_published(
    marked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr("hazardlens.resources.shipped_model", lambda name: marked if name == "yolo26n.pt" else None)
    detector = YoloDetector("yolo26n.pt", image_size_px=64)
    assert (detector.name, detector.demo) == ("yolo26n.pt", True)
    assert not list(Path.cwd().iterdir()), "nothing was fetched"


def test_weights_that_cannot_be_fetched_say_what_was_tried_and_what_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("Download failure. Environment may be offline.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ultralytics.utils.downloads.safe_download", offline)
    with pytest.raises(WeightsError, match=r"yolo26s\.pt cannot be loaded: .*offline") as caught:
        YoloDetector("yolo26s.pt")
    for part in (
        "this folder",
        "shipped models",
        "downloads",
        "path of a model file",
        "hazardlens demo",
    ):
        assert part in caught.value.help


@pytest.mark.parametrize(
    "settings",
    [{"device": "cuda:77"}, {"tracker": "no-such-tracker.yaml"}, {"tracker": "half.yaml"}, {"tracker": "odd.yaml"}],
)
def test_settings_that_cannot_work_are_found_before_the_first_frame(
    random_yolo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half.yaml").write_text("tracker_type: bytetrack\n")
    (tmp_path / "odd.yaml").write_text("tracker_type: nonesuch\n")
    with pytest.raises(WeightsError, match=r"random\.pt cannot run") as caught:
        YoloDetector(random_yolo, image_size_px=64, **settings)
    assert "tracker" in caught.value.help


def test_a_detector_that_fails_names_the_frame(random_yolo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    detector = YoloDetector(random_yolo, image_size_px=64)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(detector._model, "predict", fail)
    with pytest.raises(DetectionError, match=r"frame 0 of bus: out of memory"):
        detector.detect(frames(bus(), 1, "bus"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.pt", None, "no such file"),
        ("text.pt", b"not weights", "cannot be loaded"),
        ("empty.pt", b"", "cannot be loaded"),
        ("text.tflite", b"not weights", "cannot be loaded"),
        ("weights.xyz", b"not weights", "cannot be loaded"),
    ],
)
def test_weights_that_are_none_are_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(WeightsError, match=message) as caught:
        YoloDetector(tmp_path / name)
    assert name in str(caught.value)
    assert caught.value.help


def test_a_model_without_boxes_is_refused(tmp_path: Path) -> None:
    from ultralytics import YOLO

    YOLO("yolo26n-cls.yaml").save(tmp_path / "classify.pt")
    with pytest.raises(WeightsError, match="classify"):
        YoloDetector(tmp_path / "classify.pt")


def test_a_class_that_the_model_does_not_have_is_an_error_with_the_nearest_names() -> None:
    names = {0: "person", 1: "car", 2: "truck"}
    assert class_ids(names, None, model="m") is None
    assert class_ids(names, ["truck", "person"], model="m") == [2, 0]
    with pytest.raises(PipelineError, match="no class 'persn'") as caught:
        class_ids(names, ["persn"], model="m")
    assert "person" in caught.value.help
    with pytest.raises(PipelineError) as caught:
        class_ids(names, ["xyz"], model="m")
    assert "person, car, truck" in caught.value.help


FIRST_IMPORT = """
import sys
{before}
import hazardlens.console
hazardlens.console.quiet_libraries()
import hazardlens.detect.yolo
import ultralytics.utils.checks, ultralytics.utils.events
print(ultralytics.utils.AUTOINSTALL, ultralytics.utils.checks.AUTOINSTALL, ultralytics.utils.events.events.enabled)
"""


@pytest.mark.parametrize("before", ["", "import ultralytics"])
def test_nothing_is_installed_or_sent_behind_the_users_back(before: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("YOLO_")}
    run = subprocess.run(
        [sys.executable, "-c", FIRST_IMPORT.format(before=before)], env=environment, capture_output=True, text=True
    )
    assert run.stdout.split() == ["False"] * 3, run.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"boxes_xyxy_px": np.zeros((3, 4), np.float32)},
        {"class_id": np.zeros(1, np.int64)},
        {"track_id": (1,)},
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(change: dict) -> None:
    good = {
        "boxes_xyxy_px": np.zeros((2, 4), np.float32),
        "confidence": np.zeros(2, np.float32),
        "class_id": np.zeros(2, np.int64),
        "track_id": (None, None),
        "class_names": {0: "person"},
    }
    assert len(Detections(**good)) == 2
    with pytest.raises(ValueError, match="expected"):
        Detections(**{**good, **change})


def test_a_still_picture_is_not_tracked_and_keeps_what_a_tracker_would_leave_out(real_weights: Path) -> None:
    detector = YoloDetector(real_weights)
    (followed,) = detector.detect(frames(bus(), 1, "bus"), stream="bus")
    (still,) = detector.detect(frames(bus(), 1, "bus"))
    assert None not in followed.track_id
    assert still.track_id == (None,) * 5
    assert len(followed) < len(still)
