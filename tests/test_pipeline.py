import copy

import pytest
import yaml

from hazardlens.errors import PipelineError
from hazardlens.pipeline import Pipeline, parse_duration
from hazardlens.resources import shipped_names
from hazardlens.schema import FieldSchema

# The COCO names that the shipped pipelines use, and a few more that are near to them.
COCO = {"person", "bicycle", "car", "motorcycle", "bus", "train", "truck", "dog", "backpack", "handbag", "suitcase"}
COCO |= {"bottle", "chair", "cell phone", "traffic light", "stop sign", "fire hydrant"}

HAZARD = {"enum": ["none", "fall", "fire"]}
SEVERITY = {"enum": ["none", "low", "high"]}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "notes": {"type": "string", "maxLength": 100},
        "hazard": HAZARD,
        "severity": SEVERITY,
        "tags": {"type": "array", "items": {"enum": ["smoke", "night"]}, "maxItems": 2},
        "detections": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "severity": SEVERITY,
                    "helmet": {"enum": ["on", "off"]},
                },
                "required": ["id", "severity", "helmet"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["notes", "hazard", "severity", "tags", "detections"],
    "additionalProperties": False,
}
SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]
THRESHOLD = {"name": "sure", "kind": "threshold", "min_confidence": 0.4, "set": {"severity": "none"}}
ESCALATE = {"name": "up", "kind": "escalate", "when": {"hazard": "fall"}, "raise": {"severity": 1}}
CONTRADICTION = {"name": "empty", "kind": "contradiction", "classes": ["person"], "when": {"hazard": ["fall"]}}
WORST = {"name": "worst", "kind": "worst_object", "fields": ["severity"]}


def _rules(*rules, **more):
    return {"rules": list(rules), **more}


def _message(call):
    with pytest.raises(PipelineError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(2, 2.0), (0.5, 0.5), ("1s", 1.0), ("500ms", 0.5), ("2m", 120.0), (" 1.5 S ", 1.5), ("3", 3.0), ("1h", 3600.0)],
)
def test_parse_duration(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "fast", "1 week", "-1s", "1s2", "s", None, True, [1], "1e3", "nan"])
def test_parse_duration_refuses(text):
    with pytest.raises(ValueError, match="expected seconds"):
        parse_duration(text)


def test_defaults():
    pipeline = Pipeline.load({})
    assert pipeline.vlm is None
    assert (pipeline.detector.weights, pipeline.detector.confidence, pipeline.detector.track) == (
        "yolo26n.pt",
        0.25,
        True,
    )
    assert (pipeline.field_schema, pipeline.max_objects, pipeline.max_age_s) == ("hazard", 20, 5.0)
    assert (pipeline.video, pipeline.rules, pipeline.ask.min_gap_s) == (True, (), 0.0)
    assert Pipeline.load(pipeline) is pipeline


