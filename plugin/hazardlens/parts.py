"""Puts a pipeline's parts together: schema, detector and VLM, loaded once and checked against each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hazardlens.detect.base import Detector
from hazardlens.pipeline import Pipeline, VlmSettings
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Vlm

PipelineSource = str | Path | Mapping[str, Any] | Pipeline
"""A shipped pipeline's name, a path, a pipeline file's content, or a pipeline."""

SchemaSource = str | Path | Mapping[str, Any] | type | FieldSchema
"""A shipped schema's name, a path, a JSON Schema, a pydantic model class, or a loaded schema."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What processes frames.

    Attributes:
        pipeline: The pipeline, checked.
        schema: Its field schema.
        detector: The detector.
        vlm: The VLM, or None for detections only.
    """

    pipeline: Pipeline
    schema: FieldSchema
    detector: Detector
    vlm: Vlm | None

    def setup(self) -> dict[str, Any]:
        """What a run is made of, as plain JSON types, for its summary."""
        return {
            "detector": self.detector.name,
            "vlm": self.vlm.name if self.vlm else None,
            "enforced": self.vlm.enforced if self.vlm else None,
            "schema": self.schema.name,
            "pipeline": self.pipeline.model_dump(mode="json", by_alias=True),
        }


def assemble(
    pipeline: PipelineSource = "site",
    *,
    detector: str | Path | Detector | None = None,
    vlm: str | Path | Vlm | Literal["none"] | None = None,
    schema: SchemaSource | None = None,
    every: float | str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Parts:
    """Load a pipeline's parts, the cheap ones first.

    Args:
        pipeline: Where to start from.
        detector: Weights or a detector, in place of the pipeline's.
        vlm: Hub name, folder or a VLM, in place of the pipeline's; `none` for detections only.
        schema: A field schema, in place of the pipeline's.
        every: Seconds of video time between questions (or `"1s"`, `"500ms"`), in place of the pipeline's.
        overrides: More settings to change, by dotted place, as `Pipeline.with_overrides` takes them.

    Raises:
        PipelineError: If the pipeline is malformed, or does not fit schema or detector.
        SchemaError: If the schema cannot be held.
        WeightsError: If detector or VLM cannot be loaded.
    """
    settings = Pipeline.load(pipeline).with_overrides(_overrides(detector, vlm, schema, every, overrides or {}))
    fields = schema if isinstance(schema, FieldSchema) else FieldSchema.load(schema or settings.field_schema)
    settings.check(fields, None)
    detects = detector if isinstance(detector, Detector) else _detector(settings)
    settings.check(fields, detects.class_names.values())
    answers = vlm if isinstance(vlm, Vlm) else _vlm(settings.vlm)
    if answers is not None:
        for objects in (0, settings.max_objects):
            answers.prepare(fields.ground(objects))
    return Parts(pipeline=settings, schema=fields, detector=detects, vlm=answers)


def _overrides(
    detector: str | Path | Detector | None,
    vlm: str | Path | Vlm | None,
    schema: SchemaSource | None,
    every: float | str | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
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
        changes["ask.every_s"] = every
    return {**changes, **more}


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
    from hazardlens.vlm.local import LocalVlm

    return LocalVlm(**settings.model_dump())
