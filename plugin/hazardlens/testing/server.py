"""A server that behaves as badly as it is told to. It is a fake: no model is behind it.

with FakeServer() as server:           # holds the schema it is sent, with the smallest answer
    vlm = RemoteVlm("fake", base_url=server.base_url)

server = FakeServer(lambda asked: FAULTS["html"](asked))
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

from hazardlens.testing.fakes import small_instance

_KEPT = 64
_LONGEST_LINE = 2**16


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """One request, as it came.

    Attributes:
        number: How many came before.
        path: Path of the request.
        headers: Its headers, names in lower case.
        body: Its JSON.
    """

    number: int
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def is_chat(self) -> bool:
        """Whether chat.completions was called, else responses."""
        return self.path.endswith("/chat/completions")

    @property
    def budget(self) -> int:
        """Tokens that the answer may take."""
        names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
        return next((int(self.body[name]) for name in names if name in self.body), 10**9)

    @property
    def schema(self) -> dict[str, Any] | None:
        """The schema that it asks to hold, wherever it stands, or None."""
        found = self.body.get("response_format") or dict(self.body.get("text", {})).get("format") or {}
        if isinstance(found.get("json_schema", found).get("schema"), dict):
            return dict(found.get("json_schema", found)["schema"])
        tools = self.body.get("tools") or [{}]
        parameters = tools[0].get("function", tools[0]).get("parameters")
        return dict(parameters) if parameters else None

    @property
    def prompt(self) -> str:
        """All text of the request."""
        return "\n".join(part["text"] for part in self._parts if "text" in part)

    @property
    def pictures(self) -> list[str]:
        """Data URIs of its pictures."""
        urls = [part.get("image_url") for part in self._parts if "image_url" in part]
        return [url["url"] if isinstance(url, dict) else str(url) for url in urls]

    @property
    def _parts(self) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = []
        for message in self.body.get("messages") or self.body.get("input") or []:
            content = message["content"]
            parts += [{"text": content}] if isinstance(content, str) else content
        return parts


@dataclass(frozen=True, kw_only=True, slots=True)
class Act:
    """What the server does with a request.

    Attributes:
        status: HTTP status.
        headers: Headers beside the usual ones, over them.
        body: Bytes of the answer.
        wait_s: Seconds before it says anything.
        drip_s: Seconds between two bytes of the body, or None to send it at once.
        cut_at: Bytes of the body after which the connection is reset, or None.
        endless: Whether the body goes on without end.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    wait_s: float = 0.0
    drip_s: float | None = None
    cut_at: int | None = None
    endless: bool = False


Behaviour = Callable[[Received], Act]


def answer(asked: Received, text: str, *, finish: str = "stop", **message: Any) -> Act:
    """A proper answer of the API that was called.

    Args:
        asked: The request.
        text: The answer's text.
        finish: Why it ends, in chat's words.
        **message: More of a chat message.
    """
    prompt = 10 + len(asked.prompt) // 4 + sum(map(len, asked.pictures)) // 100
    tokens = len(text) // 4 + 1
    if asked.is_chat:
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
        whole: dict[str, Any] = {"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage}
    else:
        output = [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}]
        cut = {"reason": "max_output_tokens"} if finish == "length" else None
        whole = {
            "id": "r",
            "object": "response",
            "status": "incomplete" if cut else "completed",
            "incomplete_details": cut,
            "output": output,
            "usage": {"input_tokens": prompt, "output_tokens": tokens, "total_tokens": prompt + tokens},
        }
    return Act(body=json.dumps({"created": 0, "created_at": 0, "model": "fake", **whole}).encode())


def holding(asked: Received) -> Act:
    """Answer with a small instance of the schema that was sent, or in plain words where none was."""
    schema = asked.schema
    return answer(asked, "I see a picture." if schema is None else json.dumps(small_instance(schema)))


def ignoring(asked: Received) -> Act:
    """Answer in plain words, whatever schema was sent, as servers do that do not know the field."""
    return answer(asked, "I see a picture.")


def error(status: int, message: str = "no", *, headers: Mapping[str, str] | None = None, **more: Any) -> Act:
    """An error as servers word it."""
    body = {"error": {"message": message, "type": "error", "code": status, **more}}
    return Act(status=status, body=json.dumps(body).encode(), headers=headers or {})


def _text(asked: Received) -> str:
    schema = asked.schema
    return json.dumps(small_instance(schema)) if schema else "{}"


