"""The pipeline file: what runs, when the VLM is asked, and the rules; typed, unknown keys refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import jsonschema
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hazardlens.errors import PipelineError
from hazardlens.resources import data_path, shipped_names
from hazardlens.schema import FieldSchema

_UNIT_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)
_KINDS = ("threshold", "escalate", "contradiction", "worst_object")


def parse_duration(value: object) -> float:
    """Turn a length of time such as `2`, `"1s"`, `"500ms"`, `"2m"` or `"1h"` into seconds.

    Raises:
        ValueError: If it is not a length of time.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _UNIT_S:
        raise ValueError(f"expected seconds or a length of time such as '1s', '500ms' or '2m', found {value!r}")
    return round(float(match[1]) * _UNIT_S[match[2].lower()], 9)


def _hint(name: str, known: Iterable[str]) -> str:
    """Advice after an unknown name: close matches, else everything that is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(item) for item in close) + "?"
    return "known: " + (", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "none")


def _values(value: object) -> object:
    """Allow one scalar for a list of them; nothing nested."""
    items = value if isinstance(value, list | tuple) else [value]
    if not items or any(isinstance(item, list | tuple | dict) for item in items):
        raise ValueError(f"expected a value or a list of values, found {value!r}")
    return tuple(items)


def _schema_source(value: object) -> object:
    if not isinstance(value, str | Path | Mapping):
        raise ValueError(f"expected a schema's name, a path or a JSON Schema, found {value!r}")
    return dict(value) if isinstance(value, Mapping) else str(value)


def _zone_reference(value: object) -> object:
    return {"zone": value} if isinstance(value, str) else value


Duration = Annotated[float, BeforeValidator(parse_duration), Field(ge=0, allow_inf_nan=False)]
"""A length of time in seconds; a file may write `1s`, `500ms`, `2m`."""
Classes = Annotated[tuple[str, ...], Field(min_length=1)]
"""Names of detector classes."""
Fraction = Annotated[float, Field(ge=0, le=1)]
"""A share, 0..1."""
When = dict[str, Annotated[tuple[Any, ...], BeforeValidator(_values)]]
"""Field → the values that match; all fields must match."""
Values = Annotated[dict[str, Any], Field(min_length=1)]
"""Field → the value it gets."""
Steps = dict[str, Annotated[int, Field(ge=1)]]
"""Field → steps in the rank order of its enum."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: object) -> object:
        """Name close matches of a mistyped key, which pydantic's own message does not."""
        known = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = [key for key in value if key not in known] if isinstance(value, Mapping) else []
        if unknown:
            raise ValueError("; ".join(f"unknown key {key!r}, {_hint(str(key), known)}" for key in unknown))
        return value


class DetectorSettings(_Part):
    """The YOLO detector and its tracker.

    Attributes:
        weights: Name or path of the weights.
        classes: Names of the classes to keep, or None for all.
        confidence: Least confidence, 0..1.
        image_size: Side in pixels to which frames are scaled.
        device: As Ultralytics takes it, or None for its choice.
        batch: Frames per call.
        track: Whether detections get track ids.
        tracker: A tracker's name or YAML path, or None for Ultralytics' default.
    """

    weights: str = "yolo26n.pt"
    classes: Classes | None = None
    confidence: Fraction = 0.25
    image_size: int = Field(default=640, ge=32)
    device: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    batch: int = Field(default=1, ge=1)
    track: bool = True
    tracker: str | None = None


class VlmSettings(_Part):
    """The vision-language model.

    Attributes:
        model: Name on the Hugging Face hub, or a folder.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, ...
        dtype: Number format of the weights.
        quantization: None, `8bit` or `4bit`.
        max_new_tokens: Token budget of an answer; None for as long as the schema's longest answer needs.
        temperature: 0 for the likeliest token, else the sampling temperature.
        top_k: Sample among this many tokens, or None.
        top_p: Sample among the likeliest tokens of this total probability, or None.
        seed: Seed of the sampling.
        longest_side_px: Pictures are scaled down to this longest side.
        draw_ids: Whether ids are drawn on the picture.
        trust_remote_code: Whether code that comes with the model may run.
        revision: Revision on the hub, or None.
        timeout_s: Wall time that one answer may take, or None for no limit.
    """

    model: Annotated[str, Field(min_length=1)]
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Literal["8bit", "4bit"] | None = None
    max_new_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int = Field(default=0, ge=0)
    longest_side_px: int = Field(default=1024, ge=32)
    draw_ids: bool = False
    trust_remote_code: bool = False
    revision: str | None = None
    timeout_s: Annotated[Duration, Field(gt=0)] | None = None


