"""Settings of a VLM that is asked over the network; they stand beside the others in `vlm`."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from hazardlens.pipeline.values import Duration, Part
from hazardlens.secrecy import may_be_secret, secrets_in


def _without_password(value: object) -> object:
    """Refuse a URL with a password or a query in it before anything can quote it."""
    if not isinstance(value, str):
        return value
    parts = urlsplit(value)
    if "@" in parts.netloc:
        raise ValueError("holds a user name or a password; put the key into a variable and name it in api_key_env")
    if parts.query or parts.fragment:
        raise ValueError(
            "ends in a query or a fragment; put a key into a variable and name it in api_key_env or headers_env, "
            "and other parts of a query into request.extra_query"
        )
    return value


def _no_secrets(value: object) -> object:
    """Refuse headers that carry a secret, whose values would stand in results."""
    _refuse([str(name) for name in value if may_be_secret(name)] if isinstance(value, dict) else [])
    return value


def _request(value: object) -> object:
    """Refuse the same anywhere in the arguments of requests."""
    _refuse([place for place, _ in secrets_in(value)] if isinstance(value, dict) else [])
    return value


def _refuse(places: list[str]) -> None:
    if places:
        raise ValueError(f"{', '.join(places)} may be a secret; name its variable in headers_env instead")


class RemoteSettings(Part):
    """How a server is called; it is one where `base_url` or `api` is set.

    Attributes:
        base_url: The server's base URL, or None for OpenAI's own.
        api: `chat.completions` or `responses`.
        dialect: What kind of server it is, or `auto` to find it out.
        api_key_env: Environment variable that holds the key.
        headers: More headers, for what is no secret.
        headers_env: More headers, by name, from environment variables.
        ca_file: Certificates of the authority that vouches for the server.
        request: Arguments that go with every request, unchanged.
        concurrency: Questions in flight at once.
        try_timeout_s: Wall time that one try may take, or None for that of the whole answer.
        tries: Most tries against faults of the server.
        breaker_failures: Faults in a row after which the server is left alone.
        breaker_reset_s: For how long.
        jpeg_quality: Quality of the pictures sent.
        pictures: Whether pictures are sent.
        calls_per_minute: Most calls within a minute, or None.
        tokens_per_run: Most tokens, or None; a VLM that is handed to several runs in Python has them only once.
        reuse: Whether an answer is reused for exactly the same bytes.
        probe: Whether the server is asked what it does before the first question.
        probe_timeout_s: Wall time that all of that may take each time, or None for three times that of an answer.
    """

    base_url: Annotated[str | None, BeforeValidator(_without_password)] = None
    api: Literal["responses", "chat.completions"] | None = None
    dialect: str = "auto"
    api_key_env: str | None = None
    headers: Annotated[dict[str, str], BeforeValidator(_no_secrets)] = Field(default={})
    headers_env: dict[str, str] = Field(default={})
    ca_file: str | None = None
    request: Annotated[dict[str, Any], BeforeValidator(_request)] = Field(default={})
    concurrency: int = Field(default=1, ge=1, le=256)
    try_timeout_s: Annotated[Duration, Field(gt=0)] | None = None
    tries: int = Field(default=4, ge=1)
    breaker_failures: int = Field(default=5, ge=1)
    breaker_reset_s: Duration = 30.0
    jpeg_quality: int = Field(default=85, ge=1, le=100)
    pictures: bool = True
    calls_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_run: int | None = Field(default=None, ge=1)
    reuse: bool = False
    probe: bool = True
    probe_timeout_s: Annotated[Duration, Field(gt=0)] | None = None

    @property
    def is_remote(self) -> bool:
        """Whether a server is called."""
        return self.base_url is not None or self.api is not None
