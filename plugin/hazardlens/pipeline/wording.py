"""How problems of a pipeline are worded: the dotted place, what is expected, what was found."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from hazardlens.errors import PipelineError

_KINDS = ("threshold", "escalate", "contradiction", "worst_object")


def hint(name: str, known: Iterable[str]) -> str:
    """Advice after an unknown name: close matches, else everything that is known."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(repr(item) for item in close) + "?"
    return "known: " + (", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "none")


def listed(origin: str, problems: list[str]) -> str:
    """One message of all problems; `origin` says whose they are."""
    if len(problems) == 1:
        return f"{origin}: {problems[0]}"
    return "\n  ".join([f"{origin}: {len(problems)} problems", *problems])


def misfit(parts: Sequence[str], schema: str) -> str:
    """That `parts` of a pipeline name what a schema does not have."""
    return f"its {' and '.join(parts)} do not go with schema '{schema}'"


def without(parts: Sequence[str]) -> str:
    """How to do without `parts` of a pipeline, which are lists or null: what to type."""
    options = " ".join(f"--set '{part}=[]'" if part == "rules" else f"--set {part}=null" for part in parts)
    overrides = ", ".join(f'"{part}": {"[]" if part == "rules" else "None"}' for part in parts)
    return (
        "Name what the schema has, use a pipeline that does, or leave them out: "
        f"{options} on the command line, overrides={{{overrides}}} from Python."
    )


def refusal(error: ValidationError, *, origin: str) -> PipelineError:
    """Pydantic's refusal as an error that lists every place."""
    return PipelineError(listed(origin, [line for item in error.errors(include_url=False) for line in _told(item)]))


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
