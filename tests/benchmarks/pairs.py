"""Interleaved pairs: A B, B A, A B, ..., so that a machine whose speed drifts does not favour one side."""

import statistics
import time
from collections.abc import Callable


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call in seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratios(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    pairs: int,
    measure: Callable[[Callable[[], object]], float] = seconds,
) -> list[float]:
    """Time of `ours` over that of `theirs`, pair by pair, after one uncounted pair.

    Args:
        ours: One side.
        theirs: The other.
        pairs: How many pairs count.
        measure: Does the work and tells its time in seconds; by default its wall time.
    """
    ours(), theirs()
    found = []
    for pair in range(pairs):
        order = (ours, theirs) if pair % 2 == 0 else (theirs, ours)
        times = {work: measure(work) for work in order}
        found.append(times[ours] / times[theirs])
    return found


def spread(values: list[float]) -> str:
    """Median with least and greatest, for printing."""
    return f"{statistics.median(values):.3f} (least {min(values):.3f}, greatest {max(values):.3f}, n={len(values)})"
