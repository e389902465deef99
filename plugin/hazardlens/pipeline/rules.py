"""The rules as a pipeline file writes them; `hazardlens.merge.rules` runs them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hazardlens.pipeline.values import Classes, Fraction, Part, Steps, Values, When


class _Rule(Part):
    name: Annotated[str, Field(min_length=1)]


class ThresholdRule(_Rule):
    """Sets fields of objects that the detector is unsure of or that are too small to judge.

    Attributes:
        name: Name of the rule.
        kind: `threshold`.
        classes: Classes it is about, or None for all.
        min_confidence: It acts below this detector confidence.
        min_height_px: It acts on boxes less high than this, in pixels of the frame.
        set_fields: Field → value; `set` in a file.
    """

    kind: Literal["threshold"]
    classes: Classes | None = None
    min_confidence: Fraction | None = None
    min_height_px: float | None = Field(default=None, gt=0)
    set_fields: Values = Field(alias="set")

    @model_validator(mode="after")
    def _acts(self) -> Self:
        if self.min_confidence is None and self.min_height_px is None:
            raise ValueError("expected min_confidence or min_height_px")
        return self


class EscalateRule(_Rule):
    """Changes fields when the answer and the detections fulfil its conditions.

    Attributes:
        name: Name of the rule.
        kind: `escalate`.
        when: Field → values; all must match.
        classes: Classes that are counted (scope `frame`) or judged (scope `object`), or None for all.
        zone: Only detections whose foot point is in this zone, or None for anywhere.
        min_objects: Least number of such detections in the frame; None for 1 where classes or zone are named.
        scope: Whether fields of the frame or of each object are matched and changed.
        set_fields: Field → value; `set` in a file.
        raise_steps: Field → steps up in rank; `raise` in a file.
        lower_steps: Field → steps down in rank; `lower` in a file.
    """

    kind: Literal["escalate"]
    when: When = Field(default={})
    classes: Classes | None = None
    zone: str | None = None
    min_objects: int | None = Field(default=None, ge=1)
    scope: Literal["frame", "object"] = "frame"
    set_fields: dict[str, Any] = Field(default={}, alias="set")
    raise_steps: Steps = Field(default={}, alias="raise")
    lower_steps: Steps = Field(default={}, alias="lower")

    @property
    def changed(self) -> list[str]:
        """Fields that it changes."""
        return [*self.set_fields, *self.raise_steps, *self.lower_steps]

    @model_validator(mode="after")
    def _acts(self) -> Self:
        if not self.changed:
            raise ValueError("expected at least one of set, raise and lower")
        if len(set(self.changed)) < len(self.changed):
            raise ValueError("a field may stand in only one of set, raise and lower")
        if not self.when and self.classes is None and self.zone is None and self.min_objects is None:
            raise ValueError("expected at least one condition: when, classes, zone or min_objects")
        return self


class ContradictionRule(_Rule):
    """Records a statement about the frame that needs a detection which is not there.

    Attributes:
        name: Name of the rule.
        kind: `contradiction`.
        classes: At least one detection of these classes is needed.
        when: The statement as field → values; all must match.
        words: The statement as words in a text; any of them.
        text_field: The text that is searched for `words`.
        set_fields: Field → value where it is contradicted; `set` in a file.
    """

    kind: Literal["contradiction"]
    classes: Classes
    when: When = Field(default={})
    words: tuple[Annotated[str, Field(pattern=r"\S")], ...] = ()
    text_field: str = "notes"
    set_fields: dict[str, Any] = Field(default={}, alias="set")

    @model_validator(mode="after")
    def _states(self) -> Self:
        if bool(self.when) == bool(self.words):
            raise ValueError("expected either when or words")
        return self


class WorstObjectRule(_Rule):
    """Raises fields of the frame to those of its worst object.

    Attributes:
        name: Name of the rule.
        kind: `worst_object`.
        by: The field whose rank says which object is worst and whether it is worse than the frame.
        fields_taken: Fields that the frame takes over; `fields` in a file.
    """

    kind: Literal["worst_object"]
    by: str = "severity"
    fields_taken: Annotated[tuple[str, ...], Field(min_length=1)] = Field(alias="fields")

    @model_validator(mode="after")
    def _ranked(self) -> Self:
        if self.by not in self.fields_taken:
            raise ValueError(f"expected {self.by!r}, the field it ranks by, among fields")
        return self


Rule = ThresholdRule | EscalateRule | ContradictionRule | WorstObjectRule
"""One rule of a pipeline."""
