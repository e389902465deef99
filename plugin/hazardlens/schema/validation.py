"""The validator that has the last word on every answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from fractions import Fraction
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

from hazardlens.schema.findings import step
from hazardlens.schema.patterns import matches, plain
from hazardlens.schema.probe import accepts, grammar
from hazardlens.schema.spelling import spell

_FORMATS_OF_THE_MASK = ("date-time", "duration", "email", "hostname", "time", "uri", "uuid")
FORMATS_CHECKED = ("date", "ipv4", "ipv6", "regex", *_FORMATS_OF_THE_MASK)
"""Formats that validation checks, wherever it runs; others are annotations, as JSON Schema has it.

Those that jsonschema checks loosely, or only beside further packages, are held to llguidance's grammar, as in the mask.
"""

_LONGEST_MESSAGE = 300


def exact(number: float) -> Fraction:
    """The number as it is written in decimal, so that 0.07 is seven times 0.01."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _multiple_of(validator: Any, divisor: float, instance: Any, schema: Any) -> Iterator[ValidationError]:
    del schema
    if validator.is_type(instance, "number") and (exact(instance) / exact(divisor)).denominator != 1:
        yield ValidationError(f"{instance!r} is not a multiple of {divisor}")


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    del schema
    if validator.is_type(instance, "string") and not matches(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    del schema
    if validator.is_type(instance, "object"):
        for pattern, part in patterns.items():
            for name, value in instance.items():
                if matches(pattern, name):
                    yield from validator.descend(value, part, path=name, schema_path=pattern)


def _additional_properties(validator: Any, part: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        named = names_held(schema, instance)
        yield from _each(validator, part, instance, [name for name in instance if name not in named], "additional")


def _unevaluated_properties(validator: Any, part: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        held = _evaluated(validator, {key: schema[key] for key in schema if key != "unevaluatedProperties"}, instance)
        yield from _each(validator, part, instance, [name for name in instance if name not in held], "unevaluated")


def _each(
    validator: Any, part: Any, instance: dict[str, Any], names: list[str], kind: str
) -> Iterator[ValidationError]:
    if part is False and names:
        yield ValidationError(f"{kind} properties are not allowed: {', '.join(map(repr, names))}")
    elif part is not False:
        for name in names:
            yield from validator.descend(instance[name], part, path=name)


def names_held(schema: dict[str, Any], names: Iterable[str]) -> set[str]:
    """Those of `names` that `properties` and `patternProperties` of a schema are about."""
    own, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    return {name for name in names if name in own or any(matches(pattern, name) for pattern in patterns)}


def _evaluated(validator: Any, schema: Any, instance: dict[str, Any]) -> set[str]:
    """Names in `instance` that a schema it satisfies evaluates, at its own place (JSON Schema Core, section 11.3)."""
    if not isinstance(schema, dict):
        return set()
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)
    found = names_held(schema, instance)
    for part, own in _beside(validator, schema, instance):
        if own.evolve(schema=part).is_valid(instance):
            found |= _evaluated(own, part, instance)
    return found


def _beside(validator: Any, schema: dict[str, Any], instance: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Subschemas that may apply at the place of `schema`, each with a validator that finds what it refers to."""
    if "$ref" in schema:
        found = validator._resolver.lookup(schema["$ref"])  # as jsonschema's own keywords do
        yield found.contents, validator.evolve(schema=found.contents, _resolver=found.resolver)
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from ((part, validator) for part in schema.get(keyword, ()))
    yield from ((part, validator) for name, part in schema.get("dependentSchemas", {}).items() if name in instance)
    if "if" in schema:
        is_met = validator.evolve(schema=schema["if"]).is_valid(instance)
        yield schema["if"], validator
        yield schema.get("then" if is_met else "else", True), validator


_KEYWORDS = {
    "multipleOf": _multiple_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
}
_Validator: Any = extend(Draft202012Validator, _KEYWORDS)  # type: ignore[no-untyped-call]
_FORMATS_OF_A_SCHEMA = FormatChecker(formats=["regex"])
_FORMATS = FormatChecker(formats=set(FORMATS_CHECKED).difference(_FORMATS_OF_THE_MASK))


@_FORMATS.checks("regex", raises=ValueError)
@_FORMATS_OF_A_SCHEMA.checks("regex", raises=ValueError)
def _is_regex(instance: object) -> bool:
    if isinstance(instance, str):
        plain(instance)
    return True


@lru_cache(maxsize=1024)
def _is_of_format(name: str, text: str) -> bool:
    if name == "date-time":
        date.fromisoformat(text[:10])
    return accepts(grammar({"type": "string", "format": name}), spell(text))


def _check_format(name: str) -> None:
    @_FORMATS.checks(name, raises=ValueError)
    def is_of_format(instance: object) -> bool:
        return not isinstance(instance, str) or _is_of_format(name, instance)


for _name in _FORMATS_OF_THE_MASK:
    _check_format(_name)


def validator_for(schema: dict[str, Any] | bool) -> Any:
    """A validator of draft 2020-12 that takes numbers as decimals, patterns as ECMA-262, and checks `FORMATS_CHECKED`.

    The schema names no draft, and holds no `$dynamicRef`.
    """
    return _Validator(schema, format_checker=_FORMATS)


def metaschema_errors(document: dict[str, Any]) -> list[tuple[str, str]]:
    """JSON pointer and message of everything that makes `document` no schema of draft 2020-12."""
    validator = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=_FORMATS_OF_A_SCHEMA)
    return sorted({_spoken(error) for error in validator.iter_errors(document)})


def answer_errors(validator: Any, value: object) -> list[str]:
    """What is wrong with `value`, each with its JSON pointer; empty if nothing is.

    What is nested too deeply for the validator, some hundred levels, is not judged and so counts as wrong.
    """
    try:
        spoken = {_spoken(error): None for error in validator.iter_errors(value)}
    except RecursionError:
        return ["/: nested too deeply to be judged"]
    return [f"{pointer or '/'}: {message}" for pointer, message in spoken]


def _spoken(error: ValidationError) -> tuple[str, str]:
    message = error.message
    if error.validator == "format" and error.validator_value == "regex":
        message = f"{error.instance!r} is no regular expression of ECMA-262: {error.cause}"
    short = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + " ..."
    return step("", *error.absolute_path), short
