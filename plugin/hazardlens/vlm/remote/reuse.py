"""Answers kept for questions of exactly the same bytes."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections import OrderedDict
from dataclasses import replace

from hazardlens.vlm.base import Reply
from hazardlens.vlm.remote.connection import Endpoint
from hazardlens.vlm.remote.exchange import Asked

_KEPT = 256
_KEPT_BYTES = 16 * 2**20


class Reuse:
    """The last complete answers of one server, as many as fit into 16 MiB; safe to share between threads.

    Args:
        endpoint: The server.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._replies: OrderedDict[str, Reply] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def key(self, asked: Asked) -> str:
        """What a question is known by: a digest of all its bytes, which takes a while."""
        endpoint = self._endpoint
        whole = [endpoint.model, endpoint.base_url, endpoint.api, asked.messages(""), asked.arguments(asked.budget)]
        return hashlib.sha256(json.dumps(whole, sort_keys=True, default=repr).encode()).hexdigest()

    def known(self, key: str) -> Reply | None:
        """The answer to the same question, marked as reused, or None."""
        with self._lock:
            reply = self._replies.get(key)
        return None if reply is None else replace(reply, reused=True, input_tokens=0, output_tokens=0, attempts=0)

    def keep(self, key: str, reply: Reply) -> None:
        """Keep an answer, if it is complete."""
        if reply.end != "complete" or reply.reason is not None:
            return
        with self._lock:
            before = self._replies.pop(key, None)
            self._replies[key] = reply
            self._bytes += _size(reply) - (0 if before is None else _size(before))
            while len(self._replies) > _KEPT or self._bytes > _KEPT_BYTES:
                self._bytes -= _size(self._replies.popitem(last=False)[1])


def _size(reply: Reply) -> int:
    """Bytes that the texts of a reply take."""
    return sys.getsizeof(reply.text) + sys.getsizeof(reply.raw)
