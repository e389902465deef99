"""The status of a live run, as plain JSON types: what each part is doing and what it has done."""

from __future__ import annotations

import statistics
import threading
from typing import TYPE_CHECKING, Any

from hazardlens.cameras.clock import spelled

if TYPE_CHECKING:
    from hazardlens.monitor.running import Running
    from hazardlens.monitor.source import LiveSource
    from hazardlens.outputs.alerts import Alerts


def status(run: Running, *, complete: bool | None = None) -> dict[str, Any]:
    """Tell how a run stands.

    Args:
        run: The run's parts.
        complete: Whether all sources came to their ends, and none before it, or None while it goes on.
    """
    standing = run.stages.standing()
    return {
        "at": spelled(run.clock.date()),
        "running": complete is None,
        "complete": complete,
        "sources": {source.name: _source(source) for source in run.sources},
        "vlm": _vlm(run),
        "alerts": None if run.alerts is None else _alerts(run.alerts),
        "standing_still": None if standing is None else {"stage": standing[0], "seconds": round(standing[1], 1)},
        "stalls": dict(run.stages.stalls),
        "output_failures": dict(run.outputs.failures),
        "files": run.outputs.files,
        "latency_s": _latency(list(run.latencies_s)),
        "threads": threading.active_count(),
    }


def _source(source: LiveSource) -> dict[str, Any]:
    reader = source.reader
    return {
        "state": reader.state,
        "reason": reader.reason,
        "frames_read": reader.read,
        "frames_detected": source.detected,
        "frames_dropped": reader.arrivals.dropped,
        "failed": source.failed,
        "damaged": reader.damaged,
        "clock_jumps": reader.clock_jumps,
        "connections": reader.connections,
        "questions": {**source.answers, "superseded": source.superseded},
    }


def _alerts(alerts: Alerts) -> dict[str, Any]:
    return {
        "begun": alerts.begun,
        "ended": alerts.ended,
        "evidence_lost": alerts.evidence_lost,
        "told": alerts.told,
    }


def _vlm(run: Running) -> dict[str, Any] | None:
    lane = run.lane
    if lane is None:
        return None
    held_s = lane.held_s
    return {
        "model": lane.vlm.name,
        "state": "hangs" if held_s is not None else "asking" if lane.under_way else "idle",
        "held_s": None if held_s is None else round(held_s, 1),
        "calls": lane.calls,
        "under_way": lane.under_way,
    }


def _latency(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]
    return {"median": round(statistics.median(ordered), 4), "p95": round(p95, 4)}
