"""`alerts.jsonl`: a line where an alert begins and one where it ends; its evidence; and whoever is to be told."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from hazardlens.alerts.evidence import Evidence
from hazardlens.alerts.notify import Notifier
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output
from hazardlens.outputs.folder import ALERTS, EVIDENCE
from hazardlens.outputs.rotating import RotatingLines
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_P = ParamSpec("_P")

OnAlert = Callable[[dict[str, Any]], object]
"""Gets each alert as it begins and as it ends."""


class Alerts(Output):
    """Hands on the alerts in records.

    Args:
        pipeline: What is kept, and who is told.
        schema: The schema of the records' fields.
        folder: Where lines and evidence go, or None.
        on_alert: Told of each alert, in the run's own thread, or None.
        keep: Alerts whose evidence is kept, or None for all.
        rotate_bytes: Size at which `alerts.jsonl` is put aside, or None for never.
        keep_files: Files of lines kept, the one being written included.
        patience_s: Time that the end of the run gives to videos, and to the command and the webhook, each.
        demo: Whether pictures and videos are marked as made by demo models.

    Attributes:
        begun: Alerts that began.
        ended: Alerts that ended.

    Raises:
        OutputError: If the folder cannot be written to.
    """

    needs_pixels = True

    def __init__(
        self,
        pipeline: Pipeline,
        schema: FieldSchema,
        *,
        folder: Path | None,
        on_alert: OnAlert | None = None,
        keep: int | None = None,
        rotate_bytes: int | None = None,
        keep_files: int = 1,
        patience_s: float | None = None,
        demo: bool = False,
    ) -> None:
        settings = pipeline.alerts
        self.begun = self.ended = 0
        self._on_alert = on_alert
        self._patience_s = patience_s
        self.lines: RotatingLines | None = None
        if folder is not None:
            self.lines = RotatingLines(folder / ALERTS, rotate_bytes=rotate_bytes, keep=keep_files)
        self._failing = False
        self._evidence: Evidence | None = None
        if folder is not None and settings.evidence is not None:
            self._evidence = Evidence(
                folder / EVIDENCE, settings=settings.evidence, pipeline=pipeline, schema=schema, keep=keep, demo=demo
            )
        self._notifier = Notifier(settings)

    @property
    def evidence_lost(self) -> int:
        """Pictures and videos that could not be kept."""
        return self._evidence.lost if self._evidence is not None else 0

    @property
    def told(self) -> dict[str, dict[str, int]]:
        """For the command and the webhook, where there is one: alerts that wait, and that could not be handed over."""
        return self._notifier.counts

    def write(self, outcome: Outcome) -> None:
        """Take in the next record."""
        record = outcome.record
        is_picture = record.event is None and record.vlm.status != "source_lost"
        if is_picture and not outcome.is_late:
            self._guarded(Evidence.see, outcome)
        for alert in record.alerts:
            names = None
            if alert["state"] == "began":
                names = self._guarded(Evidence.begin, alert, outcome)
            files = None if names is None else {kind: f"{EVIDENCE}/{name}" for kind, name in names.items()}
            self._tell({**alert, "evidence": files})

    def tell(self, alerts: Iterable[Mapping[str, Any]]) -> None:
        """Take in alerts that end with the run."""
        for alert in alerts:
            self._tell({**alert, "evidence": None})

    def close(self, *, complete: bool) -> None:
        """Finish lines and evidence, and hand over what waits."""
        if self.lines is not None:
            self.lines.close()
        self._guarded(Evidence.close, self._patience_s)
        self._notifier.close(30.0 if self._patience_s is None else self._patience_s)

    def _guarded(self, act: Callable[Concatenate[Evidence, _P], _T], *given: _P.args, **more: _P.kwargs) -> _T | None:
        """Do something with the evidence, if any is kept; whatever it fails with, the alert itself must go out."""
        if self._evidence is None:
            return None
        try:
            result = act(self._evidence, *given, **more)
        except Exception as error:  # noqa: BLE001 - an alert without evidence is better than none
            level = logging.DEBUG if self._failing else logging.WARNING
            self._failing = True
            self._evidence.lost += 1
            _log.log(level, "evidence: %s: %s", type(error).__name__, error)
            return None
        self._failing = False
        return result

    def _tell(self, alert: dict[str, Any]) -> None:
        self.begun += alert["state"] == "began"
        self.ended += alert["state"] == "ended"
        if self.lines is not None:
            self.lines.write(json.dumps(alert, ensure_ascii=False))
        self._notifier.tell(alert)
        if self._on_alert is None:
            return
        try:
            self._on_alert(alert)
        except Exception as error:  # noqa: BLE001 - the run goes on
            _log.warning("on_alert: %s: %s", type(error).__name__, error)