def test_the_spellings_of_a_file():
    pipeline = Pipeline.load(
        {
            "detector": {"device": 0},
            "vlm": {"model": "m", "timeout_s": "30s"},
            "zones": {"gate": {"polygon": SQUARE, "classes": ["person"]}},
            "ask": {"every_s": "500ms", "zones": ["gate", {"zone": "gate", "classes": ["car"]}]},
            "max_age_s": "1m",
            "rules": [ESCALATE],
        }
    )
    assert pipeline.detector.device == "0"
    assert (pipeline.ask.every_s, pipeline.max_age_s, pipeline.vlm.timeout_s) == (0.5, 60.0, 30.0)
    assert [(item.zone, item.classes) for item in pipeline.ask.zones] == [("gate", None), ("gate", ("car",))]
    assert pipeline.rules[0].when == {"hazard": ("fall",)}
    assert pipeline.rules[0].raise_steps == {"severity": 1}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ({"detectr": {}}, ["unknown key 'detectr'", "did you mean 'detector'"]),
        ({"detector": {"wieghts": "x"}}, ["detector: unknown key 'wieghts'", "did you mean 'weights'"]),
        ({"field_schema": "hazard"}, ["unknown key 'field_schema'"]),
        ({"detector": {"confidence": 3}}, ["detector.confidence: expected less than or equal to 1, found 3"]),
        ({"detector": {"confidence": float("nan")}}, ["detector.confidence: expected "]),
        ({"detector": {"classes": []}}, ["detector.classes: expected a value or a list of values", "found []"]),
        ({"detector": "yolo"}, ["detector: expected a mapping, found 'yolo'"]),
        ({"detector": {"batch": 0}, "video": "maybe"}, ["2 problems", "\n  detector.batch: ", "\n  video: "]),
        ({"vlm": {}}, ["vlm.model: is required"]),
        ({"vlm": {"model": "m", "dtype": "fp16"}}, ["vlm.dtype: expected 'auto', 'float32', 'bfloat16' or 'float16'"]),
        ({"vlm": {"model": "m", "quantization": 8}}, ["vlm.quantization: expected '8bit' or '4bit', found 8"]),
        ({"vlm": {"model": "m", "crops_px": 15}}, ["vlm.crops_px: expected greater than or equal to 16, found 15"]),
        ({"vlm": {"model": "m", "view": {"crops_px": 32}}}, ["vlm: unknown key 'view'"]),
        ({"vlm": {"model": "m"}, "ask": {"every_s": None}}, ["ask: nothing would ever ask the VLM"]),
        ({"ask": {"every_s": "soon"}}, ["ask.every_s: expected seconds", "found 'soon'"]),
        ({"ask": {"every_s": 0}}, ["ask.every_s: expected greater than 0, found 0"]),
        ({"ask": {"every_s": -1}}, ["ask.every_s: expected greater than"]),
        ({"max_age_s": float("inf")}, ["max_age_s: expected a finite number"]),
        ({"schema": 5}, ["schema: expected a schema's name, a path or a JSON Schema, found 5"]),
        ({"ask": {"zones": ["gte"]}, "zones": {"gate": {"polygon": SQUARE}}}, ["ask.zones.0: no zone 'gte'", "'gate'"]),
        ({"ask": {"new_track": ["person"]}, "detector": {"track": False}}, ["ask.new_track: needs detector.track"]),
        ({"zones": {"g": {"polygon": SQUARE[:2]}}}, ["zones.g.polygon: expected at least 3 items"]),
        ({"zones": {"g": {"polygon": [[0, 0], [2, 0], [1, 1]]}}}, ["zones.g.polygon.1.0: expected less than"]),
        ({"zones": {"g": {"polygon": [[0, 0], [0.5, 0.5], [1, 1]]}}}, ["zones.g: polygon encloses no area"]),
        ({"zones": {"g": {"polygon": [[0, 0], [1, 1], [1, 0], [0, 1]]}}}, ["zones.g: polygon encloses no area"]),
        (_rules({"name": "a"}), ["rules.0: kind is required, one of threshold"]),
        (_rules({"name": "a", "kind": "treshold"}), ["rules.0: expected kind to be one of threshold", "'treshold'"]),
        (_rules({**THRESHOLD, "name": ""}), ["rules.0.name: expected at least 1 character"]),
        (_rules(THRESHOLD, {**WORST, "name": "sure"}), ["rules.1.name: 'sure' is taken"]),
        (_rules({"name": "a", "kind": "threshold", "min_confidence": 0.5}), ["rules.0.set: is required"]),
        (
            _rules({"name": "a", "kind": "threshold", "set": {"x": 1}}),
            ["rules.0: expected min_confidence or min_height"],
        ),
        (_rules({**THRESHOLD, "set": {}}), ["rules.0.set: expected at least 1 item"]),
        (_rules({**ESCALATE, "raise": {}}), ["rules.0: expected at least one of set, raise and lower"]),
        (
            _rules({**ESCALATE, "raise": {"severity": 0}}),
            ["rules.0.raise.severity: expected greater than or equal to 1"],
        ),
        (_rules({**ESCALATE, "set": {"severity": "low"}}), ["rules.0: a field may stand in only one"]),
        (_rules({**ESCALATE, "when": {}}), ["rules.0: expected at least one condition"]),
        (_rules({**ESCALATE, "when": {"hazard": []}}), ["rules.0.when.hazard: expected a value or a list of values"]),
        (_rules({**ESCALATE, "zone": "nowhere"}), ["rules.0.zone: no zone 'nowhere', known: none"]),
        (_rules({**CONTRADICTION, "words": ["x"]}), ["rules.0: expected either when or words"]),
        (_rules({**CONTRADICTION, "when": {}}), ["rules.0: expected either when or words"]),
        (_rules({**WORST, "by": "hazard"}), ["rules.0: expected 'hazard'", "among fields"]),
    ],
)
def test_malformed(content, parts):
    message = _message(lambda: Pipeline.load(content))
    assert message.startswith("pipeline: ")
    for part in parts:
        assert part in message
    assert "problems" in message or "\n" not in message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("max_objects: 5\nmax_objects: 6\n", "key 'max_objects' stands twice"),
        ("detector: {batch: 1, batch: 2}\n", "key 'batch' stands twice"),
        ("detector: [\n", "not readable as YAML"),
        ("context: 2026-13-45\n", "not readable as YAML"),
        ("- a\n", "expected a mapping"),
        ("", "expected a mapping, found None"),
        ("!!python/object:os.system {}\n", "not readable as YAML"),
        ("max_objects: many\n", "max_objects: expected a valid integer"),
    ],
)
def test_a_malformed_file_is_named(tmp_path, text, part):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    message = _message(lambda: Pipeline.load(path))
    assert message.startswith(f"{path}: ")
    assert part in message


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"context: \xff\xfe\n")
    assert "not readable as YAML" in _message(lambda: Pipeline.load(path))


