"""What a server's response says, its status fields read before its text: pure functions on plain JSON types.

Servers leave fields out, send null for them, or send other types; nothing is taken for granted here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from hazardlens.vlm.remote.dialects import Api
from hazardlens.vlm.remote.redaction import Redactor

End = Literal["complete", "truncated", "refused", "failed"]

_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_WHOLE = frozenset(
    {"stop", "eos", "eos_token", "end_turn", "stop_sequence", "tool_calls", "function_call", "complete", "completed"}
)
_FILTERED = frozenset({"content_filter", "safety", "refusal", "content-filter"})
_REFUSAL = re.compile(
    r"""\W*
    (?: (?: i'?m | i\ am | we'?re | we\ are ) \s+ (?: (?: very | so | really ) \s+ )? sorry\b [^.]{0,40}?
      | sorry\b [^.]{0,20}?
      | unfortunately,? \s*
      | as\ an\ ai\b [^.]{0,40}?
    )? ,? \s* (?: but \s+ )?
    \b (?: i | we ) \s* (?: 'm | am | are | 're )? \s*
    (?: can\s?not | can'?t | will\ not | won'?t | not\ able\ to | unable\ to | must\ decline\ to ) \s+
    (?: \w+ \s+ ){0,2}?
    (?: help | assist | comply | fulfill? | do\ that
      | (?: answer | process | provide | analy[sz]e ) \s (?: that | this )
      | analy[sz]e\ images | identify\ (?: people | persons | anyone )
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_NO_SECRETS = Redactor(())
_TYPOGRAPHIC = "\u2019"
_LONGEST_TOLD = 300
_BEGINS = 400
"""Characters that are looked at; the expression takes the square of what it is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a response says.

    Attributes:
        text: The answer's text; empty where there is none.
        end: How it came to its end; `failed` where the server says that it failed.
        reason: Why it is not complete, or None.
        input_tokens: As the server counted, or None.
        output_tokens: As the server counted, or None.
        is_whole: Whether the server says in words that are known that the answer came to its own end.
    """

    text: str
    end: End = "complete"
    reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    is_whole: bool = False


class MalformedResponseError(ValueError):
    """A response that is none of the API's: HTML, a stream, JSON of another kind."""


def read_response(response: object, api: Api, redact: Redactor = _NO_SECRETS) -> Said:
    """Read a response of `ultralytics.LLM`.

    Args:
        response: The SDK's response object, or the text that the SDK gives where it found no JSON.
        api: The API that was called.
        redact: Takes secrets out, before anything is cut short.

    Raises:
        MalformedResponseError: If it is no response of that API.
    """
    body = _body(response, redact)
    usage = _mapping(body.get("usage"))
    said = _read_chat(body) if api == "chat.completions" else _read_responses(body)
    return replace(
        said,
        input_tokens=_count(usage, "prompt_tokens", "input_tokens"),
        output_tokens=_count(usage, "completion_tokens", "output_tokens"),
    )


def encodable(text: str) -> str:
    """The text with U+FFFD in place of every half of a surrogate pair, and halves that belong together joined."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def refusal_in(value: object) -> str | None:
    """A text that refuses to answer, as the answer itself or as a string inside it; None where there is none.

    Told by how it begins, in English; it looks for refusals to help, not for things that cannot be seen.
    """
    texts = [value] if isinstance(value, str) else list(_strings(value))
    return next((text[:_LONGEST_TOLD] for text in texts if _REFUSAL.match(_beginning(text))), None)


def _beginning(text: str) -> str:
    return text.lstrip()[:_BEGINS].replace(_TYPOGRAPHIC, "'")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _body(response: object, redact: Redactor) -> Mapping[str, Any]:
    if isinstance(response, str):
        try:
            response = json.loads(response)
        except (ValueError, RecursionError):
            begins = " ".join(redact(str(response))[:60].split())
            raise MalformedResponseError(f"the server's answer is no JSON: it begins with {begins!r}") from None
    elif hasattr(response, "to_dict"):
        response = response.to_dict(mode="python", exclude_unset=True, warnings=False)
    if not isinstance(response, Mapping):
        raise MalformedResponseError(f"expected a response object, the server sent {type(response).__name__}")
    read: Mapping[str, Any] = redact.within(response)
    return read


def _read_chat(body: Mapping[str, Any]) -> Said:
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise MalformedResponseError(_without_answer(body, "choices"))
    message, finish = _mapping(choices[0].get("message")), _text(choices[0].get("finish_reason"))
    text = _joined(message.get("content"), ("text", "output_text"))
    refusal = _text(message.get("refusal")) or _joined(message.get("content"), ("refusal",))
    arguments = _chat_arguments(message)
    return _judged(arguments or text, refusal, finish, ended=finish)


def _chat_arguments(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls")
    calls = [_mapping(call).get("function") for call in calls] if isinstance(calls, list) else []
    found = [_arguments(_mapping(call)) for call in [*calls, message.get("function_call")]]
    return next((text for text in found if text), "")


def _read_responses(body: Mapping[str, Any]) -> Said:
    status, output = _text(body.get("status")), body.get("output")
    error = _mapping(body.get("error"))
    if status in ("failed", "cancelled"):
        told = _text(error.get("message"))[:_LONGEST_TOLD] or "no reason given"
        return Said(text="", end="failed", reason=f"the server says that it failed: {told}")
    if not isinstance(output, list):
        raise MalformedResponseError(_without_answer(body, "output"))
    items = [_mapping(item) for item in output]
    contents = [item.get("content") for item in items if item.get("type", "message") == "message"]
    text = "".join(_joined(content, ("output_text", "text")) for content in contents)
    refusal = "".join(_joined(content, ("refusal",)) for content in contents)
    calls = [_arguments(item) for item in items if item.get("type") == "function_call"]
    ended = _text(_mapping(body.get("incomplete_details")).get("reason")) if status == "incomplete" else ""
    text = next((call for call in calls if call), "") or text
    if status in ("in_progress", "queued"):
        return Said(text=text, end="failed", reason=f"the server answered before it was done: {status}")
    return _judged(text, refusal, ended or ("length" if status == "incomplete" else ""), ended=ended or status)


def _judged(text: str, refusal: str, finish: str, *, ended: str) -> Said:
    if refusal:
        return Said(text=text, end="refused", reason=f"refused: {refusal[:_LONGEST_TOLD]}")
    if finish.lower() in _FILTERED:
        return Said(text=text, end="refused", reason=f"the server's filter stopped the answer: {ended}")
    if finish.lower() in _CUT:
        empty = "" if text else ", before the answer began"
        return Said(text=text, end="truncated", reason=f"the answer was cut by the token budget{empty}: {ended}")
    if finish == "error":
        return Said(text=text, end="failed", reason="the server says that it failed")
    return Said(text=text, is_whole=ended.lower() in _WHOLE)


def _without_answer(body: Mapping[str, Any], name: str) -> str:
    error = body.get("error", body.get("detail"))
    told = _text(_mapping(error).get("message")) or _text(error)
    return f"the server's answer has no {name}" + (f": {told[:_LONGEST_TOLD]}" if told else "")


def _joined(content: object, kinds: tuple[str, ...]) -> str:
    """Text of a message, given as text or as parts of some kinds."""
    if isinstance(content, str):
        return content if kinds[0] != "refusal" else ""
    parts = [_mapping(part) for part in content] if isinstance(content, list) else []
    return "".join(
        _text(part.get("refusal" if kinds[0] == "refusal" else "text")) for part in parts if _is(part, kinds)
    )


def _is(part: Mapping[str, Any], kinds: tuple[str, ...]) -> bool:
    return part.get("type", kinds[0]) in kinds


def _arguments(call: Mapping[str, Any]) -> str:
    found = call.get("arguments")
    return json.dumps(found, ensure_ascii=False) if isinstance(found, dict) else _text(found)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(usage: Mapping[str, Any], *names: str) -> int | None:
    found = next((usage[name] for name in names if name in usage), None)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None
