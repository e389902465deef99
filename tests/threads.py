"""Threads of the package that somebody left behind."""

import threading

_FOR_GOOD = "hazardlens-remote"
"""The event loop of all servers, which a process keeps."""


def left() -> list[str]:
    """Names of the threads that are there and should end with what began them."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("hazardlens") and name != _FOR_GOOD]
