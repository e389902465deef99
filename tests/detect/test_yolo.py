"""The Ultralytics detector: random weights for what needs no content, real ones where they are at hand."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

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
    first = [ids(mixed, [frame]) for frame in a[:6]]
    other = [ids(mixed, [frame]) for frame in frames(yard, 6, "b")]
    second = [ids(mixed, [frame]) for frame in a[6:]]
    assert first + second == seen
    assert other == seen[:6]

    mixed.forget("a")
    assert ids(mixed, [a[0]]) == seen[0]


def ids(detector: YoloDetector, given: list[Frame]) -> tuple[int | None, ...]:
    (found,) = detector.detect(given)
    return found.track_id


def test_a_batch_gives_what_single_frames_give(real_weights: Path, yard: Path) -> None:
    given = frames(yard, 6, "a")
    single = YoloDetector(real_weights)
    one_by_one = [single.detect([frame])[0] for frame in given]
    batch = YoloDetector(real_weights)
    by_three = [found for at in (0, 3) for found in batch.detect(given[at : at + 3])]
    assert [found.track_id for found in by_three] == [found.track_id for found in one_by_one]
    for a, b in zip(by_three, one_by_one, strict=True):
        assert np.allclose(a.boxes_xyxy_px, b.boxes_xyxy_px, atol=1.0)


def test_weights_of_torch_find_nothing_at_random(random_yolo: Path) -> None:
    detector = YoloDetector(random_yolo, image_size_px=64)
    (found,) = detector.detect(frames(bus(), 1, "bus"))
    assert len(found) == 0
    assert detector.class_names[0] == "person"


def test_a_device_that_is_not_there_is_a_clear_error(random_yolo: Path) -> None:
    detector = YoloDetector(random_yolo, device="cuda:77")
    with pytest.raises(DetectionError, match=r"frame 0 of bus"):
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


def test_nothing_is_installed_behind_the_users_back() -> None:
    from ultralytics.utils import AUTOINSTALL

    assert AUTOINSTALL is False


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
    (followed,) = detector.detect(frames(bus(), 1, "bus"))
    (still,) = detector.detect(frames(bus(), 1, "bus"), follow=False)
    assert None not in followed.track_id
    assert still.track_id == (None,) * 5
    assert len(followed) < len(still)
