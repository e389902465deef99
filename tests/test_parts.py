"""What a run is made of is settled before weights are loaded, and nothing odd is taken for nothing."""

import json
from pathlib import Path

import pytest

from hazardlens.errors import PipelineError
from hazardlens.parts import assemble, settle
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeDetector, FakeVlm
from hazardlens.vlm import View


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"vlm": FakeVlm}, "vlm: expected a path, a name or an instance of hazardlens.Vlm, got the class FakeVlm"),
        ({"vlm": 5}, "got 5 of type int"),
        ({"detector": FakeDetector}, "got the class FakeDetector"),
        ({"detector": FakeVlm()}, "of type FakeVlm"),
        ({"vlm": FakeVlm(), "overrides": {"ask.every_s": None, "ask.new_track": []}}, "nothing would ever ask"),
        ({"schema": "plant"}, "use a pipeline that does"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict, message: str) -> None:
    with pytest.raises(PipelineError) as caught:
        settle("site", **given)
    assert message in str(caught.value)


LABELS = {"choices": ["none", "smoke", "fire"]}
ALERT = {"name": "severe", "when": {"severity": "high"}}


@pytest.mark.parametrize(
    ("pipeline", "unfit", "options", "overrides"),
    [
        ("site", "rules", "--set 'rules=[]'", {"rules": []}),
        ({"vlm": {"model": "m"}, "alerts": {"rules": [ALERT]}}, "alerts", "--set alerts=null", {"alerts": None}),
    ],
)
def test_rules_that_do_not_go_with_a_schema_are_the_cause_named_first_and_what_to_type_stands_last(
    pipeline: object, unfit: str, options: str, overrides: dict
) -> None:
    with pytest.raises(PipelineError) as caught:
        settle(pipeline, schema=LABELS)
    first, *_, last = str(caught.value).splitlines()
    assert first.startswith(f"pipeline: its {unfit} do not go with schema ")
    typed = json.dumps(overrides).replace("null", "None")
    assert last.endswith(f"{options} on the command line, overrides={typed} from Python.")
    assert settle(pipeline, schema=LABELS, overrides=overrides).schema.document


def test_rules_and_alerts_are_left_out_together_and_classes_come_first() -> None:
    pipeline = Pipeline.load("site").with_overrides({"alerts.rules": [ALERT]})
    with pytest.raises(PipelineError, match=r"^pipeline: its rules and alerts do not go with") as caught:
        pipeline.check(FieldSchema.load(LABELS), None)
    assert "--set 'rules=[]' --set alerts=null on" in caught.value.help
    with pytest.raises(PipelineError, match=r"^pipeline: \d+ problems\n  detector.classes: ") as caught:
        pipeline.with_overrides({"detector.classes": ["persn"]}).check(FieldSchema.load(LABELS), ["person"])
    assert caught.value.help.startswith("Name classes that the detector has")
    assert "--set 'rules=[]' --set alerts=null on" in caught.value.help


SERVER = {"model": "there", "base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize(
    ("setting", "value", "shown"),
    [
        ("top_k", 5, "5"),
        ("exact_confidence", True, "true"),
        ("answer_tries", 2, "2"),
        ("reasoning_tokens", 40, "40"),
        ("keep_reasoning", True, "true"),
    ],
)
def test_what_a_server_would_not_heed_is_refused_where_it_is_set(setting: str, value: object, shown: str) -> None:
    told = rf"\.{setting} is {shown}, which a model on a server is never told: there"
    for vlm, where in (
        ({**SERVER, setting: value}, "vlm"),
        ({"model": "here", "fallback": [{"model": "here"}, {**SERVER, setting: value}]}, r"vlm\.fallback\.1"),
    ):
        with pytest.raises(PipelineError, match=where + told) as caught:
            settle({"schema": "hazard", "vlm": vlm})
        assert "leave it out" in caught.value.help
    with pytest.raises(PipelineError, match=f"vlm{told}"):
        settle({"schema": "hazard", "vlm": SERVER}, overrides={f"vlm.{setting}": value})
    local = {"model": "here", setting: value, "fallback": [SERVER]}
    assert getattr(settle({"schema": "hazard", "vlm": local}).pipeline.vlm, setting) == value
    assert settle({"schema": "hazard", "vlm": {**SERVER, setting: value}}, vlm=FakeVlm()).vlm is not None


