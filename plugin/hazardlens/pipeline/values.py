"""What every part of a pipeline is made of: lengths of time, value types, and the base that refuses unknown keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hazardlens.pipeline.wording import hint

_UNIT_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*", re.IGNORECASE)


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


def _values(value: object) -> object:
    """Allow one scalar for a list of them; nothing nested."""
    items = value if isinstance(value, list | tuple) else [value]
    if not items or any(isinstance(item, list | tuple | dict) for item in items):
        raise ValueError(f"expected a value or a list of values, found {value!r}")
    return tuple(items)


Duration = Annotated[float, BeforeValidator(parse_duration), Field(ge=0, allow_inf_nan=False)]
"""A length of time in seconds; a file may write `1s`, `500ms`, `2m`."""
Classes = Annotated[tuple[str, ...], BeforeValidator(_values), Field(min_length=1)]
"""Names of detector classes."""
Fraction = Annotated[float, Field(ge=0, le=1)]
"""A share, 0..1."""
When = dict[str, Annotated[tuple[Any, ...], BeforeValidator(_values)]]
"""Field → the values that match; all fields must match."""
Values = Annotated[dict[str, Any], Field(min_length=1)]
"""Field → the value it gets."""
Steps = dict[str, Annotated[int, Field(ge=1)]]
"""Field → steps in the rank order of its enum."""


class Part(BaseModel):
    """A part of a pipeline file: frozen, unknown keys refused, no infinite numbers."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, value: object) -> object:
        """Name close matches of a mistyped key, which pydantic's own message does not."""
        known = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = [key for key in value if key not in known] if isinstance(value, Mapping) else []
        if unknown:
            raise ValueError("; ".join(f"unknown key {key!r}, {hint(str(key), known)}" for key in unknown))
        return value