def test_a_missing_file_names_shipped_pipelines():
    message = _message(lambda: Pipeline.load("sit"))
    assert message.startswith("sit: no such file or shipped pipeline")
    assert "did you mean 'site'?" in message


def test_paths_are_relative_to_the_file_where_they_exist_there(tmp_path):
    (tmp_path / "model").mkdir()
    for name in ("my.json", "w.pt", "bot.yaml"):
        (tmp_path / name).write_text("{}")
    content = {
        "schema": "my.json",
        "detector": {"weights": "w.pt", "tracker": "bot.yaml"},
        "vlm": {"model": "model"},
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    here = Pipeline.load(path)
    assert (here.field_schema, here.detector.weights) == (str(tmp_path / "my.json"), str(tmp_path / "w.pt"))
    assert (here.detector.tracker, here.vlm.model) == (str(tmp_path / "bot.yaml"), str(tmp_path / "model"))
    content = {"schema": "hazard", "detector": {"weights": "yolo26n.pt"}, "vlm": {"model": "org/model"}}
    path.write_text(yaml.safe_dump(content))
    named = Pipeline.load(str(path))
    assert (named.field_schema, named.detector.weights, named.vlm.model) == ("hazard", "yolo26n.pt", "org/model")


@pytest.mark.parametrize("name", ["site", "plant", "traffic", "retail"])
def test_shipped_pipelines_fit_their_schema_and_coco(name):
    pipeline = Pipeline.load(name)
    pipeline.check(FieldSchema.load(pipeline.field_schema), COCO)
    assert pipeline.vlm is not None
    assert pipeline.context
    assert pipeline.rules
    assert pipeline.with_overrides({}) == pipeline


def test_all_shipped_pipelines_are_tested():
    assert set(shipped_names("pipelines")) == {"site", "plant", "traffic", "retail", "demo"}


def test_the_demo_pipeline_asks_as_its_models_were_trained_and_leaves_answers_as_they_are():
    pipeline = Pipeline.load("demo")
    pipeline.check(FieldSchema.load(pipeline.field_schema), ["worker", "forklift", "truck", "ladder", "cone", "pallet"])
    assert (pipeline.detector.weights, pipeline.vlm.model) == ("demo-yolo26n.pt", "demo-vlm")
    assert (pipeline.vlm.longest_side_px, pipeline.vlm.crops_px, pipeline.vlm.describe_fields) == (512, 64, False)
    assert (pipeline.ask.every_s, pipeline.ask.new_track, pipeline.ask.min_gap_s) == (0.5, ("worker",), 0.25)
    assert (pipeline.context, pipeline.rules, pipeline.video) == ("", (), True)
    assert pipeline.with_overrides({}) == pipeline


def test_the_default_pipeline():
    pipeline = Pipeline.load("site")
    assert pipeline.detector.weights == "yolo26n.pt"
    assert pipeline.vlm.model == "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"
    assert (pipeline.field_schema, pipeline.ask.every_s, pipeline.ask.min_gap_s) == ("hazard", 1.0, 0.5)
    assert pipeline.ask.new_track == ("person",)


def test_null_is_no_rules_and_no_alerts():
    alerts = {"rules": [{"name": "severe", "when": {"severity": "high"}}]}
    pipeline = Pipeline.load({"vlm": {"model": "m"}, "rules": [ESCALATE], "alerts": alerts})
    assert (len(pipeline.rules), len(pipeline.alerts.rules)) == (1, 1)
    for bare in (
        pipeline.with_overrides({"rules": None, "alerts": None}),
        Pipeline.load({"rules": None, "alerts": None}),
    ):
        assert (bare.rules, bare.alerts) == ((), Pipeline().alerts)


def test_overrides():
    content = {"vlm": {"model": "m", "device": "cpu"}, "rules": [THRESHOLD, ESCALATE], "detector": {"classes": ["car"]}}
    pipeline = Pipeline.load(content)
    changed = pipeline.with_overrides({"detector.weights": "x.pt", "ask.every_s": "2s", "schema": "traffic"})
    assert (changed.detector.weights, changed.ask.every_s, changed.field_schema) == ("x.pt", 2.0, "traffic")
    assert (changed.detector.classes, changed.vlm, changed.rules) == (("car",), pipeline.vlm, pipeline.rules)
    assert pipeline.detector.weights == "yolo26n.pt"
    assert pipeline.with_overrides({"vlm": None}).vlm is None
    assert Pipeline.load({}).with_overrides({"vlm.model": "m"}).vlm.model == "m"
    assert Pipeline.load({}).with_overrides({"schema": SCHEMA}).field_schema == SCHEMA


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        ({"detector.wieghts": "x"}, "detector: unknown key 'wieghts', did you mean 'weights'"),
        ({"detektor.weights": "x"}, "unknown key 'detektor'"),
        ({"detector.batch": "two"}, "detector.batch: expected a valid integer"),
        ({"vlm.device": "cpu"}, "vlm.model: is required"),
        ({"schema.title": "x"}, "schema.title: schema cannot be overridden in part"),
        ({"rules.0.name": "x"}, "rules.0.name: rules cannot be overridden in part"),
    ],
)
def test_overrides_are_checked(overrides, part):
    message = _message(lambda: Pipeline.load({}).with_overrides(overrides))
    assert part in message


