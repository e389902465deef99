"""Puts a pipeline's parts together: schema, detector and VLM, checked against each other and loaded once."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any, Literal

from hazardlens.detect.base import Detector
from hazardlens.errors import PipelineError
from hazardlens.pipeline import Pipeline, VlmSettings
from hazardlens.pipeline.remote import RemoteSettings
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import View, Vlm

_log = logging.getLogger(__name__)

PipelineSource = str | Path | Mapping[str, Any] | Pipeline
"""A shipped pipeline's name, a path, a pipeline file's content, or a pipeline."""

SchemaSource = str | Path | Mapping[str, Any] | type | FieldSchema
"""A shipped schema's name, a path, a JSON Schema, a pydantic model class, or a loaded schema."""


_LOCAL_ONLY = ("top_k", "exact_confidence", "answer_tries", "reasoning_tokens", "keep_reasoning")
"""Settings of `vlm` that change answers and that only a local model heeds."""

_NEVER = ("never", "null", "none")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """What a run will be made of.

    Attributes:
        pipeline: The pipeline, checked against the schema.
        schema: Its field schema.
        detector: A detector that is there already, or None to load the pipeline's.
        vlm: A VLM that is there already, or None to load the pipeline's, if it has one.
    """

    pipeline: Pipeline
    schema: FieldSchema
    detector: Detector | None
    vlm: Vlm | None

    def setup(self) -> dict[str, Any]:
        """All that decides what a run's results say, as plain JSON types."""
        settings = self.pipeline
        return {
            "detector": self.detector.name if self.detector else settings.detector.weights,
            "vlm": self.vlm.name if self.vlm else settings.vlm.model if settings.vlm else None,
            "schema": self.schema.name,
            "schema_document": self.schema.document,
            "pipeline": settings.model_dump(mode="json", by_alias=True),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What processes frames.

    Attributes:
        pipeline: The pipeline, checked.
        schema: Its field schema.
        detector: The detector.
        vlm: The VLM, or None for detections only.
        setup: All that decides what the results say, as plain JSON types.
    """

    pipeline: Pipeline
    schema: FieldSchema
    detector: Detector
    vlm: Vlm | None
    setup: dict[str, Any]

    @property
    def demo_models(self) -> tuple[str, ...]:
        """Names of those among detector and VLM that are demo models, which know drawn scenes only."""
        return tuple(part.name for part in (self.detector, self.vlm) if part is not None and part.demo)


def settle(
    pipeline: PipelineSource = "site",
    *,
    detector: str | Path | Detector | None = None,
    vlm: str | Path | Vlm | Literal["none"] | None = None,
    schema: SchemaSource | None = None,
    every: float | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settled:
    """Settle what a run will be made of, without loading any weights.

    Args:
        pipeline: Where to start from.
        detector: Weights or a detector, in place of the pipeline's.
        vlm: Hub name, folder or a VLM, in place of the pipeline's; `none` for detections only.
        schema: A field schema, in place of the pipeline's.
        every: Seconds of video time between questions (or `"1s"`, `"500ms"`, `"never"`), in place of the pipeline's.
        overrides: More settings to change, by dotted place, as `Pipeline.with_overrides` takes them.

    Raises:
        PipelineError: If the pipeline is malformed, or does not fit the schema.
        SchemaError: If the schema cannot be held.
    """
    settings = Pipeline.load(pipeline).with_overrides(_overrides(detector, vlm, schema, every, overrides or {}))
    fields = schema if isinstance(schema, FieldSchema) else FieldSchema.load(schema or settings.field_schema)
    settings.check(fields, None)
    if isinstance(vlm, Vlm):
        settings.check_asks()
    elif settings.vlm is not None:
        _refuse_local_settings(settings.vlm)
    return Settled(
        pipeline=settings,
        schema=fields,
        detector=detector if isinstance(detector, Detector) else None,
        vlm=vlm if isinstance(vlm, Vlm) else None,
    )


def load(settled: Settled) -> Parts:
    """Load detector and VLM, the cheaper one first, and warn of demo models.

    Raises:
        PipelineError: If the pipeline does not fit the detector's classes.
        SchemaError: If the schema does not fit the VLM or the number of objects asked about.
        WeightsError: If detector or VLM cannot be loaded.
    """
    settings, fields = settled.pipeline, settled.schema
    detector = settled.detector or _detector(settings)
    vlm = load_vlm(settled, detector.class_names.values())
    parts = Parts(pipeline=settings, schema=fields, detector=detector, vlm=vlm, setup=settled.setup())
    warn_of_demo(parts.demo_models)
    return parts


def load_vlm(settled: Settled, class_names: Collection[str]) -> Vlm | None:
    """Load the VLM, once the pipeline fits the classes that the detector knows; None for detections only.

    Raises:
        PipelineError: If the pipeline does not fit the classes.
        SchemaError: If the schema does not fit the VLM or the number of objects asked about.
        WeightsError: If the VLM cannot be loaded.
        ServerError: If the VLM's server cannot be used.
    """
    settled.pipeline.check(settled.schema, class_names)
    vlm = settled.vlm or _vlm(settled.pipeline.vlm)
    if vlm is not None:
        for objects in (0, settled.pipeline.max_objects):
            vlm.prepare(settled.schema.ground(objects))
    return vlm


def warn_of_demo(names: Iterable[str]) -> None:
    """Warn of demo models by name, if there are any."""
    found = ", ".join(names)
    if found:
        _log.warning("demo models that know drawn scenes only, not real footage: %s", found)


def assemble(
    pipeline: PipelineSource = "site",
    *,
    detector: str | Path | Detector | None = None,
    vlm: str | Path | Vlm | Literal["none"] | None = None,
    schema: SchemaSource | None = None,
    every: float | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Parts:
    """Settle and load a run's parts; arguments and errors as of `settle` and `load`."""
    return load(settle(pipeline, detector=detector, vlm=vlm, schema=schema, every=every, overrides=overrides))


def _overrides(
    detector: str | Path | Detector | None,
    vlm: str | Path | Vlm | None,
    schema: SchemaSource | None,
    every: float | str | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    _refuse_odd("detector", detector, Detector)
    _refuse_odd("vlm", vlm, Vlm)
    changes: dict[str, Any] = {}
    if isinstance(detector, str | Path):
        changes["detector.weights"] = str(detector)
    if vlm == "none":
        changes["vlm"] = None
    elif isinstance(vlm, str | Path):
        changes["vlm.model"] = str(vlm)
    if isinstance(schema, str | Path):
        changes["schema"] = str(schema)
    elif isinstance(schema, Mapping):
        changes["schema"] = schema
    if every is not None:
        changes["ask.every_s"] = None if every in _NEVER else every
    return {**changes, **more}


def _refuse_odd(name: str, given: object, kind: type) -> None:
    """See that what was given as `name` is a path, a name, an instance of `kind`, or nothing."""
    if given is None or isinstance(given, (str, Path, kind)):
        return
    what = f"the class {given.__name__}" if isinstance(given, type) else f"{given!r} of type {type(given).__name__}"
    raise PipelineError(f"{name}: expected a path, a name or an instance of hazardlens.{kind.__name__}, got {what}")


def _refuse_local_settings(settings: VlmSettings) -> None:
    """See that nothing is asked of a server that only a model in this process can do."""
    for index, member in enumerate(settings.members):
        where = f"vlm.fallback.{index - 1}" if index else "vlm"
        for name in _LOCAL_ONLY if member.is_remote else ():
            value, usual = getattr(member, name), VlmSettings.model_fields[name].default
            if value != usual:
                raise PipelineError(
                    f"{where}.{name} is {json.dumps(value)}, which a model on a server is never told: {member.model}",
                    help=f"Set it to {json.dumps(usual)} or leave it out, or use a model that runs here.",
                )


def _detector(settings: Pipeline) -> Detector:
    from hazardlens.detect.yolo import YoloDetector

    chosen = settings.detector
    return YoloDetector(
        chosen.weights,
        classes=chosen.classes,
        confidence=chosen.confidence,
        image_size_px=chosen.image_size,
        device=chosen.device,
        track=chosen.track,
        tracker=chosen.tracker,
    )


def _vlm(settings: VlmSettings | None) -> Vlm | None:
    if settings is None:
        return None
    members = [make_vlm(one) for one in settings.members]
    if len(members) == 1:
        return members[0]
    from hazardlens.vlm.fallback import FallbackVlm

    return FallbackVlm(members)


def make_vlm(settings: VlmSettings) -> Vlm:
    """Make the VLM of some settings, without its fallbacks; a local one is loaded, a server is not called yet.

    Raises:
        PipelineError: If a setting of a server is at fault.
        WeightsError: If it cannot be loaded.
    """
    shown = {field.name for field in fields_of(View)}
    view = View(**settings.model_dump(include=shown))
    other = settings.model_dump(exclude={*shown, "fallback"})
    remote = {*RemoteSettings.model_fields}
    if settings.is_remote:
        from hazardlens.vlm.remote.model import RemoteVlm

        shared = {"model", "max_new_tokens", "temperature", "top_p", "seed", "timeout_s"}
        return RemoteVlm(**{key: value for key, value in other.items() if key in remote | shared}, view=view)
    from hazardlens.vlm.local import LocalVlm

    return LocalVlm(**{key: value for key, value in other.items() if key not in remote}, view=view)
