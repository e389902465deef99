"""Interleaved pairs: A B, B A, A B, ..., so that a machine whose speed drifts does not favour one side."""

import statistics
import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call in seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratios(ours: Callable[[], object], theirs: Callable[[], object], *, pairs: int) -> list[float]:
    """Wall time of `ours` over that of `theirs`, pair by pair, after one uncounted pair."""
    ours(), theirs()
    found = []
    for pair in range(pairs):
        order = (ours, theirs) if pair % 2 == 0 else (theirs, ours)
        times = {work: seconds(work) for work in order}
        found.append(times[ours] / times[theirs])
    return found


def spread(values: list[float]) -> str:
    """Median with least and greatest, for printing."""
    return f"{statistics.median(values):.3f} (least {min(values):.3f}, greatest {max(values):.3f}, n={len(values)})"