@pytest.mark.parametrize("crops_px", [None, 16, 96])
def test_how_questions_are_shown_survives_a_round_trip(tmp_path, crops_px):
    shown = {"longest_side_px": 640, "draw_ids": True, "crops_px": crops_px, "describe_fields": False}
    pipeline = Pipeline.load({"vlm": {"model": "m", **shown}})
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(pipeline.model_dump(mode="json", by_alias=True)))
    again = Pipeline.load(path)
    assert again == pipeline
    assert {name: getattr(again.vlm, name) for name in shown} == shown
    assert pipeline.with_overrides({"vlm.crops_px": 64}).vlm.crops_px == 64


def test_how_questions_are_shown_unless_a_file_says_otherwise():
    vlm = Pipeline.load({"vlm": {"model": "m"}}).vlm
    assert (vlm.longest_side_px, vlm.draw_ids, vlm.crops_px, vlm.describe_fields) == (1024, False, None, True)


def test_a_pipeline_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Pipeline.load({}).max_objects = 3


@pytest.mark.parametrize(
    "content",
    [
        _rules(THRESHOLD, ESCALATE, CONTRADICTION, WORST),
        _rules({**ESCALATE, "when": {"tags": ["smoke"]}}),
        _rules({**ESCALATE, "scope": "object", "when": {"helmet": "off"}}),
        _rules({**CONTRADICTION, "when": {}, "words": ["worker"]}),
        {"detector": {"classes": ["person"]}, "ask": {"new_track": ["person"]}},
    ],
)
@pytest.mark.parametrize("classes", [COCO, sorted(COCO), None])
def test_check_passes(content, classes):
    Pipeline.load(content).check(FieldSchema.load(copy.deepcopy(SCHEMA)), classes)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (
            {"detector": {"classes": ["persn"]}},
            ["detector.classes: the detector has no class 'persn', did you mean 'person'"],
        ),
        ({"ask": {"new_track": ["worker"]}}, ["ask.new_track: the detector has no class 'worker'"]),
        (
            {"zones": {"g": {"polygon": SQUARE, "classes": ["lorry"]}}},
            ["zones.g.classes: the detector has no class 'lorry'"],
        ),
        (
            {"zones": {"g": {"polygon": SQUARE}}, "ask": {"zones": [{"zone": "g", "classes": ["trck"]}]}},
            ["ask.zones.0.classes: the detector has no class 'trck', did you mean 'truck'"],
        ),
        (_rules({**CONTRADICTION, "classes": ["persons"]}), ["rules.0.classes: ", "did you mean 'person'"]),
        (
            _rules(CONTRADICTION, detector={"classes": ["car"]}),
            ["rules.0.classes: 'person' is not among detector.classes (car)"],
        ),
        (_rules({**THRESHOLD, "set": {"hazard": "none"}}), ["rules.0 (sure): the schema has no object field 'hazard'"]),
        (_rules({**THRESHOLD, "set": {"id": 3}}), ["rules.0 (sure): the schema has no object field 'id'"]),
        (
            _rules({**THRESHOLD, "set": {"severity": "nil"}}),
            ["field 'severity' cannot be 'nil': expected one of 'none', 'low', 'high'"],
        ),
        (_rules({**ESCALATE, "when": {"hazrd": "fall"}}), ["no frame field 'hazrd', did you mean 'hazard'"]),
        (_rules({**ESCALATE, "when": {"hazard": ["fall", "flood"]}}), ["field 'hazard' is never 'flood'"]),
        (_rules({**ESCALATE, "when": {"tags": "fog"}}), ["field 'tags' is never 'fog'"]),
        (_rules({**ESCALATE, "raise": {"notes": 1}}), ["field 'notes' has no rank"]),
        (_rules({**ESCALATE, "scope": "object"}), ["no object field 'hazard'"]),
        (_rules({**ESCALATE, "set": {"detections": []}}), ["no frame field 'detections'"]),
        (_rules({**CONTRADICTION, "when": {}, "words": ["x"], "text_field": "note"}), ["did you mean 'notes'"]),
        (_rules({**WORST, "fields": ["severity", "hazard"]}), ["no object field 'hazard'"]),
        (_rules({**WORST, "fields": ["severity", "helmet"]}), ["no frame field 'helmet'"]),
        (
            _rules({**ESCALATE, "when": {"hazard": "flood"}, "classes": ["prson"]}),
            ["2 problems", "'prson'", "'flood'"],
        ),
    ],
)
def test_check_finds(content, parts):
    schema = FieldSchema.load(copy.deepcopy(SCHEMA))
    message = _message(lambda: Pipeline.load(content).check(schema, COCO))
    for part in parts:
        assert part in message


def test_ranks_of_frame_and_object_may_differ_unless_they_are_compared():
    schema = copy.deepcopy(SCHEMA)
    schema["properties"]["severity"] = {"enum": ["calm", "low", "high"]}
    loaded = FieldSchema.load(schema)
    for scope in ("frame", "object"):
        Pipeline.load(_rules({**ESCALATE, "scope": scope, "when": {"severity": "low"}})).check(loaded, COCO)
    worst = {"name": "w", "kind": "worst_object", "by": "severity", "fields": ["severity"]}
    message = _message(lambda: Pipeline.load(_rules(worst)).check(loaded, COCO))
    assert "field 'severity' has other values for the frame than for objects" in message


def test_check_without_known_classes_still_holds_rules_to_detector_classes():
    pipeline = Pipeline.load(_rules(CONTRADICTION, detector={"classes": ["persons"]}))
    message = _message(lambda: pipeline.check(FieldSchema.load(copy.deepcopy(SCHEMA)), None))
    assert "rules.0.classes: 'person' is not among detector.classes (persons)" in message
