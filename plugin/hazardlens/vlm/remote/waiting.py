"""Waiting no longer than one wants to for work that may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def within(work: Callable[[], _T], seconds: float) -> _T:
    """Do some work in a thread of its own, and give up on it after so long.

    A client's own time limits count from byte to byte, so that a server that never ends its headers outlasts them. Work
    that was given up goes on until it ends by itself; it keeps no program from ending.

    Raises:
        TimeoutError: If it is not done by then.
    """
    done: Future[_T] = Future()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)
        else:
            done.set_result(result)

    threading.Thread(target=run, name="hazardlens-probe", daemon=True).start()
    return done.result(timeout=max(0.0, seconds))
