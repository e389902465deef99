"""Answers kept for questions of exactly the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import replace

from hazardlens.vlm.base import Reply
from hazardlens.vlm.remote.connection import Endpoint
from hazardlens.vlm.remote.exchange import Asked

_KEPT = 256


class Reuse:
    """The last complete answers of one server.

    Args:
        endpoint: The server.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._replies: OrderedDict[str, Reply] = OrderedDict()

    def known(self, asked: Asked) -> Reply | None:
        """The answer to the same question, marked as reused, or None."""
        reply = self._replies.get(self._key(asked))
        return None if reply is None else replace(reply, reused=True, input_tokens=0, output_tokens=0, attempts=0)

    def keep(self, asked: Asked, reply: Reply) -> None:
        """Keep an answer, if it is complete."""
        if reply.end != "complete" or reply.reason is not None:
            return
        self._replies[self._key(asked)] = reply
        while len(self._replies) > _KEPT:
            self._replies.popitem(last=False)

    def _key(self, asked: Asked) -> str:
        endpoint = self._endpoint
        whole = [endpoint.model, endpoint.base_url, endpoint.api, asked.messages(""), asked.arguments(asked.budget)]
        return hashlib.sha256(json.dumps(whole, sort_keys=True, default=repr).encode()).hexdigest()
