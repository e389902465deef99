"""Begin to watch cameras."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from hazardlens.cameras.base import Camera
from hazardlens.cameras.clock import Clock
from hazardlens.cameras.sources import CameraSource, cameras
from hazardlens.detect.base import Detector
from hazardlens.monitor.outputs import Outputs
from hazardlens.monitor.run import LiveRun
from hazardlens.outputs.alerts import Alerts, OnAlert
from hazardlens.outputs.base import Output
from hazardlens.outputs.rotating import RotatingLines, RotatingRecords
from hazardlens.parts import Parts, PipelineSource, SchemaSource, load, settle
from hazardlens.vlm.base import Vlm

_log = logging.getLogger(__name__)

RECORDS = "records.jsonl"
STATUS = "status.json"
_MB = 1_000_000
_PATIENCE_S = 0.4


def live(
    sources: CameraSource | Iterable[CameraSource] | Mapping[str, CameraSource],
    *,
    pipeline: PipelineSource = "site",
    detector: str | Path | Detector | None = None,
    vlm: str | Path | Vlm | Literal["none"] | None = None,
    schema: SchemaSource | None = None,
    every: float | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    on_alert: OnAlert | None = None,
    clock: Clock | None = None,
) -> LiveRun:
    """Watch cameras: detect on their frames, ask the VLM off the detector's path, merge.

    What is returned is iterated for the records of all sources; use it in a `with` block.

    Args:
        sources: One source or several, or several by name: a webcam's number, a device, an address, a video file that
            is played at its own pace, or a `Camera`. Text may be `NAME=SOURCE` or `NAME=env:VARIABLE`.
        pipeline: A shipped pipeline's name, a path, its content, or a `Pipeline`.
        detector: Weights or a `Detector`, in place of the pipeline's.
        vlm: Hub name, folder or a `Vlm`, in place of the pipeline's; `none` for detections only.
        schema: A field schema, in place of the pipeline's.
        every: Seconds between questions (or `"1s"`, `"500ms"`), in place of the pipeline's.
        overrides: More settings to change, by dotted place, such as `{"live.frames": "every"}`.
        out: Folder for records, alerts and status, gone on with where it is there; None writes nothing.
        on_alert: Called with each alert as it begins and as it ends, in the thread that iterates.
        clock: The clock to go by, in place of the machine's.

    Raises:
        InputError: If sources, pipeline or schema are at fault. A camera that is not there is waited for.
        WeightsError: If detector or VLM cannot be loaded.
        OutputError: If the folder cannot be written to.
    """
    settled = settle(pipeline, detector=detector, vlm=vlm, schema=schema, every=every, overrides=overrides)
    found = cameras(sources, settled.pipeline.live)
    folder = Path(out) if out is not None else None
    return start(load(settled), found, out=folder, on_alert=on_alert, clock=clock)


def start(
    parts: Parts,
    found: Sequence[Camera],
    *,
    out: Path | None,
    on_alert: OnAlert | None = None,
    clock: Clock | None = None,
    more: Sequence[Output] = (),
) -> LiveRun:
    """Begin with parts and cameras that are there.

    Args:
        parts: What processes the frames.
        found: The cameras.
        out: Folder for records, alerts and status, or None.
        on_alert: Called with each alert, or None.
        clock: The clock, or None for the machine's.
        more: Further outputs.

    Raises:
        OutputError: If the folder cannot be written to.
    """
    settings = parts.pipeline.live
    rotate_bytes = round(settings.rotate_mb * _MB)
    outputs: list[Output] = []
    if out is not None:
        outputs.append(
            RotatingRecords(RotatingLines(out / RECORDS, rotate_bytes=rotate_bytes, keep=settings.keep_files))
        )
    alerts = None
    if on_alert is not None and not parts.pipeline.alerts.rules:
        _log.warning("on_alert: the pipeline has no alerts.rules, so it is never called")
    if parts.pipeline.alerts.rules:
        alerts = Alerts(
            parts.pipeline,
            parts.schema,
            folder=out,
            on_alert=on_alert,
            keep=settings.keep_evidence,
            rotate_bytes=rotate_bytes,
            keep_files=settings.keep_files,
            patience_s=_PATIENCE_S,
            demo=bool(parts.demo_models),
        )
        outputs.append(alerts)
    on_status = (
        _StatusFile(out / STATUS, {"demo": bool(parts.demo_models), "setup": parts.setup}) if out is not None else None
    )
    return LiveRun(
        parts, found, outputs=Outputs([*outputs, *more]), alerts=alerts, clock=clock or Clock(), on_status=on_status
    )


class _StatusFile:
    """Writes the status whole, or leaves what was there."""

    def __init__(self, path: Path, more: Mapping[str, Any]) -> None:
        self._path = path
        self._more = more
        self._failing = False

    def __call__(self, status: Mapping[str, Any]) -> None:
        part = self._path.with_suffix(".json.part")
        try:
            part.write_text(json.dumps({**status, **self._more}, ensure_ascii=False, indent=2) + "\n")
            part.replace(self._path)
        except OSError as error:
            if not self._failing:
                _log.warning("%s cannot be written: %s", self._path, error.strerror)
            self._failing = True
        else:
            self._failing = False
