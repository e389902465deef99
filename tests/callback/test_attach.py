"""Attached to a model: its own results carry the fields, and the records are those of `hazardlens process`."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import hazardlens
from hazardlens.errors import InputError, PipelineError, WeightsError
from hazardlens.frames.file import VideoFile
from hazardlens.record import FrameRecord
from hazardlens.resources import data_path
from hazardlens.testing import FunctionVlm
from hazardlens.testing.video import draw_video, read_number
from tests.callback.sights import PIPELINE, answer, vlm

RECORD = jsonschema.Draft202012Validator(json.loads(data_path("schemas", "record.json").read_text(encoding="utf-8")))


def plain(records: list[FrameRecord]) -> list[dict]:
    """Records as they are written, latencies aside; each is valid."""
    written = [json.loads(record.to_json()) for record in records]
    for record in written:
        assert list(RECORD.iter_errors(record)) == []
        record["vlm"]["latency_s"] = None
    return written


def processed(clip: Path, weights: Path, pipeline: dict, **more: Any) -> list[dict]:
    settings = {**pipeline, "detector": {"image_size": 64, **more.pop("detector", {})}}
    run = hazardlens.process(clip, pipeline=settings, detector=weights, vlm=FunctionVlm(answer), **more)
    return plain(list(run))


@pytest.mark.parametrize(
    "pipeline",
    [
        PIPELINE,
        {**PIPELINE, "ask": {"every_s": 0.4, "new_track": ["person"], "min_gap_s": 0.2}, "max_objects": 1},
        {
            **PIPELINE,
            "max_age_s": 0.5,
            "rules": [{"name": "up", "kind": "escalate", "when": {"severity": "low"}, "raise": {"severity": 1}}],
        },
    ],
    ids=["plain", "few_objects", "rules"],
)
def test_records_are_those_of_hazardlens_process(sighted: Callable, load: Callable, clip: Path, pipeline: dict) -> None:
    model = load()
    model.overrides.pop("max_det")
    with hazardlens.attach(model, pipeline, vlm=FunctionVlm(answer)):
        results = list(model.track(clip, stream=True, conf=0.25))
    ours = plain([result.record for result in results])
    assert ours == processed(clip, sighted("detect"), pipeline)
    assert len(ours) == 25
    assert {record["vlm"]["status"] for record in ours} <= {"ok", "carried", "stale"}
    assert any(one["track_id"] is not None for record in ours for one in record["detections"])


def first(records: Any, count: int) -> list[Any]:
    return [record for record, _ in zip(records, range(count), strict=False)]


@pytest.fixture(params=["real", "bundled"])
def footage(request: pytest.FixtureRequest) -> tuple[Path, Path, int]:
    """Weights, a clip, and the size that the network sees: real ones where they are at hand, and those shipped."""
    if request.param == "bundled":
        return data_path("assets", "models/demo-yolo26n.pt"), data_path("assets", "demo/site.mp4"), 320
    find = request.getfixturevalue("shared_file")
    return find("real/yolo26n_int8.tflite"), find("real/vtest.avi"), 640


def test_records_of_whole_scenes_are_those_of_hazardlens_process(footage: tuple[Path, Path, int]) -> None:
    from ultralytics import YOLO

    weights, clip, size_px = footage
    names = YOLO(weights, task="detect").names
    pipeline = {**PIPELINE, "ask": {"every_s": 0.5, "new_track": [names[0]]}, "max_objects": 3}
    settings = {**pipeline, "detector": {"image_size": size_px}}
    with hazardlens.process(clip, pipeline=settings, detector=weights, vlm=FunctionVlm(answer)) as run:
        theirs = plain(first(run, 30))
    model = YOLO(weights, task="detect")
    with hazardlens.attach(model, pipeline, vlm=FunctionVlm(answer)):
        results = first(model.track(clip, stream=True, conf=0.25, imgsz=size_px, verbose=False), 30)
    assert plain([result.record for result in results]) == theirs
    assert sum(len(record["detections"]) for record in theirs) > 30
    assert {result._told.demo for result in results} == {weights.name.startswith("demo")}


def test_an_asked_frame_has_its_own_answer_when_it_is_yielded(load: Callable, clip: Path) -> None:
    model = load()
    hazardlens.attach(model, PIPELINE, vlm=vlm(latency_s=0.02))
    for index, result in enumerate(model.track(clip, stream=True)):
        asked = index // 10 * 10
        state = result.record.vlm
        assert (result.record.source, result.record.frame) == ("clip.mkv", index)
        assert result.record.time_s == pytest.approx(index / 10)
        assert (state.status, state.frame) == ("ok" if index == asked else "carried", asked)
        assert result.fields["notes"] == f"The picture shows {asked}."
        assert read_number(result.orig_img) == index
    assert index == 24


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("persist", [True, False])
def test_ids_are_there_whichever_comes_first(load: Callable, clip: Path, before: bool, persist: bool) -> None:
    model = load()
    if not before:
        model.track(clip, persist=persist, stream=False)
    hazardlens.attach(model, PIPELINE, vlm=vlm())
    seen = 0
    for result in model.track(clip, persist=persist, stream=True):
        ids = result.boxes.id.int().tolist() if len(result) else []
        seen += len(ids)
        assert [one.track_id for one in result.record.detections] == ids
        assert [one.box_xyxy[0] for one in result.record.detections] == pytest.approx(
            result.boxes.xyxy[:, 0].tolist(), abs=0.01
        )
    assert seen > 20


def test_an_object_keeps_its_fields_by_its_track(load: Callable, clip: Path) -> None:
    model = load()
    hazardlens.attach(model, {**PIPELINE, "max_objects": 1}, vlm=vlm())
    results = model.track(clip)
    judged = next(one.track_id for one in results[0].record.detections if one.fields)
    for result in results[:10]:
        ids = result.boxes.id.int().tolist() if len(result) else []
        for track, fields in zip(ids, result.detection_fields, strict=True):
            assert (fields is not None) == (track == judged)


def test_what_is_saved_and_said_speaks_of_it(load: Callable, clip: Path, tmp_path: Path, caplog: Any) -> None:
    import cv2

    pictures = {}
    for attached in (False, True):
        model = load()
        if attached:
            hazardlens.attach(model, PIPELINE, vlm=vlm())
        model.track(clip, save=True, save_txt=True, project=str(tmp_path), name=str(attached), verbose=attached)
        capture = cv2.VideoCapture(str(tmp_path / str(attached) / "clip.avi"))
        pictures[attached] = capture.read()[1]
        capture.release()
    assert pictures[True].shape == pictures[False].shape
    assert abs(pictures[True].astype(int) - pictures[False]).max() > 60
    assert len(list((tmp_path / "True" / "labels").iterdir())) == len(list((tmp_path / "False" / "labels").iterdir()))


def test_the_log_line_of_each_frame_tells_the_verdict(load: Callable, clip: Path) -> None:
    from ultralytics.utils import LOGGER

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda entry: lines.append(entry.getMessage())
    model = load()
    hazardlens.attach(model, PIPELINE, vlm=vlm())
    LOGGER.addHandler(handler)
    try:
        model.track(clip, verbose=True)
    finally:
        LOGGER.removeHandler(handler)
    told = [line for line in lines if "frame " in line and "clip.mkv" in line]
    assert len(told) == 25
    assert all("hazard spill, severity low" in line for line in told)
    assert "0.1 s old" in told[1]


def test_after_detaching_the_model_is_as_it_was(load: Callable, clip: Path) -> None:
    from ultralytics.engine.results import Results

    model = load()
    events = ("on_predict_start", "on_predict_batch_start", "on_predict_postprocess_end")
    callbacks = {event: list(model.callbacks[event]) for event in events}
    plugin = hazardlens.attach(model, PIPELINE, vlm=vlm())
    assert type(model.predict(clip)[0]) is hazardlens.FieldResults
    plugin.close()
    plugin.close()
    assert type(model.predict(clip)[0]) is Results
    assert {event: model.callbacks[event] for event in events} == callbacks


def test_without_a_vlm_there_are_records_without_fields(load: Callable, clip: Path) -> None:
    model = load()
    with hazardlens.attach(model, "site", vlm="none") as plugin:
        results = model.predict(clip)
    assert {(result.record.vlm.status, result.record.vlm.reason) for result in results} == {("skipped", "no VLM")}
    assert (plugin.counts.frames, plugin.counts.asked) == (25, 0)


def test_a_detector_of_the_pipeline_is_not_loaded(load: Callable, clip: Path) -> None:
    model = load()
    pipeline = {**PIPELINE, "detector": {"weights": "no-such.pt", "confidence": 0.99}}
    with hazardlens.attach(model, pipeline, vlm=vlm()):
        assert all(len(result) for result in model.predict(clip))


@pytest.mark.parametrize("task", ["classify"])
def test_a_task_without_boxes_is_refused(load: Callable, task: str) -> None:
    with pytest.raises(InputError, match="'classify' model, whose results have no boxes"):
        hazardlens.attach(load(task), PIPELINE, vlm=vlm())


@pytest.mark.parametrize("odd", ["yolo26n.pt", None, object()])
def test_what_is_no_model_is_refused(odd: object) -> None:
    with pytest.raises(InputError, match="expected an Ultralytics model, got"):
        hazardlens.attach(odd, PIPELINE, vlm=vlm())


def test_a_model_whose_format_cannot_be_run_is_said_at_once(tmp_path: Path) -> None:
    from ultralytics import YOLO

    (tmp_path / "broken.tflite").write_bytes(b"no model")
    with pytest.raises(WeightsError, match="the model's classes cannot be read"):
        hazardlens.attach(YOLO(tmp_path / "broken.tflite", task="detect"), PIPELINE, vlm=vlm())


def test_what_does_not_fit_is_said_at_once_and_nothing_is_attached(load: Callable) -> None:
    model = load()
    before = {event: list(those) for event, those in model.callbacks.items()}
    with pytest.raises(PipelineError, match="unicorn"):
        hazardlens.attach(model, {**PIPELINE, "ask": {"new_track": ["unicorn"]}}, vlm=vlm())
    with pytest.raises(PipelineError, match="nothing"):
        hazardlens.attach(model, {**PIPELINE, "ask": {"every_s": None}}, vlm=vlm())
    assert dict(model.callbacks) == before


def test_a_demo_model_is_warned_of_and_marks_what_is_drawn(load: Callable, clip: Path, caplog: Any) -> None:
    demo = vlm()
    demo.demo = True
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=demo):
        result = next(iter(model.predict(clip, stream=True)))
    assert "demo models that know drawn scenes only, not real footage: fake-vlm" in caplog.text
    assert result._told.demo


def test_times_of_a_variable_rate_are_those_of_the_container(load: Callable, tmp_path: Path) -> None:
    times = [0.0, 0.02, 0.5, 0.52, 1.5, 1.6, 1.7, 3.0]
    clip = draw_video(tmp_path / "clip.mp4", times_s=times, size_wh=(96, 64))
    with VideoFile(clip) as video:
        expected = [frame.time_s for frame in video]
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()):
        results = model.predict(clip)
    assert [result.record.time_s for result in results] == expected
    assert [result.record.frame for result in results if result.record.vlm.status == "ok"] == [0, 4, 7]
    assert replace(results[0].record.vlm, latency_s=None).raw is not None
