"""How long and how often a server is tried: the one policy of questions and probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenacity import RetryCallState, wait_exponential_jitter

from hazardlens.vlm.remote.faults import SERVER_FAULTS, Fault, Kind
from hazardlens.vlm.remote.limits import Gate


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long and how often a question is tried.

    Attributes:
        within_s: Wall time for all tries together.
        try_s: Wall time for one.
        tries: Most tries against faults of the server.
        first_wait_s: Wait after the first failed try, about; it doubles from try to try.
        longest_wait_s: Longest such wait.
        probe_s: Wall time for all questions of a probe together.
    """

    within_s: float = 60.0
    try_s: float = 60.0
    tries: int = 4
    first_wait_s: float = 0.5
    longest_wait_s: float = 8.0
    probe_s: float = 180.0

    def helps(self, kind: Kind, faults: Mapping[Kind, int]) -> bool:
        """Whether another try can help against a fault of the server, as long as there is time.

        Args:
            kind: The last fault.
            faults: Faults so far, the last among them.
        """
        if kind in SERVER_FAULTS:
            return sum(faults.get(one, 0) for one in SERVER_FAULTS) < self.tries
        return kind == "busy"

    def wait_s(self, state: RetryCallState, gate: Gate) -> float:
        """Seconds until the next try; where the server is busy and says not for how long, all wait as long as that."""
        grown = wait_exponential_jitter(
            multiplier=self.first_wait_s, max=self.longest_wait_s, jitter=self.first_wait_s
        )(state)
        fault = state.outcome.exception() if state.outcome is not None else None
        is_busy = isinstance(fault, Fault) and fault.kind == "busy"
        if isinstance(fault, Fault) and is_busy and fault.wait_s is None:
            gate.hold(grown)
        return max(grown, gate.opens_in_s(last=is_busy))