class Zone(_Part):
    """A part of the picture.

    Attributes:
        polygon: Corners (x, y) in fractions of the frame's width and height, in order.
        classes: Classes that count in it, or None for all.
    """

    polygon: Annotated[tuple[tuple[Fraction, Fraction], ...], Field(min_length=3)]
    classes: Classes | None = None

    @model_validator(mode="after")
    def _area(self) -> Self:
        following = (*self.polygon[1:], self.polygon[0])
        doubled = sum(x * v - u * y for (x, y), (u, v) in zip(self.polygon, following, strict=True))
        if abs(doubled) < 1e-9:
            raise ValueError("polygon encloses no area; list its corners in order around the zone")
        return self


class AskZone(_Part):
    """Ask when something enters a zone; a file may write just the zone's name.

    Attributes:
        zone: Name of the zone.
        classes: Classes that trigger, beside the zone's own choice, or None.
    """

    zone: str
    classes: Classes | None = None


class AskSettings(_Part):
    """When the VLM is asked, in video time.

    Attributes:
        every_s: Seconds between questions, or None for no regular ones.
        new_track: Classes whose new tracks are asked about.
        zones: Zones whose entering is asked about.
        min_gap_s: Least seconds between two questions.
    """

    every_s: Annotated[Duration, Field(gt=0)] | None = 1.0
    new_track: tuple[str, ...] = ()
    zones: tuple[Annotated[AskZone, BeforeValidator(_zone_reference)], ...] = ()
    min_gap_s: Duration = 0.0


class _Rule(_Part):
    name: Annotated[str, Field(min_length=1)]


class ThresholdRule(_Rule):
    """Sets fields of objects that the detector is unsure of or that are too small to judge.

    Attributes:
        name: Name of the rule.
        kind: `threshold`.
        classes: Classes it is about, or None for all.
        min_confidence: It acts below this detector confidence.
        min_height_px: It acts on boxes less high than this, in pixels of the frame.
        set_fields: Field → value; `set` in a file.
    """

    kind: Literal["threshold"]
    classes: Classes | None = None
    min_confidence: Fraction | None = None
    min_height_px: float | None = Field(default=None, gt=0)
    set_fields: Values = Field(alias="set")

    @model_validator(mode="after")
    def _acts(self) -> Self:
        if self.min_confidence is None and self.min_height_px is None:
            raise ValueError("expected min_confidence or min_height_px")
        return self


class EscalateRule(_Rule):
    """Changes fields when the answer and the detections fulfil its conditions.

    Attributes:
        name: Name of the rule.
        kind: `escalate`.
        when: Field → values; all must match.
        classes: Classes that are counted (scope `frame`) or judged (scope `object`), or None for all.
        zone: Only detections whose foot point is in this zone, or None for anywhere.
        min_objects: Least number of such detections in the frame; None for 1 where classes or zone are named.
        scope: Whether fields of the frame or of each object are matched and changed.
        set_fields: Field → value; `set` in a file.
        raise_steps: Field → steps up in rank; `raise` in a file.
        lower_steps: Field → steps down in rank; `lower` in a file.
    """

    kind: Literal["escalate"]
    when: When = {}
    classes: Classes | None = None
    zone: str | None = None
    min_objects: int | None = Field(default=None, ge=1)
    scope: Literal["frame", "object"] = "frame"
    set_fields: dict[str, Any] = Field(default={}, alias="set")
    raise_steps: Steps = Field(default={}, alias="raise")
    lower_steps: Steps = Field(default={}, alias="lower")

    @property
    def changed(self) -> list[str]:
        """Fields that it changes."""
        return [*self.set_fields, *self.raise_steps, *self.lower_steps]

    @model_validator(mode="after")
    def _acts(self) -> Self:
        if not self.changed:
            raise ValueError("expected at least one of set, raise and lower")
        if len(set(self.changed)) < len(self.changed):
            raise ValueError("a field may stand in only one of set, raise and lower")
        if not self.when and self.classes is None and self.zone is None and self.min_objects is None:
            raise ValueError("expected at least one condition: when, classes, zone or min_objects")
        return self


