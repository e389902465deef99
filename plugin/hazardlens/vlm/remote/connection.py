"""The one place that knows the SDK: an `ultralytics.LLM` whose clients are set up before its first call."""

from __future__ import annotations

import base64
import logging
import os
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2

from hazardlens.errors import PipelineError, WeightsError
from hazardlens.secrecy import may_be_secret
from hazardlens.vlm.remote.dialects import Api
from hazardlens.vlm.remote.redaction import Redactor
from hazardlens.vlm.remote.transport import AsyncGuardedTransport, Guard, GuardedTransport, writing

OPENAI_KEY = "OPENAI_API_KEY"
_NO_KEY = "none"
_OPENAI_URL = "https://api.openai.com/v1"
_WIRE_LOGS = ("httpcore2", "httpx2", "openai._base_client", "openai._response", "openai._legacy_response")
_CONNECT_S = 10.0
_MOST_BYTES = 16 * 2**20

Messages = list[dict[str, Any]]
"""Input of a request, in the form of its API."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where a server is and how it is called.

    Attributes:
        model: Name of the model there.
        base_url: Its base URL, ending in `/v1` as a rule, or None for OpenAI's own.
        api: Which of the two APIs is called.
        api_key_env: Environment variable that holds the key; None for OpenAI's own, or for no key where a URL is given.
        headers: More headers, for what is no secret.
        headers_env: More headers, by name, from environment variables.
        more_headers: Names of headers that requests bring along.
        more_secrets: What else may be a secret, and must stand nowhere.
        ca_file: Certificates of the authority that vouches for the server, or None for the system's.
        try_timeout_s: Wall time that one try may take.
        concurrency: Most connections at once.
        most_bytes: Largest answer that is read.
    """

    model: str
    base_url: str | None = None
    api: Api = "chat.completions"
    api_key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    headers_env: Mapping[str, str] = field(default_factory=dict)
    more_headers: tuple[str, ...] = ()
    more_secrets: tuple[str, ...] = field(default=(), repr=False)
    ca_file: str | None = None
    try_timeout_s: float = 60.0
    concurrency: int = 1
    most_bytes: int = _MOST_BYTES

    @property
    def place(self) -> str:
        """Where it is, without anything secret that a URL may hold."""
        if self.base_url is None:
            return "api.openai.com"
        parts = urlsplit(self.base_url)
        return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path.rstrip('/')}"


