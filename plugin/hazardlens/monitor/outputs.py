"""All outputs of a live run; one that fails is named and left out for that frame, and the run goes on."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.alerts import Alerts
from hazardlens.outputs.base import Output
from hazardlens.outputs.rotating import RotatingRecords

_log = logging.getLogger(__name__)


class Outputs:
    """Hands outcomes to every output.

    Args:
        outputs: The outputs, in the order in which they get each outcome.

    Attributes:
        failures: Times that each kind of output failed, by its name.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        self._outputs = tuple(outputs)
        self._failing: set[str] = set()
        self.failures: Counter[str] = Counter()

    @property
    def files(self) -> dict[str, dict[str, Any]]:
        """For each file of lines: lines that wait to be written, lines that fell out, and why, by its name."""
        lines = [one.lines for one in self._outputs if isinstance(one, RotatingRecords | Alerts)]
        return {
            one.path.name: {"waiting": one.waiting, "lost": one.lost, "failure": one.failure}
            for one in lines
            if one is not None
        }

    def write(self, outcome: Outcome) -> None:
        """Hand over an outcome."""
        for output in self._outputs:
            name = type(output).__name__
            try:
                output.write(outcome)
            except Exception as error:  # noqa: BLE001 - a run of days must not end with one of its outputs
                self._failed(name, error)
            else:
                self._failing.discard(name)

    def close(self, *, complete: bool) -> None:
        """Close all of them."""
        for output in self._outputs:
            try:
                output.close(complete=complete)
            except Exception as error:  # noqa: BLE001 - the others must be closed too
                self._failed(type(output).__name__, error)

    def _failed(self, name: str, error: Exception) -> None:
        level = logging.DEBUG if name in self._failing else logging.WARNING
        self._failing.add(name)
        self.failures[name] += 1
        _log.log(level, "%s: %s: %s", name, type(error).__name__, error)