class ContradictionRule(_Rule):
    """Records a statement about the frame that needs a detection which is not there.

    Attributes:
        name: Name of the rule.
        kind: `contradiction`.
        classes: At least one detection of these classes is needed.
        when: The statement as field → values; all must match.
        words: The statement as words in a text; any of them.
        text_field: The text that is searched for `words`.
        set_fields: Field → value where it is contradicted; `set` in a file.
    """

    kind: Literal["contradiction"]
    classes: Classes
    when: When = {}
    words: tuple[Annotated[str, Field(pattern=r"\S")], ...] = ()
    text_field: str = "notes"
    set_fields: dict[str, Any] = Field(default={}, alias="set")

    @model_validator(mode="after")
    def _states(self) -> Self:
        if bool(self.when) == bool(self.words):
            raise ValueError("expected either when or words")
        return self


class WorstObjectRule(_Rule):
    """Raises fields of the frame to those of its worst object.

    Attributes:
        name: Name of the rule.
        kind: `worst_object`.
        by: The field whose rank says which object is worst and whether it is worse than the frame.
        fields_taken: Fields that the frame takes over; `fields` in a file.
    """

    kind: Literal["worst_object"]
    by: str = "severity"
    fields_taken: Annotated[tuple[str, ...], Field(min_length=1)] = Field(alias="fields")

    @model_validator(mode="after")
    def _ranked(self) -> Self:
        if self.by not in self.fields_taken:
            raise ValueError(f"expected {self.by!r}, the field it ranks by, among fields")
        return self


Rule = ThresholdRule | EscalateRule | ContradictionRule | WorstObjectRule
"""One rule of a pipeline."""


class Pipeline(_Part):
    """A whole pipeline file.

    Attributes:
        detector: The detector and tracker.
        vlm: The VLM, or None for detections only.
        field_schema: Name, path or JSON Schema of the fields; `schema` in a file.
        context: What this site is and what matters there, in the user's words.
        max_objects: Most detections asked about in one question.
        max_age_s: Video time for which an answer is carried on.
        ask: When the VLM is asked.
        zones: Parts of the picture by name.
        rules: What is done to an answer, in order.
        video: Whether an annotated video is written.
        video_crf: Its quality, 0 (lossless) to 51.
    """

    detector: DetectorSettings = DetectorSettings()
    vlm: VlmSettings | None = None
    field_schema: Annotated[str | dict[str, Any], BeforeValidator(_schema_source)] = Field(
        default="hazard", alias="schema"
    )
    context: str = ""
    max_objects: int = Field(default=20, ge=0)
    max_age_s: Duration = 5.0
    ask: AskSettings = AskSettings()
    zones: dict[str, Zone] = {}
    rules: tuple[Annotated[Rule, Field(discriminator="kind")], ...] = ()
    video: bool = True
    video_crf: int = Field(default=23, ge=0, le=51)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [*_name_problems(self), *_ask_problems(self)]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @classmethod
    def load(cls, source: str | Path | Mapping[str, Any] | Pipeline) -> Pipeline:
        """Read a pipeline.

        Args:
            source: A shipped pipeline's name such as `site`, a path to a YAML file, its content, or a pipeline. In
                a file, paths to schema, weights, tracker and model may be relative to that file.

        Raises:
            PipelineError: If it does not exist or is malformed; the message names each place.
        """
        if isinstance(source, Pipeline):
            return source
        if isinstance(source, Mapping):
            return _validated(source, origin="pipeline")
        path = _find(source)
        content = _read(path)
        return _validated(_beside(content, path.parent) if isinstance(content, dict) else content, origin=str(source))

    def with_overrides(self, overrides: Mapping[str, Any]) -> Pipeline:
        """This pipeline with some settings changed.

        Args:
            overrides: Dotted place, as spelled in a file, → value; for instance `{"detector.weights": "x.pt"}`.

        Raises:
            PipelineError: If a place does not exist or a value does not fit there.
        """
        content = self.model_dump(by_alias=True)
        for place, value in overrides.items():
            _assign(content, place, value)
        return _validated(content, origin="pipeline with overrides")

    def check(self, schema: FieldSchema, class_names: Collection[str] | None) -> None:
        """Hold rules, zones and classes against the schema and the detector.

        Args:
            schema: The pipeline's field schema, loaded.
            class_names: All classes that the detector's model knows, or None if they are not known.

        Raises:
            PipelineError: If anything is named that does not exist, or a value does not fit; all problems are listed.
        """
        problems = list(_class_problems(self, class_names))
        for index, rule in enumerate(self.rules):
            problems += [f"rules.{index} ({rule.name}): {problem}" for problem in _rule_problems(rule, schema)]
        if problems:
            raise PipelineError(_listed("pipeline", problems))


