"""What guards every byte to and from a server: only the headers that are meant, answers of bounded size and time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import cast

import httpx2

_OWN_HEADERS = frozenset(
    {"host", "accept", "accept-encoding", "connection", "user-agent", "content-type", "content-length", "authorization"}
)

_leaving: ContextVar[list[None] | None] = ContextVar("leaving", default=None)
"""Gets an item for each request that leaves."""


class UnsentError(ValueError):
    """A request that cannot be written, so that nothing was sent; another try would fail as well."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Tell errors of a request that never left from those of an answer.

    Raises:
        UnsentError: In place of an error of its values, if nothing was sent.
    """
    left: list[None] = []
    token = _leaving.set(left)
    try:
        yield
    except (ValueError, TypeError, RecursionError) as error:
        if left:
            raise
        raise UnsentError(f"the request cannot be written: {type(error).__name__}: {error}") from error
    finally:
        _leaving.reset(token)


class AnswerTooLargeError(httpx2.TransportError):
    """An answer beyond all bounds, or packed, so that its size cannot be told; another try would bring the same."""


class _Bounds:
    """What is left of an answer's size and time."""

    def __init__(self, response: httpx2.Response, most_bytes: int, within_s: float) -> None:
        self._left = self._most = most_bytes
        self._until = time.monotonic() + within_s
        packed = response.headers.get("content-encoding", "identity")
        if packed not in ("", "identity"):
            raise AnswerTooLargeError(f"the server packed its answer ({packed}), though asked not to")
        promised = response.headers.get("content-length", "")
        if promised.isdecimal() and int(promised) > most_bytes:
            raise AnswerTooLargeError(self._message())

    def count(self, chunk: bytes) -> bytes:
        self._left -= len(chunk)
        if self._left < 0:
            raise AnswerTooLargeError(self._message())
        if time.monotonic() > self._until:
            raise httpx2.ReadTimeout("the answer came too slowly")
        return chunk

    def _message(self) -> str:
        return f"the answer is larger than {self._most:,} bytes"


class _Stream(httpx2.SyncByteStream):
    def __init__(self, stream: httpx2.SyncByteStream, bounds: _Bounds) -> None:
        self._stream, self._bounds = stream, bounds

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            yield self._bounds.count(chunk)

    def close(self) -> None:
        self._stream.close()


class _AsyncStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, bounds: _Bounds) -> None:
        self._stream, self._bounds = stream, bounds

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield self._bounds.count(chunk)

    async def aclose(self) -> None:
        await self._stream.aclose()


class Guard:
    """What a guarded transport lets pass.

    Args:
        headers: Names of headers that are meant to be sent, beside HTTP's own and the SDK's.
        most_bytes: Largest answer.
        within_s: Longest time that the body of an answer may take.
    """

    def __init__(self, headers: frozenset[str], *, most_bytes: int, within_s: float) -> None:
        self._headers = _OWN_HEADERS | {name.lower() for name in headers}
        self._most_bytes = most_bytes
        self._within_s = within_s

    def clean(self, request: httpx2.Request) -> None:
        """Take out headers that nobody meant, such as those that the SDK finds in the environment."""
        left = _leaving.get()
        if left is not None:
            left.append(None)
        for name in list(request.headers):
            if name.lower() not in self._headers and not name.lower().startswith("x-stainless-"):
                del request.headers[name]
        request.headers["accept-encoding"] = "identity"

    def bounds(self, response: httpx2.Response) -> _Bounds:
        """The bounds of an answer that has begun."""
        return _Bounds(response, self._most_bytes, self._within_s)


class GuardedTransport(httpx2.BaseTransport):
    """A transport under a guard."""

    def __init__(self, inner: httpx2.BaseTransport, guard: Guard) -> None:
        self._inner, self._guard = inner, guard

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and bound its answer."""
        self._guard.clean(request)
        response = self._inner.handle_request(request)
        try:
            bounds = self._guard.bounds(response)
        except AnswerTooLargeError:
            response.close()
            raise
        response.stream = _Stream(cast("httpx2.SyncByteStream", response.stream), bounds)
        return response

    def close(self) -> None:
        """Close what it wraps."""
        self._inner.close()


class AsyncGuardedTransport(httpx2.AsyncBaseTransport):
    """The same, asynchronous."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, guard: Guard) -> None:
        self._inner, self._guard = inner, guard

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and bound its answer."""
        self._guard.clean(request)
        response = await self._inner.handle_async_request(request)
        try:
            bounds = self._guard.bounds(response)
        except AnswerTooLargeError:
            await response.aclose()
            raise
        response.stream = _AsyncStream(cast("httpx2.AsyncByteStream", response.stream), bounds)
        return response

    async def aclose(self) -> None:
        """Close what it wraps."""
        await self._inner.aclose()