FAULTS: dict[str, Behaviour] = {
    "hang": lambda asked: replace(holding(asked), wait_s=3600.0),
    "drip": lambda asked: replace(holding(asked), drip_s=0.1),
    "reset": lambda asked: replace(holding(asked), cut_at=40),
    "closed": lambda asked: replace(holding(asked), cut_at=0),
    "busy": lambda asked: error(429, "slow down", headers={"Retry-After": "0.05"}),
    "busy_date": lambda asked: error(429, "slow down", headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    "busy_riddle": lambda asked: error(429, "slow down", headers={"Retry-After": "soon"}),
    "quota": lambda asked: error(429, "you have no money left", code="insufficient_quota"),
    "down": lambda asked: error(500, "out of memory"),
    "gone": lambda asked: error(503, "overloaded"),
    "detail": lambda asked: Act(status=500, body=b'{"detail": "no such thing"}'),
    "plain": lambda asked: Act(status=500, body=b"Internal Server Error", headers={"Content-Type": "text/plain"}),
    "denied": lambda asked: error(401, "bad key"),
    "rejected": lambda asked: error(400, "this model takes no pictures", code=400),
    "moved": lambda asked: Act(status=307, headers={"Location": "http://localhost:9/v1/chat/completions"}),
    "html": lambda asked: Act(body=b"<html><body>hello</body></html>", headers={"Content-Type": "text/html"}),
    "empty": lambda asked: Act(body=b""),
    "nothing": lambda asked: Act(body=b"{}"),
    "null": lambda asked: Act(body=b'{"choices": null, "output": null, "status": "completed", "usage": null}'),
    "list": lambda asked: Act(body=b"[]"),
    "stream": lambda asked: Act(
        body=b'data: {"x": 1}\n\ndata: [DONE]\n\n', headers={"Content-Type": "text/event-stream"}
    ),
    "half_json": lambda asked: replace(whole := holding(asked), body=whole.body[:-20]),
    "json_lines": lambda asked: replace(whole := holding(asked), body=whole.body + b"\n" + whole.body),
    "deep": lambda asked: Act(body=b"[" * 200_000),
    "wrong_type": lambda asked: replace(holding(asked), headers={"Content-Type": "text/plain"}),
    "packed": lambda asked: replace(holding(asked), headers={"Content-Encoding": "gzip"}),
    "gigabyte": lambda asked: replace(holding(asked), headers={"Content-Length": str(10**9)}),
    "endless": lambda asked: replace(holding(asked), endless=True),
    "cut": lambda asked: answer(asked, _text(asked)[:-9], finish="length"),
    "cut_silently": lambda asked: _counted(answer(asked, _text(asked)[:-9]), asked.budget),
    "invalid": lambda asked: answer(asked, '{"hazard": "dragon"}'),
    "prose": lambda asked: answer(asked, "There is a person."),
    "two_answers": lambda asked: answer(asked, _text(asked) + "\n" + _text(asked)),
    "surrogates": lambda asked: answer(asked, '{"notes": "\\ud800 half a pair"}'),
    "outer_surrogates": lambda asked: answer(asked, '{"notes": "\ud800 half a pair", "hazard": "fire"}'),
    "twice": lambda asked: answer(asked, '{"hazard": "none", "hazard": "fire"}'),
    "refusal": lambda asked: _refusal(asked),
    "refusal_in_words": lambda asked: answer(asked, "I'm sorry, but I can't assist with that."),
    "refusal_in_a_field": lambda asked: answer(asked, _text(asked).replace("xxxxxxxxxx", "I cannot assist with that.")),
    "filtered": lambda asked: _filtered(asked),
    "fenced": lambda asked: answer(asked, f"```json\n{_text(asked)}\n```"),
    "thinking": lambda asked: answer(asked, f"<think>Is {{this}} fire?</think>\n{_text(asked)}"),
}
"""What a server can do, by name; the last two are no faults, only habits."""


def _counted(act: Act, tokens: int) -> Act:
    body = json.loads(act.body)
    for name in ("completion_tokens", "output_tokens"):
        if name in body["usage"]:
            body["usage"][name] = tokens
    return replace(act, body=json.dumps(body).encode())


def _refusal(asked: Received) -> Act:
    if asked.is_chat:
        return answer(asked, "", refusal="I will not look at this.")
    body = json.loads(answer(asked, "").body)
    body["output"][0]["content"] = [{"type": "refusal", "refusal": "I will not look at this."}]
    return Act(body=json.dumps(body).encode())


def _filtered(asked: Received) -> Act:
    if asked.is_chat:
        return answer(asked, "", finish="content_filter")
    body = json.loads(answer(asked, "", finish="length").body)
    body["incomplete_details"] = {"reason": "content_filter"}
    return Act(body=json.dumps(body).encode())


class FakeServer:
    """An HTTP server on the loopback device that does with each request what a function says.

    Use it in a `with` block. It counts requests and keeps the last of them.

    Args:
        behave: Says what to do; by default it holds the schema.
        tls: Its certificate, or None for a server in the clear.

    Attributes:
        base_url: Where it is.
        received: The last requests.
        count: How many came.
    """

    def __init__(self, behave: Behaviour = holding, *, tls: ssl.SSLContext | None = None) -> None:
        self.behave = behave
        self.base_url = ""
        self.received: deque[Received] = deque(maxlen=_KEPT)
        self.count = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-server", daemon=True)
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LONGEST_LINE, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"http{'s' if self._tls else ''}://127.0.0.1:{port}/v1"

    async def _stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await asyncio.sleep(0.01)  # for the transports to let go of their sockets

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101
        self._open.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(writer.wait_closed(), 1.0)
            writer.transport.abort()
            self._open.discard(task)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether the connection can be used again."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        received = Received(
            number=self.count, path=head[0].split()[1], headers=headers, body=json.loads(body) if body else {}
        )
        self.count += 1
        self.received.append(received)
        act = self.behave(received)
        await asyncio.sleep(act.wait_s)
        return await self._act(act, writer)

    async def _act(self, act: Act, writer: asyncio.StreamWriter) -> bool:
        usual = {"Content-Type": "application/json"}
        usual |= {"Transfer-Encoding": "chunked"} if act.endless else {"Content-Length": str(len(act.body))}
        lines = [f"{name}: {value}" for name, value in {**usual, **act.headers}.items()]
        writer.write("\r\n".join([f"HTTP/1.1 {act.status} Fake", *lines, "", ""]).encode())
        if act.cut_at is not None:
            writer.write(act.body[: act.cut_at])
            await writer.drain()
            writer.transport.abort()
            return False
        if act.endless:
            while True:
                writer.write(b"10000\r\n" + b" " * 2**16 + b"\r\n")
                await writer.drain()
        if act.drip_s is None:
            writer.write(act.body)
            await writer.drain()
            return True
        for position in range(len(act.body)):
            writer.write(act.body[position : position + 1])
            await writer.drain()
            await asyncio.sleep(act.drip_s)
        return True
