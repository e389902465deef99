"""Reading a response: status fields first, whatever a server leaves out or sends in their place."""

import json
from typing import Any

import pytest

from hazardlens.vlm.remote.reading import MalformedResponseError, read_response, refusal_in

TEXT = '{"hazard": "none"}'


def chat(finish: Any = "stop", **message: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return {"choices": [{"finish_reason": finish, "message": {"content": TEXT, **message}}], "usage": usage}


def call(arguments: Any) -> dict[str, Any]:
    return {"content": None, "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": arguments}}]}


def responses(*output: Any, status: Any = "completed", **more: Any) -> dict[str, Any]:
    return {"output": list(output), "status": status, "usage": {"input_tokens": 7, "output_tokens": 3}, **more}


def message(text: str = TEXT, kind: str = "output_text") -> dict[str, Any]:
    return {"type": "message", "content": [{"type": kind, "text" if kind != "refusal" else kind: text}]}


@pytest.mark.parametrize(
    ("body", "end", "text"),
    [
        (chat(), "complete", TEXT),
        (chat(None), "complete", TEXT),
        (chat(refusal=None), "complete", TEXT),
        (chat("length"), "truncated", TEXT),
        (chat("length", content=None, reasoning_content="hm"), "truncated", ""),
        (chat("content_filter"), "refused", TEXT),
        (chat(refusal="No.", content=None), "refused", ""),
        (chat(content=[{"type": "text", "text": TEXT}]), "complete", TEXT),
        (chat(content=[{"type": "refusal", "refusal": "No."}]), "refused", ""),
        (chat("tool_calls", **call(TEXT)), "complete", TEXT),
        (chat("tool_calls", **call({"hazard": "none"})), "complete", TEXT),
        (chat(content=7), "complete", ""),
        (chat("error"), "failed", TEXT),
    ],
)
def test_chat(body: dict[str, Any], end: str, text: str) -> None:
    said = read_response(json.dumps(body), "chat.completions")
    assert (said.end, said.text) == (end, text)
    assert (said.input_tokens, said.output_tokens) == (7, 3)
    assert (said.reason is None) == (end == "complete")


THOUGHT = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}
CUT = {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("body", "end", "text"),
    [
        (responses(message()), "complete", TEXT),
        (responses(THOUGHT, message()), "complete", TEXT),
        (responses(message("No.", "refusal")), "refused", ""),
        (responses(message(), status="incomplete", incomplete_details=CUT), "truncated", TEXT),
        (responses(status="incomplete", incomplete_details={"reason": "content_filter"}), "refused", ""),
        (responses(status="incomplete"), "truncated", ""),
        (responses(status="failed", error={"message": "out of memory"}), "failed", ""),
        (responses(message(), status="in_progress"), "failed", TEXT),
        (responses({"type": "function_call", "name": "f", "arguments": TEXT}), "complete", TEXT),
    ],
)  # fmt: skip
def test_responses(body: dict[str, Any], end: str, text: str) -> None:
    said = read_response(json.dumps(body), "responses")
    assert (said.end, said.text) == (end, text)
    assert (said.input_tokens, said.output_tokens) == (7, 3)


@pytest.mark.parametrize("api", ["chat.completions", "responses"])
@pytest.mark.parametrize(
    "body",
    ["<html>hello</html>", "", "data: {}\n\n", "[]", "7", "{}", '{"error": {"message": "no"}}', '{"choices": []}',
     '{"choices": [null], "output": "x"}', '{"detail": "gone"}', "[" * 100_000],
)  # fmt: skip
def test_what_is_no_response_is_said(api: Any, body: str) -> None:
    with pytest.raises(MalformedResponseError):
        read_response(body, api)


@pytest.mark.parametrize("usage", [None, 7, {}, {"prompt_tokens": "7"}, {"prompt_tokens": -1}, {"prompt_tokens": True}])
def test_tokens_that_are_not_told_are_unknown(usage: Any) -> None:
    assert read_response(json.dumps({**chat(), "usage": usage}), "chat.completions").input_tokens is None


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't assist with that.",
        "I\u2019m sorry, I can\u2019t help with this request.",
        "Sorry, I cannot help.",
        "I cannot assist with that request.",
        "I am unable to help with that.",
        "Unfortunately, I cannot comply.",
        "As an AI model, I cannot identify people in images.",
        "We are not able to fulfill this.",
    ],
)
def test_refusals_are_found(text: str) -> None:
    assert refusal_in(text)
    assert refusal_in({"notes": text, "hazard": "none", "detections": [{"id": 0}]})


@pytest.mark.parametrize(
    "text",
    [
        "I cannot see any hazard.",
        "A worker says sorry to another.",
        "I can see that a person cannot help the fallen one.",
        "Nothing of note.",
        "The guard is unable to help because of the fire.",
        "",
    ],
)
def test_what_is_no_refusal_is_not_taken_for_one(text: str) -> None:
    assert refusal_in(text) is None
    assert refusal_in({"notes": text}) is None
