"""The pipeline: loaded, overridden, and held against a schema and a detector."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from hazardlens.errors import PipelineError
from hazardlens.pipeline.alerts import AlertSettings
from hazardlens.pipeline.checks import (
    NOTHING_ASKS,
    alert_problems,
    ask_problems,
    class_problems,
    name_problems,
    rule_problems,
)
from hazardlens.pipeline.live import LiveSettings
from hazardlens.pipeline.reading import assign, read
from hazardlens.pipeline.rules import Rule
from hazardlens.pipeline.settings import AskSettings, DetectorSettings, VlmSettings, Zone
from hazardlens.pipeline.values import Duration, Part
from hazardlens.pipeline.wording import listed, misfit, refusal, without
from hazardlens.schema import FieldSchema


def _schema_source(value: object) -> object:
    if not isinstance(value, str | Path | Mapping):
        raise ValueError(f"expected a schema's name, a path or a JSON Schema, found {value!r}")
    return dict(value) if isinstance(value, Mapping) else str(value)


class Pipeline(Part):
    """A whole pipeline file.

    Attributes:
        detector: The detector and tracker.
        vlm: The VLM, or None for detections only.
        field_schema: Name, path or JSON Schema of the fields; `schema` in a file.
        context: What this site is and what matters there, in the user's words.
        max_objects: Most detections asked about in one question.
        max_age_s: Video time for which an answer is carried on.
        ask: When the VLM is asked.
        zones: Parts of the picture by name.
        rules: What is done to an answer, in order; null in a file for nothing.
        video: Whether an annotated video is written.
        video_crf: Its quality, 0 (lossless) to 51.
        live: What only live sources have.
        alerts: What alerts are raised for; null in a file for nothing.
    """

    detector: DetectorSettings = DetectorSettings()
    vlm: VlmSettings | None = None
    field_schema: Annotated[str | dict[str, Any], BeforeValidator(_schema_source)] = Field(
        default="hazard", alias="schema"
    )
    context: str = ""
    max_objects: int = Field(default=20, ge=0)
    max_age_s: Duration = 5.0
    ask: AskSettings = AskSettings()
    zones: dict[str, Zone] = Field(default={})
    rules: tuple[Annotated[Rule, Field(discriminator="kind")], ...] = ()
    video: bool = True
    video_crf: int = Field(default=23, ge=0, le=51)
    live: LiveSettings = LiveSettings()
    alerts: AlertSettings = AlertSettings()

    @field_validator("rules", "alerts", mode="before")
    @classmethod
    def _null_is_none_of_them(cls, value: object, info: ValidationInfo) -> object:
        return cls.model_fields[str(info.field_name)].default if value is None else value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = [*name_problems(self), *ask_problems(self)]
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @classmethod
    def load(cls, source: str | Path | Mapping[str, Any] | Pipeline) -> Pipeline:
        """Read a pipeline.

        Args:
            source: A shipped pipeline's name such as `site`, a path to a YAML file, its content, or a pipeline. In
                a file, paths to schema, weights, tracker and model may be relative to that file.

        Raises:
            PipelineError: If it does not exist or is malformed; the message names each place.
        """
        if isinstance(source, Pipeline):
            return source
        if isinstance(source, Mapping):
            return _validated(source, origin="pipeline")
        return _validated(read(source), origin=str(source))

    def with_overrides(self, overrides: Mapping[str, Any]) -> Pipeline:
        """This pipeline with some settings changed.

        Args:
            overrides: Dotted place, as spelled in a file, → value; for instance `{"detector.weights": "x.pt"}`.

        Raises:
            PipelineError: If a place does not exist or a value does not fit there.
        """
        content = self.model_dump(by_alias=True)
        for place, value in overrides.items():
            assign(content, place, value)
        return _validated(content, origin="pipeline with overrides")

    def check(self, schema: FieldSchema, class_names: Collection[str] | None) -> None:
        """Hold rules, zones and classes against the schema and the detector.

        Args:
            schema: The pipeline's field schema, loaded.
            class_names: All classes that the detector's model knows, or None if they are not known.

        Raises:
            PipelineError: If anything is named that does not exist, or a value does not fit; all problems are listed.
        """
        classes = list(class_problems(self, class_names))
        rules = [
            f"rules.{index} ({rule.name}): {problem}"
            for index, rule in enumerate(self.rules)
            for problem in dict.fromkeys(rule_problems(rule, schema))
        ]
        alerts = [
            f"alerts.rules.{index} ({alert.name}): {problem}"
            for index, alert in enumerate(self.alerts.rules)
            for problem in dict.fromkeys(alert_problems(alert, schema))
        ]
        if classes or rules or alerts:
            unfit = [name for name, found in (("rules", rules), ("alerts", alerts)) if found]
            origin = f"pipeline: {misfit(unfit, schema.name)}" if unfit and not classes else "pipeline"
            advice = ["Name classes that the detector has, in a pipeline file of your own."] if classes else []
            advice += [without(unfit)] if unfit else []
            raise PipelineError(listed(origin, [*classes, *rules, *alerts]), help=" ".join(advice))

    def check_asks(self) -> None:
        """See that something would ask a VLM.

        Raises:
            PipelineError: If nothing would.
        """
        if not self.ask.asks:
            raise PipelineError(f"pipeline: {NOTHING_ASKS}")


def _validated(content: object, *, origin: str) -> Pipeline:
    try:
        return Pipeline.model_validate(content)
    except ValidationError as error:
        raise refusal(error, origin=origin) from error
