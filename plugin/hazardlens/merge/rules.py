"""The rules: what the pipeline does to an answer, in order, each change traced."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hazardlens.detect.base import Detections
from hazardlens.merge.statements import matches, place_in, same, spell, statement
from hazardlens.merge.zones import inside_zone
from hazardlens.pipeline import ContradictionRule, EscalateRule, Rule, ThresholdRule, WorstObjectRule, Zone
from hazardlens.record import Contradiction, Fields, RuleTrace
from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.schema.findings import step


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class RuleContext:
    """What an answer was given about.

    Attributes:
        detections: All detections of the frame, those asked about first.
        size_wh: Width and height of the frame in pixels.
        zones: The pipeline's zones by name.
        schema: The field schema, for ranks.
        grounded: The schema that the answer satisfies, and after each change still must.
    """

    detections: Detections
    size_wh: tuple[int, int]
    zones: Mapping[str, Zone]
    schema: FieldSchema
    grounded: GroundedSchema


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleOutcome:
    """An answer after the rules.

    Attributes:
        fields: The whole answer as it stands now, in the form of the grounded schema.
        traces: Changes made or refused, in order.
        contradictions: What the detections speak against.
    """

    fields: Fields
    traces: tuple[RuleTrace, ...]
    contradictions: tuple[Contradiction, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change:
    """Values that one rule gives to the frame (`index` None) or to one object, all of them or none."""

    index: int | None
    values: Fields
    why: str


@dataclass(kw_only=True, slots=True)
class _Run:
    fields: Fields
    context: RuleContext
    traces: list[RuleTrace] = field(default_factory=list)
    contradictions: list[Contradiction] = field(default_factory=list)


def apply_rules(rules: Sequence[Rule], fields: Fields, context: RuleContext) -> RuleOutcome:
    """Run rules in order over a valid answer; each rule sees what the ones before it left.

    Args:
        rules: The pipeline's rules.
        fields: The answer as the model gave it, valid under `context.grounded`; it is not changed.
        context: What the answer was given about.

    Returns:
        The answer after the rules. A change that would break the grounded schema is not made, but traced.
    """
    run = _Run(fields=copy.deepcopy(fields), context=context)
    for rule in rules:
        for change in _changes(rule, run):
            _apply(rule.name, change, run)
    return RuleOutcome(fields=run.fields, traces=tuple(run.traces), contradictions=tuple(run.contradictions))


def _changes(rule: Rule, run: _Run) -> Iterator[_Change]:
    match rule:
        case ThresholdRule():
            return _threshold(rule, run)
        case EscalateRule():
            return _escalate(rule, run)
        case ContradictionRule():
            return _contradiction(rule, run)
        case WorstObjectRule():
            return _worst_object(rule, run)


def _apply(name: str, change: _Change, run: _Run) -> None:
    target = _target(run.fields, change.index)
    before = {key: target.get(key) for key in change.values}
    after = {key: value for key, value in change.values.items() if key not in target or not same(target[key], value)}
    if not after:
        return
    changed = copy.deepcopy(run.fields)
    _target(changed, change.index).update(copy.deepcopy(after))
    problems = run.context.grounded.validate(changed)
    if not problems:
        run.fields = changed
    why = f"{change.why}; not changed, as the answer would break the schema: {problems[0]}" if problems else change.why
    for key, value in after.items():
        pointer = _pointer(change.index, key)
        result = before[key] if problems else value
        run.traces.append(RuleTrace(name=name, field=pointer, before=before[key], after=result, why=why))


def _pointer(index: int | None, key: str) -> str:
    """JSON pointer of a field in the record, where the id of an object is its detection's index."""
    return step("", "fields", key) if index is None else step("", "detections", index, "fields", key)


def _target(fields: Fields, index: int | None) -> Fields:
    target: Fields = fields if index is None else fields["detections"][index]
    return target


