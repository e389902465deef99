"""The one event loop that all remote VLMs share, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

THREAD_NAME = "hazardlens-remote"
_T = TypeVar("_T")
_starting = threading.Lock()
_running: list[asyncio.AbstractEventLoop] = []


def _loop() -> asyncio.AbstractEventLoop:
    with _starting:
        if not _running:
            loop = asyncio.new_event_loop()
            # A daemon, for a server that hangs must not keep the program from ending.
            threading.Thread(target=loop.run_forever, name=THREAD_NAME, daemon=True).start()
            _running.append(loop)
        return _running[0]


def _forget() -> None:
    """A forked process has the loop without its thread."""
    _running.clear()
    _starting.release()


os.register_at_fork(before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_forget)


def submit(work: Coroutine[Any, Any, _T]) -> Future[_T]:
    """Run a coroutine in the loop's thread."""
    return asyncio.run_coroutine_threadsafe(work, _loop())
