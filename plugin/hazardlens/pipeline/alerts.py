"""Alerts as a pipeline file writes them; `hazardlens.alerts` watches for them."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_serializer, field_validator, model_validator

from hazardlens.pipeline.values import Classes, Duration, Fraction, Part, When

_FROM_ENVIRONMENT = "env:"
_MASK = "***"


class AlertRule(Part):
    """What an alert is raised for; all conditions must hold. All times are video time.

    Attributes:
        name: Name of the rule.
        scope: `frame`: one alert for a source at a time; `object`: one for each track.
        when: Field → values; all must match. Fields are those of the frame or of each object, by scope.
        at_least: Field → least value in its rank order.
        clear_below: Field → value below which an alert may end, where that is lower than `at_least`.
        min_sure: Probability that the model must have given its values to begin or end an alert; where it tells none,
            they count.
        classes: Classes of the detections, or None for all.
        zone: Only detections whose foot point is in this zone, or None for anywhere.
        min_confidence: Least detector confidence.
        clear_confidence: Detector confidence below which a detection counts as gone, where that is lower.
        min_objects: Least number of such detections, with scope `frame`; 1 where classes, zone or confidence are named.
        for_s: Time for which it must hold.
        for_answers: Answers in a row for which it must hold, or None; only with conditions on fields.
        clear_s: Time for which it must not hold for an alert to end.
        cooldown_s: Time after its end in which no new alert begins for the same source and track.
    """

    name: Annotated[str, Field(min_length=1)]
    scope: Literal["frame", "object"] = "frame"
    when: When = Field(default={})
    at_least: dict[str, Any] = Field(default={})
    clear_below: dict[str, Any] = Field(default={})
    min_sure: Fraction | None = None
    classes: Classes | None = None
    zone: str | None = None
    min_confidence: Fraction | None = None
    clear_confidence: Fraction | None = None
    min_objects: int | None = Field(default=None, ge=1)
    for_s: Duration = 0.0
    for_answers: int | None = Field(default=None, ge=1)
    clear_s: Duration = 3.0
    cooldown_s: Duration = 30.0

    @property
    def reads_answers(self) -> bool:
        """Whether it looks at fields, which only answered frames have of their own."""
        return bool(self.when or self.at_least)

    @property
    def counts_objects(self) -> bool:
        """Whether it looks at detections."""
        named = (self.classes, self.zone, self.min_confidence, self.min_objects)
        return self.scope == "object" or any(one is not None for one in named)

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if not (self.reads_answers or self.counts_objects):
            raise ValueError("expected at least one condition: when, at_least, classes, zone, min_confidence")
        if self.scope == "object" and self.min_objects is not None:
            raise ValueError("min_objects goes with scope: frame, for each object stands by itself")
        if self.for_answers is not None and not self.reads_answers:
            raise ValueError("for_answers needs when or at_least; use for_s for detections alone")
        if unknown := [field for field in self.clear_below if field not in self.at_least]:
            raise ValueError(f"clear_below: {unknown[0]!r} is not in at_least")
        least = self.min_confidence
        if self.clear_confidence is not None and (least is None or self.clear_confidence > least):
            raise ValueError("clear_confidence needs a min_confidence that is not below it")
        return self


class EvidenceSettings(Part):
    """What is kept of an alert.

    Attributes:
        before_s: Video time before it that is kept.
        after_s: Video time after it.
        fps: Most pictures a second.
        longest_side_px: Pictures are scaled down to this longest side.
    """

    before_s: Duration = 3.0
    after_s: Duration = 3.0
    fps: float = Field(default=10.0, gt=0)
    longest_side_px: int = Field(default=960, ge=32)


class AlertSettings(Part):
    """Alerts: what they are raised for, what is kept of them, who is told.

    Attributes:
        rules: What they are raised for.
        evidence: What is kept of them, or None for nothing.
        command: A program and its arguments; it gets each alert as a line of JSON on its standard input.
        webhook: Address that each alert is posted to as JSON, or `env:VARIABLE` to take it from the environment.
        notify_timeout_s: Time that the command, or one try of the webhook, may take, by the clock.
    """

    rules: tuple[AlertRule, ...] = ()
    evidence: EvidenceSettings | None = EvidenceSettings()
    command: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    webhook: SecretStr | None = None
    notify_timeout_s: Annotated[Duration, Field(gt=0)] = 10.0

    @field_validator("webhook")
    @classmethod
    def _address(cls, value: SecretStr | None) -> SecretStr | None:
        plain = "" if value is None else value.get_secret_value()
        if value is None or plain.startswith((_FROM_ENVIRONMENT, "http://", "https://")):
            return value
        raise ValueError("expected http://..., https://... or env:VARIABLE")

    @field_serializer("webhook", when_used="json")
    def _hidden(self, value: SecretStr | None) -> str | None:
        plain = None if value is None else value.get_secret_value()
        return plain if plain is None or plain.startswith(_FROM_ENVIRONMENT) else _MASK

    @property
    def webhook_address(self) -> str | None:
        """The address itself; None where there is none, and where the environment has none."""
        plain = None if self.webhook is None else self.webhook.get_secret_value()
        if plain is not None and plain.startswith(_FROM_ENVIRONMENT):
            return os.environ.get(plain.removeprefix(_FROM_ENVIRONMENT)) or None
        return plain

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"rules: {name!r} stands twice; names must differ")
        return self
