"""A remote VLM: any OpenAI-compatible server, through `ultralytics.LLM`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

from hazardlens.errors import ServerError
from hazardlens.schema import GroundedSchema
from hazardlens.secrecy import secrets_in
from hazardlens.vlm.base import Enforced, Question, Reply, Shown, View, Vlm
from hazardlens.vlm.remote.connection import Connection, Endpoint, messages_for
from hazardlens.vlm.remote.dialects import AUTO, DIALECTS, Api, Dialect, first_dialect
from hazardlens.vlm.remote.exchange import Asked, Exchange, Line, new_breaker
from hazardlens.vlm.remote.limits import Gate, Spending
from hazardlens.vlm.remote.loop import submit
from hazardlens.vlm.remote.patience import Patience
from hazardlens.vlm.remote.pictures import data_uris
from hazardlens.vlm.remote.probe import Prober
from hazardlens.vlm.remote.proof import Proof, holds, prove
from hazardlens.vlm.remote.reuse import Reuse
from hazardlens.vlm.remote.wire import Wired, budget_for, merged, wired

_log = logging.getLogger(__name__)

_LOOKS_UP_S = 0.2
"""Each look takes processor time from the detector, for every question in flight."""
_WITHIN_S = 60.0
_TOKENS, _TOKENS_PER_OBJECT = 512, 24
_PROBE_ANSWERS = 3


class RemoteVlm(Vlm):
    """A model on a server.

    Every answer is validated here, whatever the server promises. `prepare` asks the server a few short questions to see
    what it does; until then, and where it does not hold the schema, `enforced` is `checked`.

    Args:
        model: Name of the model on the server.
        base_url: The server's base URL, or None for OpenAI's own.
        api: `chat.completions` or `responses`.
        dialect: A row's name, or `auto` to find it out.
        api_key_env: Environment variable that holds the key.
        headers: More headers, for what is no secret.
        headers_env: More headers, by name, from environment variables.
        ca_file: Certificates of the authority that vouches for the server, or None for the system's.
        request: Arguments that go with every request, unchanged, over those of hazardlens; a null takes one out.
        concurrency: Questions in flight at once.
        timeout_s: Wall time that one answer may take, all tries together; None for 60 s.
        try_timeout_s: Wall time that one try may take, or None for all of it.
        tries: Most tries against faults of the server.
        first_wait_s: Wait after the first failed try, about.
        breaker_failures: Faults in a row after which the server is left alone; at least twice `concurrency`, so that
            questions which failed together are no row.
        breaker_reset_s: For how long.
        max_new_tokens: Tokens that an answer may take, or None for 512 and 24 for each object.
        temperature: Sampling temperature, where the dialect takes it.
        top_p: As the server takes it, or None.
        seed: Seed of the sampling, where the dialect takes it.
        view: How it is shown its questions.
        jpeg_quality: Quality of the pictures sent, 1 to 100.
        pictures: Whether pictures are sent; without them the model knows only what the detector found.
        calls_per_minute: Most calls within a minute, or None.
        tokens_per_run: Most tokens in the life of this VLM, probes among them, or None; where it is handed to several
            runs, it has them only once.
        reuse: Whether an answer is reused for exactly the same bytes.
        probe: Whether the server is asked what it does before the first question.
        probe_timeout_s: Wall time that all of that may take each time, or None for three times `timeout_s`.

    Raises:
        PipelineError: If URL, dialect, CA file or an environment variable is at fault.
        WeightsError: If the installed Ultralytics has no `LLM`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        base_url: str | None = None,
        api: Api | None = None,
        dialect: str = AUTO,
        api_key_env: str | None = None,
        headers: Mapping[str, str] | None = None,
        headers_env: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        request: Mapping[str, Any] | None = None,
        concurrency: int = 1,
        timeout_s: float | None = None,
        try_timeout_s: float | None = None,
        tries: int = 4,
        first_wait_s: float = 0.5,
        breaker_failures: int = 5,
        breaker_reset_s: float = 30.0,
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        top_p: float | None = None,
        seed: int = 0,
        view: View = Vlm.view,
        jpeg_quality: int = 85,
        pictures: bool = True,
        calls_per_minute: int | None = None,
        tokens_per_run: int | None = None,
        reuse: bool = False,
        probe: bool = True,
        probe_timeout_s: float | None = None,
    ) -> None:
        within_s = timeout_s or _WITHIN_S
        patience = Patience(
            within_s=within_s,
            try_s=min(try_timeout_s or within_s, within_s),
            tries=tries,
            first_wait_s=first_wait_s,
            probe_s=probe_timeout_s or _PROBE_ANSWERS * within_s,
        )
        endpoint = Endpoint(
            model=str(model),
            base_url=base_url,
            api=api or "chat.completions",
            api_key_env=api_key_env,
            headers=dict(headers or {}),
            headers_env=dict(headers_env or {}),
            more_headers=tuple((request or {}).get("extra_headers") or {}),
            more_secrets=tuple(text for _, text in secrets_in(request or {})),
            ca_file=ca_file,
            try_timeout_s=patience.try_s,
            concurrency=concurrency,
        )
        connection = Connection(endpoint)
        self.name = f"{model} at {endpoint.place}"
        self.view = view
        self.concurrency = concurrency
        self.enforced: Enforced = "checked"
        self.proof: Proof | None = None
        self._dialect = first_dialect(dialect, base_url)
        self._is_found_out = dialect != AUTO or base_url is None
        self._line = Line(
            connection=connection,
            breaker=new_breaker(max(breaker_failures, 2 * concurrency), breaker_reset_s),
            gate=Gate(),
            spending=Spending(calls_per_minute=calls_per_minute, tokens_per_run=tokens_per_run),
            patience=patience,
        )
        self._request = dict(request or {})
        self._sampling = {"temperature": temperature, "top_p": top_p, "seed": seed}
        self._max_new_tokens = max_new_tokens
        self._jpeg_quality = jpeg_quality
        self._pictures = pictures
        self._probes = probe
        self._reuse = Reuse(endpoint) if reuse else None
        self._preparing = threading.Lock()
        self._end = weakref.finalize(self, _close, connection)

    @property
    def tokens(self) -> int:
        """Tokens of all answers and probes so far, of input and output together."""
        return self._line.spending.tokens

    @property
    def sends_pictures(self) -> bool:
        """Whether pictures are sent; without them it knows only what the detector found."""
        return self._pictures

    @property
    def dialect(self) -> Dialect:
        """The dialect that is spoken."""
        return self._dialect

    def wired(self, schema: GroundedSchema) -> Wired:
        """A schema as it goes over the wire."""
        return wired(schema, self._dialect, self._line.connection.endpoint.api)

    def prepare(self, schema: GroundedSchema) -> None:
        """See that the schema fits, and what the server does; the first time, also that it answers and sees pictures.

        Raises:
            SchemaError: If the schema is larger than the server takes.
            ServerError: If the server does not answer, sees no pictures although they are sent, or if what it does
                could not be seen.
        """
        with self._preparing:
            self.wired(schema)
            if not self._probes:
                return
            line = self._line
            prober = Prober(line.connection, self._request, line.spending, line.gate, line.patience)
            self.enforced = "checked"
            if self.proof is None:
                self.proof = prove(
                    prober, schema, self._dialect, is_settled=self._is_found_out, pictures=self._pictures
                )
                self._dialect, self._is_found_out = DIALECTS[self.proof.dialect], True
            elif self.proof.enforces:
                held, how = holds(prober, schema, self._dialect)
                self.proof = replace(self.proof, held=held, how=how)
            self.enforced = "server" if self.proof.enforces else "checked"
            if self._is_blind:
                raise ServerError(
                    self._blindness,
                    help="Name a model that sees, or set vlm.pictures: false to ask about the detections only.",
                )
            if self._pictures and self.proof.images == "unknown":
                _log.warning("whether %s looks at pictures could not be seen: %s", self.name, self.proof.why)
            if self.proof.held == "unknown":
                unseen = f"whether {self.name} holds the schema could not be seen: {self.proof.how}"
                _log.warning("%s; its answers are only checked afterwards", unseen)
            if self.proof.held == "no":
                _log.warning("%s does not hold the schema; its answers are only checked afterwards", self.name)

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        """Ask the server, and validate what it says; every failure is in the reply.

        Raises:
            TimeoutError: If `stop` is set.
        """
        begun = self._begun(question, shown)
        if isinstance(begun, Reply):
            return begun
        asked, key = begun
        future = submit(Exchange(line=self._line, asked=asked).run())
        while not wait([future], timeout=_LOOKS_UP_S).done:
            if stop.is_set():
                future.cancel()
                raise TimeoutError("stopped before the answer was complete")
        return self._ended(key, future.result())

    async def ask_async(self, question: Question, shown: Shown) -> Reply:
        """Ask the server, and validate what it says; every failure is in the reply."""
        begun = await asyncio.to_thread(self._begun, question, shown)
        if isinstance(begun, Reply):
            return begun
        asked, key = begun
        return self._ended(key, await Exchange(line=self._line, asked=asked).run())

    def close(self) -> None:
        """Close the connections; asks nothing more."""
        self._end()

    @property
    def _is_blind(self) -> bool:
        return self._pictures and self.proof is not None and self.proof.images == "no"

    @property
    def _blindness(self) -> str:
        return f"{self.name} takes no pictures: {self.proof.why if self.proof else ''}"

    def _begun(self, question: Question, shown: Shown) -> Reply | tuple[Asked, str | None]:
        """The question on the wire, and what its answer is kept by; or the reply where the server need not be asked."""
        if self._is_blind:
            return Reply(text="", end="error", reason=self._blindness, attempts=0, enforced=self.enforced)
        asked = self._asked(question, shown)
        if self._reuse is None:
            return asked, None
        key = self._reuse.key(asked)
        return self._reuse.known(key) or (asked, key)

    def _ended(self, key: str | None, reply: Reply) -> Reply:
        if self._reuse is not None and key is not None:
            self._reuse.keep(key, reply)
        return reply

    def _asked(self, question: Question, shown: Shown) -> Asked:
        api, row = self._line.connection.endpoint.api, self._dialect
        sent = self.wired(question.schema)
        prompt = shown.prompt if self.enforced == "server" else f"{shown.prompt}\n\n{sent.told}"
        pictures = data_uris(shown, quality=self._jpeg_quality) if self._pictures else ()
        sampling = {name: value for name, value in self._sampling.items() if name in row.sampling}
        if api == "responses":
            sampling.pop("seed", None)
        budget = self._max_new_tokens or _TOKENS + _TOKENS_PER_OBJECT * question.asked
        return Asked(
            schema=question.schema,
            messages=lambda added: messages_for("\n\n".join(filter(None, (prompt, added))), pictures, api),
            arguments=lambda tokens: {
                **merged(sent.arguments, sampling, budget_for(row, api, tokens), self._request),
                "stream": False,
            },
            budget=budget,
            enforced=self.enforced,
        )


def _close(connection: Connection) -> None:
    with contextlib.suppress(Exception):
        submit(connection.close_async())
