"""What servers take and hold, as data: one row for each kind of server. A row holds no code and makes no call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hazardlens.errors import PipelineError

Api = Literal["responses", "chat.completions"]
"""The two APIs of `ultralytics.LLM`."""

Wire = Literal[
    "json_schema",
    "body_json_schema",
    "function",
    "json_object",
    "none",
]
"""Where a schema stands in a request: the API's own place (`response_format`, or `text.format`), chat's
`response_format` in the body of either API, the one function that may be called, or nowhere."""

Texts = Literal["structured_outputs", "gbnf", "json"]
"""How labels and regular expressions are sent: vLLM's kinds, a llama.cpp grammar, or as a JSON object of one field."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Largest schema that a server takes.

    Attributes:
        properties: Properties of all objects together.
        depth: Objects within objects.
        enum_values: Values of all choices together.
        characters: Characters of all names and values together.
    """

    properties: int
    depth: int
    enum_values: int
    characters: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """One kind of server.

    Attributes:
        name: Its name in a pipeline file.
        source: How it is known: run by the full tests, or from the documents. Where nothing holds a schema, the models
            of those tests give no valid answer.
        chat: Where a schema stands on chat.completions.
        responses: The same on responses.
        keyed: Whether detections are an object keyed by id over shared `$defs`, in place of an array.
        strict: Whether all keys must be required and the root an object without alternatives; `strict` is then sent.
        leaves_out: Keywords that it does not carry; they are left to validation. `number.minimum` is that of a number
            that is no integer.
        limits: The largest schema that it takes, or None where no limit is known.
        texts: How labels and regular expressions are sent.
        chat_budget: Name of the token budget on chat.completions.
        sampling: Sampling settings that it takes.
        spelled: Whether it can be told how JSON is spelled, by llguidance's keyword `x-guidance`; backends that do not
            know that keyword ignore it.
    """

    name: str
    source: str
    chat: Wire
    responses: Wire
    keyed: bool = True
    strict: bool = False
    leaves_out: frozenset[str] = frozenset()
    limits: Limits | None = None
    texts: Texts = "json"
    chat_budget: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    sampling: frozenset[str] = frozenset({"temperature", "top_p", "seed"})
    spelled: bool = False

    def wire(self, api: Api) -> Wire:
        """Where a schema stands on an API."""
        return self.chat if api == "chat.completions" else self.responses


_RUN = "run by the full tests"
_RUN_IN_VAIN = "run by the full tests, without a valid answer"
_READ = "from the documents"
_NOT_STRICT = frozenset({"minLength", "maxLength", "allOf", "not", "prefixItems", "format"})

_ROWS = (
    Dialect(
        name="openai",
        source=_READ,
        chat="json_schema",
        responses="json_schema",
        strict=True,
        leaves_out=_NOT_STRICT,
        limits=Limits(properties=5_000, depth=10, enum_values=1_000, characters=120_000),
        chat_budget="max_completion_tokens",
        sampling=frozenset(),
    ),
    Dialect(
        name="vllm",
        source=_RUN,
        chat="json_schema",
        responses="json_schema",
        keyed=False,
        texts="structured_outputs",
        spelled=True,
    ),
    Dialect(
        name="llama.cpp",
        source=_RUN,
        chat="json_schema",
        responses="body_json_schema",
        leaves_out=frozenset({"number.minimum", "number.maximum", "multipleOf", "allOf", "not", "format"}),
        texts="gbnf",
    ),
    Dialect(
        name="ollama",
        source=_READ,
        chat="json_schema",
        responses="json_schema",
        leaves_out=frozenset({"number.minimum", "number.maximum", "multipleOf", "allOf", "not", "format"}),
    ),
    Dialect(name="lmstudio", source=_READ, chat="json_schema", responses="json_schema"),
    Dialect(
        name="transformers", source=_RUN_IN_VAIN, chat="none", responses="none", sampling=frozenset({"temperature"})
    ),
    Dialect(name="json_schema", source=_RUN, chat="json_schema", responses="json_schema"),
    Dialect(name="function", source=_READ, chat="function", responses="function", leaves_out=_NOT_STRICT),
    Dialect(name="json_object", source=_READ, chat="json_object", responses="json_object"),
    Dialect(name="prompt", source=_RUN_IN_VAIN, chat="none", responses="none"),
)

DIALECTS = {row.name: row for row in _ROWS}
"""The rows by name."""

AUTO = "auto"
"""In place of a dialect's name: it is found out."""


def first_dialect(name: str, base_url: str | None) -> Dialect:
    """The row to begin with: the one named, or the likeliest where it is to be found out.

    Raises:
        PipelineError: If there is none of that name.
    """
    if name != AUTO:
        return dialect(name)
    return DIALECTS["openai" if base_url is None else "json_schema"]


def dialect(name: str) -> Dialect:
    """The row of a name.

    Raises:
        PipelineError: If there is none.
    """
    if name not in DIALECTS:
        raise PipelineError(f"vlm.dialect: no dialect {name!r}", help=f"Known are: {AUTO}, {', '.join(DIALECTS)}.")
    return DIALECTS[name]