def _threshold(rule: ThresholdRule, run: _Run) -> Iterator[_Change]:
    detections = run.context.detections
    for index in range(len(_objects(run))):
        if not _of_class(detections, index, rule.classes):
            continue
        reasons = []
        confidence = float(detections.confidence[index])
        if rule.min_confidence is not None and confidence < rule.min_confidence:
            reasons.append(f"detector confidence {confidence:.4g} is below {rule.min_confidence:g}")
        height_px = float(detections.boxes_xyxy_px[index, 3] - detections.boxes_xyxy_px[index, 1])
        if rule.min_height_px is not None and height_px < rule.min_height_px:
            reasons.append(f"box is {height_px:.1f} px high, less than {rule.min_height_px:g}")
        if reasons:
            why = f"{detections.class_name(index)}: {' and '.join(reasons)}"
            yield _Change(index=index, values=rule.set_fields, why=why)


def _escalate(rule: EscalateRule, run: _Run) -> Iterator[_Change]:
    counted = _counted(rule, run)
    least = rule.min_objects or (1 if rule.classes is not None or rule.zone is not None else 0)
    if len(counted) < least:
        return
    seen = []
    if least:
        place = f" in zone {rule.zone}" if rule.zone is not None else ""
        seen = [f"{len(counted)} of {' or '.join(rule.classes or ('any class',))}{place} seen"]
    indices = [None] if rule.scope == "frame" else [index for index in counted if index < len(_objects(run))]
    for index in indices:
        target = _target(run.fields, index)
        if not matches(rule.when, target):
            continue
        why = " and ".join([f"{key} is {spell(target[key])}" for key in rule.when] + seen)
        yield _Change(index=index, values={**rule.set_fields, **_steps(rule, target, run)}, why=why)


def _counted(rule: EscalateRule, run: _Run) -> list[int]:
    """Indices of the detections of the rule's classes in its zone."""
    context = run.context
    if rule.zone is None:
        indices = list(range(len(context.detections)))
    else:
        indices = inside_zone(context.zones[rule.zone], context.detections, context.size_wh)
    return [index for index in indices if _of_class(context.detections, index, rule.classes)]


def _steps(rule: EscalateRule, target: Fields, run: _Run) -> Fields:
    """Ranked fields moved up or down, held at the ends; a value without a rank is never moved."""
    moves = {**rule.raise_steps, **{key: -steps for key, steps in rule.lower_steps.items()}}
    moved = {}
    for key, steps in moves.items():
        order = run.context.schema.rank(key, scope=rule.scope) or []
        place = place_in(order, target.get(key))
        if place is not None:
            moved[key] = order[min(max(place + steps, 0), len(order) - 1)]
    return moved


def _contradiction(rule: ContradictionRule, run: _Run) -> Iterator[_Change]:
    stated = statement(rule, run.fields)
    detections = run.context.detections
    if stated is None or any(_of_class(detections, index, rule.classes) for index in range(len(detections))):
        return
    key, said = stated
    why = f"{said}, but the detector sees no {' or '.join(rule.classes)}"
    run.contradictions.append(Contradiction(name=rule.name, field=_pointer(None, key), why=why))
    yield _Change(index=None, values=rule.set_fields, why=why)


def _worst_object(rule: WorstObjectRule, run: _Run) -> Iterator[_Change]:
    order = run.context.schema.rank(rule.by) or []
    places = [(place_in(order, item.get(rule.by)), index) for index, item in enumerate(_objects(run))]
    ranked = [(place, -index) for place, index in places if place is not None]
    own = place_in(order, run.fields.get(rule.by))
    if not ranked or own is None or max(ranked)[0] <= own:
        return
    index = -max(ranked)[1]
    worst = _objects(run)[index]
    values = {key: worst[key] for key in rule.fields_taken if key in worst}
    why = f"detection {index} ({run.context.detections.class_name(index)}) has {rule.by} {spell(worst[rule.by])}"
    yield _Change(index=None, values=values, why=why)


def _objects(run: _Run) -> list[Fields]:
    """The answer's objects; none where the schema has no `detections`."""
    return list(run.fields.get("detections", ()))


def _of_class(detections: Detections, index: int, classes: Collection[str] | None) -> bool:
    return classes is None or detections.class_name(index) in classes