def _name_problems(pipeline: Pipeline) -> Iterator[str]:
    names = [rule.name for rule in pipeline.rules]
    for index, rule in enumerate(pipeline.rules):
        if rule.name in names[:index]:
            yield f"rules.{index}.name: {rule.name!r} is taken by an earlier rule; names must differ"
    places = [(f"ask.zones.{index}", item.zone) for index, item in enumerate(pipeline.ask.zones)]
    places += [
        (f"rules.{index}.zone", rule.zone)
        for index, rule in enumerate(pipeline.rules)
        if isinstance(rule, EscalateRule) and rule.zone is not None
    ]
    for place, zone in places:
        if zone not in pipeline.zones:
            yield f"{place}: no zone {zone!r}, {_hint(zone, pipeline.zones)}"


def _ask_problems(pipeline: Pipeline) -> Iterator[str]:
    ask = pipeline.ask
    if ask.new_track and not pipeline.detector.track:
        yield "ask.new_track: needs detector.track: true"
    if pipeline.vlm is not None and ask.every_s is None and not ask.new_track and not ask.zones:
        yield "ask: nothing would ever ask the VLM; set every_s, new_track or zones, or vlm: null for detections only"


def _class_problems(pipeline: Pipeline, class_names: Collection[str] | None) -> Iterator[str]:
    """Classes that the model does not have, or that `detector.classes` leaves out, so that they would never be seen."""
    kept = pipeline.detector.classes
    if class_names is not None:
        for name in kept or ():
            if name not in class_names:
                yield f"detector.classes: the detector has no class {name!r}, {_hint(name, class_names)}"
    known = class_names if kept is None else kept
    for place, classes in _classes_named(pipeline):
        for name in classes or ():
            if known is not None and name not in known:
                if kept is not None and class_names is not None and name in class_names:
                    yield f"{place}: detector.classes leaves out {name!r}"
                else:
                    yield f"{place}: the detector has no class {name!r}, {_hint(name, known)}"


def _classes_named(pipeline: Pipeline) -> Iterator[tuple[str, Iterable[str] | None]]:
    yield "ask.new_track", pipeline.ask.new_track
    for index, item in enumerate(pipeline.ask.zones):
        yield f"ask.zones.{index}.classes", item.classes
    for name, zone in pipeline.zones.items():
        yield f"zones.{name}.classes", zone.classes
    for index, rule in enumerate(pipeline.rules):
        if not isinstance(rule, WorstObjectRule):
            yield f"rules.{index}.classes", rule.classes


def _rule_problems(rule: Rule, schema: FieldSchema) -> Iterator[str]:
    match rule:
        case ThresholdRule():
            yield from _assigned(rule.set_fields, schema.object_properties, "object")
        case EscalateRule():
            known = schema.frame_properties if rule.scope == "frame" else schema.object_properties
            yield from _matched(rule.when, known, rule.scope)
            yield from _assigned(rule.set_fields, known, rule.scope)
            yield from _ranked([*rule.raise_steps, *rule.lower_steps], known, rule.scope, schema)
        case ContradictionRule():
            yield from _matched(rule.when, schema.frame_properties, "frame")
            yield from _assigned(rule.set_fields, schema.frame_properties, "frame")
            if rule.words:
                yield from _known(rule.text_field, schema.frame_properties, "frame")
        case WorstObjectRule():
            for field in rule.fields_taken:
                yield from _known(field, schema.frame_properties, "frame")
                yield from _known(field, schema.object_properties, "object")
            yield from _ranked([rule.by], schema.object_properties, "object", schema)


def _known(field: str, known: Mapping[str, Any], scope: str) -> Iterator[str]:
    if field not in known or field in ("id", "detections"):
        fields = [name for name in known if name not in ("id", "detections")]
        yield f"the schema has no {scope} field {field!r}, {_hint(field, fields)}"


def _ranked(fields: Iterable[str], known: Mapping[str, Any], scope: str, schema: FieldSchema) -> Iterator[str]:
    for field in fields:
        problems = list(_known(field, known, scope))
        yield from problems
        if not problems and schema.rank(field) is None:
            yield f"field {field!r} has no rank; only an enum can be raised, lowered or compared"
        elif not problems and scope == "object" and _misranked(field, schema):
            yield f"field {field!r} has other values for the frame than for objects, so its rank is not clear"


