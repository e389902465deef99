"""The validator that has the last word on every answer."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend

from hazardlens.schema.findings import step

FORMATS_CHECKED = ("date", "email", "ipv4", "ipv6", "regex", "uuid")
"""Formats that validation checks, wherever it runs; others are annotations, as JSON Schema has it."""

_LONGEST_MESSAGE = 300


def exact(number: float) -> Fraction:
    """The number as it is written in decimal, so that 0.07 is seven times 0.01."""
    return Fraction(repr(number)) if isinstance(number, float) else Fraction(number)


def _multiple_of(validator: Any, divisor: float, instance: Any, schema: Any) -> Iterator[ValidationError]:
    del schema
    if validator.is_type(instance, "number") and (exact(instance) / exact(divisor)).denominator != 1:
        yield ValidationError(f"{instance!r} is not a multiple of {divisor}")


_Validator: Any = extend(Draft202012Validator, {"multipleOf": _multiple_of})  # type: ignore[no-untyped-call]
_FORMATS = FormatChecker(formats=FORMATS_CHECKED)


def validator_for(schema: dict[str, Any] | bool) -> Any:
    """A validator of draft 2020-12 that takes numbers as decimals and checks `FORMATS_CHECKED`."""
    return _Validator(schema, format_checker=_FORMATS)


def metaschema_errors(document: dict[str, Any]) -> list[tuple[str, str]]:
    """JSON pointer and message of everything that makes `document` no schema of draft 2020-12."""
    validator = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=_FORMATS)
    return sorted({_spoken(error) for error in validator.iter_errors(document)})


def answer_errors(validator: Any, value: object) -> list[str]:
    """What is wrong with `value`, each with its JSON pointer; empty if nothing is."""
    spoken = {_spoken(error): None for error in validator.iter_errors(value)}
    return [f"{pointer or '/'}: {message}" for pointer, message in spoken]


def _spoken(error: ValidationError) -> tuple[str, str]:
    message = error.message
    short = message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + " ..."
    return step("", *error.absolute_path), short
