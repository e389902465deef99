"""Settings of the detector, the VLM, the zones, and when the VLM is asked."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from hazardlens.pipeline.remote import RemoteSettings
from hazardlens.pipeline.values import Classes, Duration, Fraction, Part


class DetectorSettings(Part):
    """The YOLO detector and its tracker.

    Attributes:
        weights: Name or path of the weights.
        classes: Names of the classes to keep, or None for all.
        confidence: Least confidence, 0..1.
        image_size: Side in pixels to which frames are scaled.
        device: As Ultralytics takes it, or None for its choice.
        batch: Frames per call.
        track: Whether detections get track ids.
        tracker: A tracker's name or YAML path, or None for Ultralytics' default.
    """

    weights: str = "yolo26n.pt"
    classes: Classes | None = None
    confidence: Fraction = 0.25
    image_size: int = Field(default=640, ge=32)
    device: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    batch: int = Field(default=1, ge=1)
    track: bool = True
    tracker: str | None = None


class VlmSettings(RemoteSettings):
    """The vision-language model; those of `RemoteSettings` count where it is asked over the network.

    Attributes:
        model: Name on the Hugging Face hub, or a folder.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, ...
        dtype: Number format of the weights.
        quantization: None, `8bit` or `4bit`.
        max_new_tokens: Token budget of an answer, or None for no limit.
        temperature: 0 for the likeliest token, else the sampling temperature.
        top_k: Sample among this many tokens, or None.
        top_p: Sample among the likeliest tokens of this total probability, or None.
        seed: Seed of the sampling.
        longest_side_px: The picture is scaled down to this longest side.
        draw_ids: Whether ids are drawn on the pictures.
        crops_px: Side in pixels of each object's own cut-out in a second picture, or None for no second picture.
        describe_fields: Whether the prompt describes the fields.
        trust_remote_code: Whether code that comes with the model may run.
        revision: Revision on the hub, or None.
        timeout_s: Wall time that one answer may take, or None for no limit.
        exact_confidence: Whether the model's own probability of each value of a choice is found too.
        blur: Classes whose boxes are made unrecognizable in all pictures, also in those of a fallback that names none.
        fallback: What is asked, in order, where this one gives no valid answer.
        answer_tries: Most times to ask where an answer fails what is only checked.
        reasoning_tokens: Tokens of free text ahead of the answer.
        keep_reasoning: Whether that text is in the record.
        draft_tokens: Most tokens of the last answer about the same source that are tried in one pass of the model.
    """

    model: Annotated[str, Field(min_length=1)]
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    quantization: Literal["8bit", "4bit"] | None = None
    max_new_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=0.0, ge=0)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int = Field(default=0, ge=0)
    longest_side_px: int = Field(default=1024, ge=32)
    draw_ids: bool = False
    crops_px: int | None = Field(default=None, ge=16)
    describe_fields: bool = True
    trust_remote_code: bool = False
    revision: str | None = None
    timeout_s: Annotated[Duration, Field(gt=0)] | None = None
    exact_confidence: bool = False
    blur: tuple[str, ...] = ()
    fallback: tuple[VlmSettings, ...] = ()
    answer_tries: int = Field(default=3, ge=1, le=20)
    reasoning_tokens: int = Field(default=0, ge=0)
    keep_reasoning: bool = False
    draft_tokens: int = Field(default=32, ge=0, le=256)

    @model_validator(mode="after")
    def _flat(self) -> Self:
        if any(other.fallback for other in self.fallback):
            raise ValueError("a fallback has no fallback of its own; list them all in order")
        return self

    @property
    def members(self) -> tuple[VlmSettings, ...]:
        """These settings and those of the fallbacks, of which one that names no classes to blur blurs the same."""
        return self, *(one if one.blur else one.model_copy(update={"blur": self.blur}) for one in self.fallback)


class Zone(Part):
    """A part of the picture.

    Attributes:
        polygon: Corners (x, y) in fractions of the frame's width and height, in order.
        classes: Classes that count in it, or None for all.
    """

    polygon: Annotated[tuple[tuple[Fraction, Fraction], ...], Field(min_length=3)]
    classes: Classes | None = None

    @model_validator(mode="after")
    def _area(self) -> Self:
        following = (*self.polygon[1:], self.polygon[0])
        doubled = sum(x * v - u * y for (x, y), (u, v) in zip(self.polygon, following, strict=True))
        if abs(doubled) < 1e-9:
            raise ValueError("polygon encloses no area; list its corners in order around the zone")
        return self


class AskZone(Part):
    """Ask when something enters a zone; a file may write just the zone's name.

    Attributes:
        zone: Name of the zone.
        classes: Classes that trigger, beside the zone's own choice, or None.
    """

    zone: str
    classes: Classes | None = None


def _zone_reference(value: object) -> object:
    return {"zone": value} if isinstance(value, str) else value


class AskSettings(Part):
    """When the VLM is asked, in video time.

    Attributes:
        every_s: Seconds between questions, or None for no regular ones.
        new_track: Classes whose new tracks are asked about.
        zones: Zones whose entering is asked about.
        min_gap_s: Least seconds between two questions.
    """

    every_s: Annotated[Duration, Field(gt=0)] | None = 1.0
    new_track: tuple[str, ...] = ()
    zones: tuple[Annotated[AskZone, BeforeValidator(_zone_reference)], ...] = ()
    min_gap_s: Duration = 0.0

    @property
    def asks(self) -> bool:
        """Whether anything ever asks."""
        return self.every_s is not None or bool(self.new_track or self.zones)
