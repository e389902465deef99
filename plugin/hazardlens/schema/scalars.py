"""Shapes of strings and numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fractions import Fraction

from hazardlens.schema import probe
from hazardlens.schema.bounds import MOST_CHARACTERS
from hazardlens.schema.combine import Schema
from hazardlens.schema.findings import Findings, keyword_places
from hazardlens.schema.patterns import plain
from hazardlens.schema.shapes import Choice, Never, Number, Shape, Text, decimals
from hazardlens.schema.spelling import SAFE_INTEGER
from hazardlens.schema.validation import FORMATS_CHECKED, exact

# The formats that llguidance 1.9 turns into a grammar, and how long the endless ones may grow in the mask.
_FORMAT_LENGTHS: dict[str, int] = {
    "date": 10,
    "time": 24,
    "date-time": 35,
    "duration": 40,
    "email": 254,
    "hostname": 253,
    "ipv4": 15,
    "ipv6": 45,
    "uuid": 36,
    "uri": 512,
}
# A mask that knows the calendar would need a regular expression per leap year.
_LOOSE_FORMATS = frozenset({"date", "date-time"})
_WIDEST_NUMBER = Fraction(10**9)
_FINEST_STEP = Fraction(1, 1000)


def text(nodes: Sequence[Schema], pointer: str, places: dict[int, str], findings: Findings) -> Shape:
    """The shape of the strings that satisfy `nodes`."""
    low = max((int(node["minLength"]) for node in nodes if "minLength" in node), default=0)
    high = min((int(node["maxLength"]) for node in nodes if "maxLength" in node), default=None)
    if high is not None and low > high:
        return Never(((pointer, f"minLength {low} is more than maxLength {high}"),), pointer=pointer)
    form = _format(nodes, pointer, places, findings)
    patterns = _patterns(nodes, pointer, places, findings)
    own = _own_end(form, patterns) if high is None else high
    lengths = _lengths(low, form) if own is None else (own,)
    reasons = []
    for most in lengths:
        shape = Text(low, most, patterns, form, pointer=pointer)
        reasons.append(probe.refusal(shape.as_held()) if form or patterns else "")
        if not reasons[-1] and low <= most:
            if own is None:
                message = f"a string without maxLength: the mask ends it at {most} characters"
                about = keyword_places(nodes, ("type",), places, pointer)
                findings.add(pointer, "closed", message, "Add maxLength.", about=about)
            return shape
    if probe.is_unsatisfiable(reasons[0]) or lengths[0] < low:
        return Never(((pointer, "no string satisfies its length, pattern and format together"),), pointer=pointer)
    about = keyword_places(nodes, ("pattern",), places, pointer)
    message = f"the mask cannot hold this pattern at this length: {reasons[0][:100]}"
    findings.add(pointer, "checked", message, about=about)
    return Text(low, lengths[0], (), form, pointer=pointer)


def _format(nodes: Sequence[Schema], pointer: str, places: dict[int, str], findings: Findings) -> str | None:
    held: str | None = None
    for node in nodes:
        name = node.get("format")
        if name is None:
            continue
        place = places.get(id(node), pointer) + "/format"
        if name in _FORMAT_LENGTHS and held in (None, name):
            held = name
            if name in _LOOSE_FORMATS:
                message = f"the mask holds the form of '{name}', not the calendar"
                findings.add(place, "checked", message, about=[place])
        elif name in FORMATS_CHECKED:
            findings.add(place, "checked", f"the format '{name}' is not held by the mask", about=[place])
        elif name != held:
            findings.add(place, "note", f"the format '{name}' is not enforced at all", "Use pattern and maxLength.")
    return held


def _patterns(nodes: Sequence[Schema], pointer: str, places: dict[int, str], findings: Findings) -> tuple[str, ...]:
    held: dict[str, None] = {}
    for node in nodes:
        if "pattern" not in node:
            continue
        reason = probe.refusal({"type": "string", "pattern": plain(node["pattern"])})
        if reason and not probe.is_unsatisfiable(reason):
            short = reason.splitlines()[-1].removeprefix("error: ")
            place = places.get(id(node), pointer) + "/pattern"
            findings.add(place, "checked", f"the mask cannot hold this pattern: {short}", about=[place])
        else:
            held[node["pattern"]] = None
    return tuple(held)


def _lengths(low: int, form: str | None) -> tuple[int, ...]:
    """Where to end a string that nothing ends, the longest first."""
    if form:
        return (max(low, _FORMAT_LENGTHS[form]),)
    return tuple(dict.fromkeys(max(low, most) for most in MOST_CHARACTERS))


def _own_end(form: str | None, patterns: tuple[str, ...]) -> int | None:
    """Characters of the longest string that pattern and format allow, or None where they end nowhere near."""
    if not form and not patterns:
        return None
    schema = Text(0, 0, patterns, form).as_held()
    del schema["maxLength"]
    return probe.longest_match(schema)


def number(nodes: Sequence[Schema], pointer: str, places: dict[int, str], findings: Findings, *, whole: bool) -> Shape:
    """The shape of the numbers that satisfy `nodes`, of the integers if `whole`."""
    steps = [exact(node["multipleOf"]) for node in nodes if "multipleOf" in node]
    lows = [(exact(node[key]), key) for node in nodes for key in ("minimum", "exclusiveMinimum") if key in node]
    highs = [(exact(node[key]), key) for node in nodes for key in ("maximum", "exclusiveMaximum") if key in node]
    widest = Fraction(SAFE_INTEGER) if whole else _WIDEST_NUMBER
    safe = Fraction(SAFE_INTEGER)
    least, most = _range([x for x, _ in lows], [x for x, _ in highs], widest)
    bounded = bool(lows and highs) and least >= -safe and most <= safe
    least, most = max(least, -safe), min(most, safe)
    step = _step(steps, least, most, whole=whole)
    low = max([_upward(x, step, open_end=key == "exclusiveMinimum") for x, key in lows] or [_upward(least, step)])
    high = min([-_upward(-x, step, open_end=key == "exclusiveMaximum") for x, key in highs] or [-_upward(-most, step)])
    low, high = max(low, _upward(-safe, step)), min(high, -_upward(-safe, step))
    if low > high:
        return Never(((pointer, "no number satisfies its bounds and multipleOf together"),), pointer=pointer)
    about = keyword_places(nodes, ("type",), places, pointer)
    _tell(pointer, findings, about, low, high, None if steps or whole else step, bounded=bounded)
    return Number(low, high, step, pointer=pointer) if low < high else Choice((_plain(low),), pointer=pointer)


def _range(lows: list[Fraction], highs: list[Fraction], widest: Fraction) -> tuple[Fraction, Fraction]:
    if lows and highs:
        return max(lows), min(highs)
    if lows:
        return max(lows), max(widest, max(lows) + (widest if widest == _WIDEST_NUMBER else 0))
    if highs:
        return min(-widest, min(highs) - (widest if widest == _WIDEST_NUMBER else 0)), min(highs)
    return -widest, widest


def _step(steps: list[Fraction], least: Fraction, most: Fraction, *, whole: bool) -> Fraction:
    if steps or whole:
        step = Fraction(1) if whole else steps[0]
        for other in steps:
            step = Fraction(
                math.lcm(step.numerator * other.denominator, other.numerator * step.denominator),
                step.denominator * other.denominator,
            )
        return step
    # A thousand values at least between the bounds, and no more digits than a double keeps.
    span = (most - least) / 1000
    fine = Fraction(10) ** math.floor(math.log10(span)) if span > 0 else Fraction(1, 10 ** decimals(least))
    digits = Fraction(10) ** (len(str(int(max(abs(least), abs(most))))) - 15)
    return max(min(fine, _FINEST_STEP), digits)


def _upward(bound: Fraction, step: Fraction, *, open_end: bool = False) -> Fraction:
    multiple = math.ceil(bound / step) * step
    return multiple + step if open_end and multiple == bound else multiple


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _tell(
    pointer: str,
    findings: Findings,
    about: Collection[str],
    low: Fraction,
    high: Fraction,
    step: Fraction | None,
    *,
    bounded: bool,
) -> None:
    if not bounded:
        message = f"a number without two safe bounds: the mask keeps it between {_plain(low)} and {_plain(high)}"
        findings.add(pointer, "closed", message, "Add minimum and maximum.", about=about)
    if step is not None:
        message = f"the mask bounds the digits: multiples of {_plain(step)}"
        findings.add(pointer, "closed", message, "Add multipleOf to choose another step.", about=about)