def test_parts_of_the_users_own_are_used() -> None:
    detector, vlm = FakeDetector(), FakeVlm()
    parts = assemble({"schema": "hazard"}, detector=detector, vlm=vlm)
    assert (parts.detector, parts.vlm) == (detector, vlm)
    assert (parts.setup["detector"], parts.setup["vlm"]) == ("fake-detector", "fake-vlm")


@pytest.mark.parametrize(
    ("settings", "view"),
    [
        ({}, View()),
        (
            {"longest_side_px": 320, "draw_ids": True, "crops_px": 48, "describe_fields": False},
            View(longest_side_px=320, draw_ids=True, crops_px=48, describe_fields=False),
        ),
    ],
)
def test_the_pipeline_says_how_a_local_vlm_is_shown_its_questions(
    random_vlm_folder: Path, settings: dict, view: View
) -> None:
    vlm = {"model": str(random_vlm_folder), "device": "cpu", **settings}
    parts = assemble({"schema": "hazard", "max_objects": 2, "vlm": vlm}, detector=FakeDetector())
    assert parts.vlm.view == view
    assert {**parts.setup["pipeline"]["vlm"], **settings} == parts.setup["pipeline"]["vlm"]


@pytest.mark.parametrize(
    ("detector", "vlm", "names"),
    [
        (False, False, ()),
        (True, False, ("fake-detector",)),
        (True, True, ("fake-detector", "fake-vlm")),
        (True, None, ("fake-detector",)),
    ],
)
def test_demo_models_are_warned_of_once_by_name(
    caplog: pytest.LogCaptureFixture, detector: bool, vlm: bool | None, names: tuple[str, ...]
) -> None:
    eyes, mind = FakeDetector(), FakeVlm()
    eyes.demo, mind.demo = detector, bool(vlm)
    parts = assemble({"schema": "hazard"}, detector=eyes, vlm="none" if vlm is None else mind)
    assert parts.demo_models == names
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    wanted = f"demo models that know drawn scenes only, not real footage: {', '.join(names)}"
    assert said == ([wanted] if names else [])


def test_more_objects_than_the_schema_allows_is_found_before_the_first_frame() -> None:
    item = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "kind": {"enum": ["a", "b"]}},
        "required": ["id", "kind"],
        "additionalProperties": False,
    }
    schema = {
        "type": "object",
        "properties": {"detections": {"type": "array", "items": item, "maxItems": 5}},
        "required": ["detections"],
        "additionalProperties": False,
    }
    parts = assemble({"schema": schema, "max_objects": 5}, detector=FakeDetector(), vlm=FakeVlm())
    assert parts.schema.has_detections
    with pytest.raises(ValueError, match="detections"):
        assemble({"schema": schema}, detector=FakeDetector(), vlm=FakeVlm())


@pytest.mark.parametrize("schema", [{"choices": ["none", "fire"]}, '{"choices": ["none", "fire"]}'])
def test_a_few_labels_are_a_schema_from_python_from_a_file_and_from_the_command_line(schema: dict | str) -> None:
    given = settle("site", schema=schema, detector=FakeDetector(), vlm=FakeVlm(), overrides={"rules": []})
    written = settle({"schema": schema}, detector=FakeDetector(), vlm=FakeVlm())
    for settled in (given, written):
        assert settled.schema.rank("label") == ["none", "fire"]
        assert settled.schema.ground(3).parse("fire") == {"label": "fire"}
