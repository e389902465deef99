"""Every calling form that Ultralytics has for pictures and videos, for every task with boxes, attached and not."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import hazardlens
from hazardlens.testing import FunctionVlm
from hazardlens.testing.video import draw_video, number_image
from tests.callback.sights import PIPELINE, answer

SIZE = (96, 64)
TASKS = ("detect", "segment", "pose", "obb")


def clip(folder: Path) -> Path:
    return draw_video(folder / "clip.mkv", frames=12, rate=10, size_wh=SIZE, codec="ffv1", pixel_format="bgr0")


def two_clips(folder: Path) -> Path:
    for name, count in (("a.mkv", 12), ("b.mkv", 5)):
        draw_video(folder / name, frames=count, rate=10, size_wh=SIZE, codec="ffv1", pixel_format="bgr0")
    return folder


def picture(folder: Path, number: int = 3) -> Path:
    path = folder / f"picture{number}.png"
    Image.fromarray(number_image(number, SIZE)).save(path)
    return path


def pictures(folder: Path) -> Path:
    for number in range(3):
        picture(folder, number)
    return folder


def mixed(folder: Path) -> Path:
    pictures(folder)
    clip(folder)
    return folder


def listed(folder: Path) -> Path:
    (folder / "list.txt").write_text("\n".join(str(picture(folder, number)) for number in (5, 6)))
    return folder / "list.txt"


def array(number: int) -> np.ndarray:
    return number_image(number, SIZE)


def tensor(count: int) -> torch.Tensor:
    pixels = np.stack([array(number) for number in range(count)])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


CLIP = [("clip.mkv", k, k / 10) for k in range(12)]
STILLS = [(f"picture{k}.png", 0, 0.0) for k in range(3)]


@dataclass(frozen=True)
class Form:
    """A way to call a model: the source, what else is said, and which frames come of it."""

    source: Callable[[Path], Any]
    frames: list[tuple[str, int, float]]
    arguments: tuple[tuple[str, Any], ...] = ()


FORMS = {
    "video": Form(clip, CLIP),
    "video_as_text": Form(lambda folder: str(clip(folder)), CLIP),
    "video_batch": Form(clip, CLIP, (("batch", 5),)),
    "video_stride": Form(clip, [("clip.mkv", k, k / 10) for k in (2, 5, 8, 11)], (("vid_stride", 3),)),
    "video_stride_batch": Form(clip, CLIP[1::2], (("vid_stride", 2), ("batch", 4))),
    "picture": Form(picture, [("picture3.png", 0, 0.0)]),
    "pictures_folder": Form(pictures, STILLS),
    "pictures_glob": Form(lambda folder: f"{pictures(folder)}/*.png", STILLS),
    "pictures_batch": Form(pictures, STILLS, (("batch", 2),)),
    "pictures_listed": Form(listed, [("picture5.png", 0, 0.0), ("picture6.png", 0, 0.0)]),
    "paths": Form(lambda folder: [picture(folder, k) for k in range(3)], STILLS),
    "videos_folder": Form(
        two_clips, [("a.mkv", k, k / 10) for k in range(12)] + [("b.mkv", k, k / 10) for k in range(5)]
    ),
    "mixed_folder": Form(mixed, STILLS + CLIP),
    "array": Form(lambda folder: array(3), [("image0.jpg", 0, 0.0)]),
    "grey_array": Form(lambda folder: array(3)[..., 0], [("image0.jpg", 0, 0.0)]),
    "arrays": Form(lambda folder: [array(3), array(4)], [("image0.jpg", 0, 0.0), ("image1.jpg", 0, 0.0)]),
    "pil": Form(lambda folder: Image.fromarray(array(3)), [("image0.jpg", 0, 0.0)]),
    "pil_of_a_file": Form(lambda folder: Image.open(picture(folder)), [("picture3.png", 0, 0.0)]),
    "tensor": Form(lambda folder: tensor(2), [("image0.jpg", 0, 0.0), ("image1.jpg", 0, 0.0)]),
}


def call(model: Any, form: Form, method: str, source: Any, *, stream: bool) -> list[Any]:
    run = {"predict": model.predict, "track": model.track, "call": model}[method]
    return list(run(source, stream=stream, **dict(form.arguments)))


def rows(result: Any) -> Any:
    return result.boxes if result.obb is None else result.obb


def marks(task: str, name: str, method: str, stream: bool) -> list[pytest.MarkDecorator]:
    """The usual tests run each form twice for one task, and a tracked video for each of the others."""
    if task != "detect":
        usual = (name, method, stream) == ("video", "track", True)
    else:
        usual = (method, stream) in (("predict", True), ("track", False))
    return [] if usual else [pytest.mark.full]


CASES = [
    pytest.param(
        *(task, name, method, stream),
        marks=marks(task, name, method, stream),
        id=f"{task}-{name}-{method}-{'stream' if stream else 'list'}",
    )
    for task in TASKS
    for name in FORMS
    for method in ("predict", "track", "call")
    for stream in (True, False)
]


@pytest.mark.parametrize(("task", "name", "method", "stream"), CASES)
def test_results_carry_the_record_of_their_frame(
    load: Callable, tmp_path: Path, task: str, name: str, method: str, stream: bool
) -> None:
    form = FORMS[name]
    source = form.source(tmp_path)
    bare = call(load(task), form, method, source, stream=stream)
    model = load(task)
    with hazardlens.attach(model, PIPELINE, vlm=FunctionVlm(answer)) as plugin:
        results = call(model, form, method, source, stream=stream)
    assert [(one.record.source, one.record.frame, one.record.time_s) for one in results] == form.frames
    for plain, result in zip(bare, results, strict=True):
        assert (rows(plain).data == rows(result).data).all(), "the plugin changes nothing that was found"
        assert (plain.path, plain.orig_shape) == (result.path, result.orig_shape)
        assert len(result.record.detections) == len(result)
        state = result.record.vlm
        assert state.status in ("ok", "carried")
        asked_about = result.detection_fields if state.status == "ok" else []
        assert all(fields is not None for fields in asked_about)
        assert len(result.summary()) == len(result)
        assert result.plot().shape == (64, 96, 3)
        assert result.speed["inference"] is not None
    assert any(len(result) for result in results)
    assert plugin.counts.failures == 0
    assert plugin.counts.frames == len(form.frames)


@pytest.mark.parametrize(("make", "count"), [(picture, 1), (clip, 12)])
@pytest.mark.parametrize("method", ["predict", "track"])
def test_an_exported_model_is_attached_as_well(
    shared_file: Callable[[str], Path], tmp_path: Path, make: Callable, count: int, method: str
) -> None:
    from ultralytics import YOLO

    model = YOLO(shared_file("real/yolo26n_int8.tflite"), task="detect")
    with hazardlens.attach(model, PIPELINE, vlm=FunctionVlm(answer)):
        results = getattr(model, method)(make(tmp_path), verbose=False, stream=False)
    assert [result.record.frame for result in results] == list(range(count))
    assert results[0].record.vlm.status == "ok"


def test_a_bus_and_its_passengers_have_their_verdicts(shared_file: Callable[[str], Path]) -> None:
    import ultralytics
    from ultralytics import YOLO

    model = YOLO(shared_file("real/yolo26n_int8.tflite"), task="detect")
    with hazardlens.attach(model, PIPELINE, vlm=FunctionVlm(answer)):
        (result,) = model(Path(ultralytics.__file__).parent / "assets" / "bus.jpg", verbose=False)
    assert sorted(row["name"] for row in result.summary()) == ["bus"] + ["person"] * 4
    by_id = {one.id: one.fields["severity"] for one in result.record.detections}
    assert by_id == {0: "low", 1: "medium", 2: "high", 3: "critical", 4: "low"}
    people = result[result.boxes.cls == 0]
    assert len(people.detection_fields) == 4
    assert all(fields is not None for fields in people.detection_fields)


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a server that gives a picture and a clip; what is fetched lands in a folder of its own."""
    clip(tmp_path)
    picture(tmp_path)
    (tmp_path / "fetched").mkdir()
    monkeypatch.chdir(tmp_path / "fetched")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    monkeypatch.setattr(SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(("name", "frames"), [("picture3.png", [("picture3.png", 0, 0.0)]), ("clip.mkv", CLIP)])
def test_an_address_is_fetched_by_ultralytics_and_its_records_name_the_file(
    load: Callable, address: str, name: str, frames: list
) -> None:
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=FunctionVlm(answer)):
        results = model.predict(f"{address}/{name}", stream=False)
    assert [(one.record.source, one.record.frame, one.record.time_s) for one in results] == frames


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::torch.jit.TracerWarning")
def test_an_exported_model_of_random_weights_is_attached_as_well(sighted: Callable, tmp_path: Path) -> None:
    import shutil

    from ultralytics import YOLO

    weights = shutil.copy(sighted("detect"), tmp_path / "small.pt")
    exported = YOLO(weights).export(format="torchscript", imgsz=64, verbose=False)
    model = YOLO(exported, task="detect")
    with hazardlens.attach(model, PIPELINE, vlm=FunctionVlm(answer)):
        results = model.track(clip(tmp_path), verbose=False, imgsz=64)
    assert [result.record.frame for result in results] == list(range(12))
    assert any(one.track_id is not None for result in results for one in result.record.detections)