def _misranked(field: str, schema: FieldSchema) -> bool:
    """Whether the field's one rank does not cover an object's values, as where the frame's field has others."""
    return any(_misfit(value, schema.object_properties[field]) for value in schema.rank(field) or ())


def _matched(when: When, known: Mapping[str, Any], scope: str) -> Iterator[str]:
    """Values that can never match: for a list field, those that none of its items can have."""
    for field, values in when.items():
        subschema = known.get(field, {})
        yield from _known(field, known, scope)
        for value in values:
            if _misfit(value, subschema) and _misfit([value], subschema):
                yield f"field {field!r} is never {value!r}: {_misfit(value, subschema)}"


def _assigned(values: Mapping[str, Any], known: Mapping[str, Any], scope: str) -> Iterator[str]:
    for field, value in values.items():
        yield from _known(field, known, scope)
        if problem := _misfit(value, known.get(field, {})):
            yield f"field {field!r} cannot be {value!r}: {problem}"


def _misfit(value: object, subschema: Mapping[str, Any] | bool) -> str:
    """Why a value does not satisfy a field's schema, or an empty string."""
    error = next(jsonschema.Draft202012Validator(subschema).iter_errors(value), None)
    if error is None:
        return ""
    choices = subschema.get("enum") if isinstance(subschema, Mapping) else None
    return "expected one of " + ", ".join(map(repr, choices)) if choices else error.message


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error and not silently the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep=deep)


def _find(source: str | Path) -> Path:
    shipped = shipped_names("pipelines")
    if isinstance(source, str) and source in shipped:
        return Path(data_path("pipelines", f"{source}.yaml"))
    path = Path(source)
    if not path.is_file():
        raise PipelineError(f"{source}: no such file or shipped pipeline", help=_hint(str(source), shipped))
    return path


def _read(path: Path) -> object:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError) as error:
        raise PipelineError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read: {error.strerror}") from error


def _beside(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve paths that exist beside the pipeline file; all other values stay as they are."""
    content = {key: dict(value) if isinstance(value, dict) else value for key, value in content.items()}
    places = (
        (content, "schema", Path.is_file),
        (content.get("detector"), "weights", Path.exists),
        (content.get("detector"), "tracker", Path.is_file),
        (content.get("vlm"), "model", Path.is_dir),
    )
    for part, key, present in places:
        value = part.get(key) if isinstance(part, dict) else None
        if part is not None and isinstance(value, str) and value and present(folder / value):
            part[key] = str(folder / value)
    return content


def _assign(content: dict[str, Any], place: str, value: object) -> None:
    *parents, last = place.split(".")
    part: Any = content
    for parent in parents:
        if part.get(parent) is None:
            part[parent] = {}
        part = part[parent]
        if not isinstance(part, dict):
            raise PipelineError(f"{place}: {parent} cannot be overridden in part")
    part[last] = value


def _validated(content: object, *, origin: str) -> Pipeline:
    try:
        return Pipeline.model_validate(content)
    except ValidationError as error:
        problems = [line for item in error.errors(include_url=False) for line in _told(item)]
        raise PipelineError(_listed(origin, problems)) from error


def _listed(origin: str, problems: list[str]) -> str:
    if len(problems) == 1:
        return f"{origin}: {problems[0]}"
    return "\n  ".join([f"{origin}: {len(problems)} problems", *problems])


def _told(item: Mapping[str, Any]) -> list[str]:
    """One pydantic error in words: the dotted place, what is expected, what was found."""
    # A rule's kind stands in pydantic's location as if it were a key.
    places = [str(part) for depth, part in enumerate(item["loc"]) if not (depth == 2 and part in _KINDS)]
    message = str(item["msg"]).removeprefix("Value error, ")
    found = repr(item["input"])
    match item["type"]:
        case "missing":
            message = "is required"
        case "union_tag_not_found":
            message = f"kind is required, one of {', '.join(_KINDS)}"
        case "union_tag_invalid":
            message = f"expected kind to be one of {', '.join(_KINDS)}, found {item['ctx']['tag']!r}"
        case "model_type" | "dict_type" | "model_attributes_type":
            message = f"expected a mapping, found {found[:80]}"
        case kind if kind != "value_error":
            expected = re.sub(r"^\w+ should (be |have )?", "expected ", message).replace(" after validation", "")
            message = f"{expected}, found {found[:80]}"
    place = ".".join(places)
    return [f"{place}: {line}" if place else line for line in message.split("\n")]
