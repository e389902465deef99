"""What is wrong with a pipeline that is well formed: names that do not exist, values that do not fit."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jsonschema

from hazardlens.pipeline.alerts import AlertRule
from hazardlens.pipeline.rules import ContradictionRule, EscalateRule, Rule, ThresholdRule, WorstObjectRule
from hazardlens.pipeline.values import When
from hazardlens.pipeline.wording import hint
from hazardlens.schema import FieldSchema
from hazardlens.schema.fields import Scope

if TYPE_CHECKING:
    from hazardlens.pipeline.model import Pipeline


NOTHING_ASKS = "ask: nothing would ever ask the VLM; set every_s, new_track or zones, or vlm: null for detections only"


def name_problems(pipeline: Pipeline) -> Iterator[str]:
    """Rule names that stand twice, and zones that are named but not drawn."""
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
    places += [
        (f"alerts.rules.{index}.zone", rule.zone)
        for index, rule in enumerate(pipeline.alerts.rules)
        if rule.zone is not None
    ]
    for place, zone in places:
        if zone not in pipeline.zones:
            yield f"{place}: no zone {zone!r}, {hint(zone, pipeline.zones)}"


def ask_problems(pipeline: Pipeline) -> Iterator[str]:
    """Settings under which asking cannot work, or never happens."""
    ask = pipeline.ask
    if ask.new_track and not pipeline.detector.track:
        yield "ask.new_track: needs detector.track: true"
    if pipeline.vlm is not None and not ask.asks:
        yield NOTHING_ASKS
    for index, rule in enumerate(pipeline.alerts.rules):
        if rule.scope == "object" and not pipeline.detector.track:
            yield f"alerts.rules.{index}.scope: object needs detector.track: true"


def class_problems(pipeline: Pipeline, class_names: Collection[str] | None) -> Iterator[str]:
    """Classes that the model does not have, or that `detector.classes` leaves out, so that they would never be seen."""
    kept = pipeline.detector.classes
    if class_names is not None:
        for name in kept or ():
            if name not in class_names:
                yield f"detector.classes: the detector has no class {name!r}, {hint(name, class_names)}"
    known = class_names if kept is None else kept
    for place, classes in _classes_named(pipeline):
        for name in classes or ():
            if known is not None and name not in known:
                if kept is None or (class_names is not None and name not in class_names):
                    yield f"{place}: the detector has no class {name!r}, {hint(name, class_names or known)}"
                else:
                    yield f"{place}: {name!r} is not among detector.classes ({', '.join(kept)})"


def _classes_named(pipeline: Pipeline) -> Iterator[tuple[str, Iterable[str] | None]]:
    yield "ask.new_track", pipeline.ask.new_track
    if pipeline.vlm is not None:
        yield "vlm.blur", pipeline.vlm.blur
        for index, fallback in enumerate(pipeline.vlm.fallback):
            yield f"vlm.fallback.{index}.blur", fallback.blur
    for index, item in enumerate(pipeline.ask.zones):
        yield f"ask.zones.{index}.classes", item.classes
    for name, zone in pipeline.zones.items():
        yield f"zones.{name}.classes", zone.classes
    for index, rule in enumerate(pipeline.rules):
        if not isinstance(rule, WorstObjectRule):
            yield f"rules.{index}.classes", rule.classes
    for index, alert in enumerate(pipeline.alerts.rules):
        yield f"alerts.rules.{index}.classes", alert.classes


def rule_problems(rule: Rule, schema: FieldSchema) -> Iterator[str]:
    """Fields and values of a rule that the schema does not have."""
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
            if schema.rank(rule.by, scope="frame") != schema.rank(rule.by, scope="object"):
                yield f"field {rule.by!r} has other values for the frame than for objects, so they cannot be compared"


def alert_problems(rule: AlertRule, schema: FieldSchema) -> Iterator[str]:
    """Fields and values of an alert's rule that the schema does not have."""
    known = schema.frame_properties if rule.scope == "frame" else schema.object_properties
    yield from _matched(rule.when, known, rule.scope)
    for values in (rule.at_least, rule.clear_below):
        yield from _ranked(values, known, rule.scope, schema)
        for field, value in values.items():
            if field in known and (problem := _misfit(value, known[field])):
                yield f"field {field!r} is never {value!r}: {problem}"
    for field, value in rule.clear_below.items():
        order = schema.rank(field, scope=rule.scope) or []
        least = rule.at_least.get(field)
        if value in order and least in order and order.index(value) > order.index(least):
            yield f"clear_below: {field!r} must not be above its at_least"


def _known(field: str, known: Mapping[str, Any], scope: str) -> Iterator[str]:
    if field not in known or field in ("id", "detections"):
        fields = [name for name in known if name not in ("id", "detections")]
        yield f"the schema has no {scope} field {field!r}, {hint(field, fields)}"


def _ranked(fields: Iterable[str], known: Mapping[str, Any], scope: Scope, schema: FieldSchema) -> Iterator[str]:
    for field in fields:
        problems = list(_known(field, known, scope))
        yield from problems
        if not problems and schema.rank(field, scope=scope) is None:
            yield f"field {field!r} has no rank; only an enum can be raised, lowered or compared"


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
