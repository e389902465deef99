"""The verdict on what a server said: the answer in the schema's own form, or what is wrong with it."""

from __future__ import annotations

from hazardlens.schema import AnswerError, GroundedSchema
from hazardlens.schema.bare import GroundedText
from hazardlens.schema.spelling import read_strict, spell
from hazardlens.vlm.remote.faults import Fault
from hazardlens.vlm.remote.reading import Said, refusal_in
from hazardlens.vlm.remote.redaction import Redactor
from hazardlens.vlm.remote.restoring import restored

_CUT_SILENTLY = "the answer was cut by the token budget, though the server says that it is complete"
_NOT_WHOLE = "the server does not say that the answer is whole, and a text that is no JSON may be cut unnoticed"


def judged(said: Said, schema: GroundedSchema, redact: Redactor, *, budget: int | None) -> tuple[str, str]:
    """The answer, if it is what was asked for.

    Args:
        said: What the server said.
        schema: What it was asked with.
        redact: Takes secrets out.
        budget: Tokens that the answer could take, or None where it had no bound.

    Returns:
        Its text in the schema's own form, and as it came.

    Raises:
        Fault: It is not: cut, refused or invalid.
    """
    raw = redact(said.text)
    text = restored(raw, schema)
    told = _respelled(text, redact)
    if told is not None:
        text = raw = told
    if said.end in ("truncated", "refused"):
        raise Fault("truncated" if said.end == "truncated" else "refused", said.reason or "", text=raw)
    cut = said.output_tokens is not None and budget is not None and said.output_tokens >= budget
    if isinstance(schema, GroundedText) and (cut or not (said.is_whole or _is_object(text))):
        raise Fault("truncated", _CUT_SILENTLY if cut else _NOT_WHOLE, text=raw)
    try:
        refusal = refusal_in(schema.parse(text))
    except AnswerError as error:
        refusal = refusal_in(text)
        if refusal is None and cut:
            raise Fault("truncated", _CUT_SILENTLY, text=raw) from None
        if refusal is None:
            raise Fault("invalid", redact(str(error)), text=raw) from None
    if refusal is not None:
        raise Fault("refused", f"the answer is a refusal: {refusal}", text=raw)
    return text, raw


def _is_object(text: str) -> bool:
    """Whether a text is a JSON object, which says by itself that it is whole."""
    try:
        return isinstance(read_strict(text), dict)
    except ValueError:
        return False


def _respelled(text: str, redact: Redactor) -> str | None:
    """An answer spelled anew without secrets, where escapes of its strings hide one; else None."""
    try:
        spelled = spell(read_strict(text))
        told = redact(spelled)
    except ValueError:
        spelled, told = text, redact.bare(text)
    return None if told == spelled else told