class Connection:
    """Calls one server through `ultralytics.LLM`, never retrying by itself and never following a redirect.

    Args:
        endpoint: Where it is.

    Raises:
        PipelineError: If the URL is none or holds a password or a query, or an environment variable or the CA file is
            missing.
        WeightsError: If the installed Ultralytics has no `LLM`.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        _check_url(endpoint)
        key_name = endpoint.api_key_env or (OPENAI_KEY if endpoint.base_url is None else None)
        key = _NO_KEY if key_name is None else _from_environment("vlm.api_key_env", key_name)
        secret_headers = {
            name: _from_environment(f"vlm.headers_env.{name}", variable)
            for name, variable in endpoint.headers_env.items()
        }
        told = [value for name, value in endpoint.headers.items() if may_be_secret(name)]
        of_proxy = _passwords(_proxy(endpoint.base_url or _OPENAI_URL))
        keys = [key] if key_name else []
        self.redact = Redactor([*secret_headers.values(), *keys, *told, *endpoint.more_secrets, *of_proxy])
        self._llm = _llm(endpoint, key, {**endpoint.headers, **secret_headers})

    async def call_async(self, messages: Messages, arguments: Mapping[str, Any]) -> object:
        """Ask once, asynchronously; gives what the SDK gives, raises what it raises, or an UnsentError."""
        with writing():
            return await self._llm.async_call(messages, **arguments)

    def call(self, messages: Messages, arguments: Mapping[str, Any]) -> object:
        """Ask once; gives what the SDK gives, raises what it raises, or an UnsentError."""
        with writing():
            return self._llm(messages, **arguments)

    async def close_async(self) -> None:
        """Close the connections."""
        try:
            await self._llm.async_client.close()
        finally:
            self._llm.client.close()


def messages_for(prompt: str, pictures: Sequence[str], api: Api) -> Messages:
    """Prompt and pictures as the input of a request: the pictures first, as a local model gets them.

    Args:
        prompt: The prompt.
        pictures: Data URIs of the pictures, in order.
        api: The API that is called.
    """
    if api == "responses":
        parts: list[dict[str, Any]] = [
            {"type": "input_image", "image_url": picture, "detail": "auto"} for picture in pictures
        ]
        return [{"role": "user", "content": [*parts, {"type": "input_text", "text": prompt}]}]
    parts = [{"type": "image_url", "image_url": {"url": picture}} for picture in pictures]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": prompt}] if pictures else prompt}]


def _llm(endpoint: Endpoint, key: str, headers: Mapping[str, str]) -> Any:
    import hazardlens.detect.ultralytics_setup  # noqa: F401 - settles what Ultralytics does when it is imported

    try:
        from ultralytics import LLM
    except ImportError as error:
        raise WeightsError("this Ultralytics has no LLM", help="pip install -U ultralytics") from error
    from openai import AsyncOpenAI, OpenAI

    for name in _WIRE_LOGS:  # they print whole URLs, and headers and ids as a server sends them
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.WARNING)
    # What the SDK finds in its own environment variables goes to OpenAI only.
    ambient = () if endpoint.base_url else ("openai-organization", "openai-project")
    guard = Guard(
        frozenset({*headers, *endpoint.more_headers, *ambient}),
        most_bytes=endpoint.most_bytes,
        within_s=endpoint.try_timeout_s,
    )
    context = _certificates(endpoint.ca_file)
    timeout = httpx2.Timeout(endpoint.try_timeout_s, connect=min(_CONNECT_S, endpoint.try_timeout_s))
    limits = httpx2.Limits(max_connections=endpoint.concurrency + 1, max_keepalive_connections=endpoint.concurrency)
    options: dict[str, Any] = {
        "api_key": key,
        "base_url": endpoint.base_url or _OPENAI_URL,
        "default_headers": dict(headers),
        "timeout": timeout,
        "max_retries": 0,
    }
    llm = LLM(endpoint.model, api=endpoint.api, base_url=endpoint.base_url, api_key=key)
    proxy = _proxy(endpoint.base_url or _OPENAI_URL)
    # Only probes call at once, seldom; they leave no connection open.
    inner = httpx2.HTTPTransport(verify=context, limits=httpx2.Limits(max_keepalive_connections=0), proxy=proxy)
    llm.client = OpenAI(
        http_client=httpx2.Client(transport=GuardedTransport(inner, guard), timeout=timeout, follow_redirects=False),
        **options,
    )
    async_inner = httpx2.AsyncHTTPTransport(verify=context, limits=limits, proxy=proxy)
    llm.async_client = AsyncOpenAI(
        http_client=httpx2.AsyncClient(
            transport=AsyncGuardedTransport(async_inner, guard), timeout=timeout, follow_redirects=False
        ),
        **options,
    )
    # The SDK loads its parts when they are first touched, which would count as time of the first answer.
    for client in (llm.client, llm.async_client):
        client.responses, client.chat.completions  # noqa: B018
    return llm


def _check_url(endpoint: Endpoint) -> None:
    if endpoint.base_url is None:
        return
    try:
        parts = urlsplit(endpoint.base_url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        secret = parts.username is not None or parts.password is not None
        more = bool(parts.query or parts.fragment)
    except ValueError:
        fine = secret = more = False
    if secret:
        raise PipelineError(
            "vlm.base_url: holds a user name or a password, which would be written into results",
            help="Put the key into an environment variable and name that in vlm.api_key_env.",
        )
    if more:
        raise PipelineError(
            "vlm.base_url: ends in a query or a fragment, which would be written into results",
            help="Keys go into environment variables named in vlm.api_key_env or vlm.headers_env, other parts of a "
            "query into vlm.request.extra_query.",
        )
    if not fine:
        raise PipelineError("vlm.base_url: expected a URL such as http://127.0.0.1:8000/v1")


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for a URL, or None."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(parts.scheme)


def _passwords(proxy: str | None) -> list[str]:
    """The password in a proxy's URL, however it may be spelled."""
    parts = urlsplit(proxy or "")
    if not parts.password:
        return []
    user, password = unquote(parts.username or ""), unquote(parts.password)
    return [parts.password, password, base64.b64encode(f"{user}:{password}".encode()).decode()]


def _from_environment(place: str, variable: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise PipelineError(
            f"{place}: the environment variable {variable} is not set", help=f"Set it: export {variable}=..."
        )
    return value


@lru_cache(maxsize=8)
def _certificates(ca_file: str | None) -> ssl.SSLContext:
    """Whom to trust; made once, since reading all certificates takes a while."""
    try:
        return httpx2.create_ssl_context() if ca_file is None else ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise PipelineError(f"vlm.ca_file: {ca_file} holds no certificates that can be read: {error}") from error
