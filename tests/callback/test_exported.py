"""The bundled detector, exported by Ultralytics to other formats: attached, and in a pipeline."""

import importlib.util
import shutil
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

import hazardlens
from hazardlens.record import FrameRecord
from hazardlens.resources import data_path
from hazardlens.testing import FunctionVlm
from tests.callback.sights import PIPELINE, answer

WEIGHTS, CLIP = data_path("assets", "models/demo-yolo26n.pt"), data_path("assets", "demo/site.mp4")
NEEDS = {"onnx": ("onnx", "onnxruntime"), "openvino": ("openvino",)}
SIZE_PX, FRAMES = 320, 8


@pytest.fixture(scope="module", params=["onnx", "openvino"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ultralytics import YOLO

    missing = [name for name in NEEDS[request.param] if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install {' '.join(missing)}")
    weights = shutil.copy(WEIGHTS, tmp_path_factory.mktemp(request.param))
    return Path(YOLO(weights).export(format=request.param, imgsz=SIZE_PX))


def sure(records: Iterable[FrameRecord]) -> list[list[str]]:
    """Classes of what is seen beyond doubt: an export pads its pictures, so that doubtful objects come and go."""
    return [sorted(one.class_name for one in record.detections if one.confidence > 0.5) for record in records]


@pytest.mark.full
@pytest.mark.filterwarnings("default")  # the exporters' own
@pytest.mark.parametrize("method", ["predict", "track"])
def test_an_export_is_attached_and_sees_what_its_original_sees(exported: Path, method: str) -> None:
    from ultralytics import YOLO

    seen = []
    for weights in (WEIGHTS, exported):
        model = YOLO(weights, task="detect")
        with hazardlens.attach(model, PIPELINE, vlm=FunctionVlm(answer)):
            results = list(islice(getattr(model, method)(CLIP, imgsz=SIZE_PX, stream=True, verbose=False), FRAMES))
        assert [result.record.frame for result in results] == list(range(FRAMES))
        assert results[0].record.vlm.status == "ok"
        assert (method == "track") == any(one.track_id is not None for one in results[-1].record.detections)
        seen.append(sure(result.record for result in results))
    assert seen[0] == seen[1]
    assert any(seen[0])


@pytest.mark.full
@pytest.mark.filterwarnings("default")
def test_an_export_is_a_pipeline_s_detector(exported: Path) -> None:
    seen = []
    for weights in (WEIGHTS, exported):
        pipeline = {"detector": {"weights": str(weights), "image_size": SIZE_PX}, "schema": "hazard"}
        seen.append(sure(islice(hazardlens.process(CLIP, pipeline=pipeline, vlm=FunctionVlm(answer)), FRAMES)))
    assert seen[0] == seen[1]
    assert any(seen[0])
