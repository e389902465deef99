"""Boxes, verdicts and the state of the VLM, drawn on a frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from hazardlens.merge.statements import place_in, same
from hazardlens.record import DetectionRecord, Fields, FrameRecord, choice_name
from hazardlens.schema import FieldSchema
from hazardlens.schema.fields import Scope

_Colour = tuple[int, int, int]

_UNKNOWN_BGR: _Colour = (150, 150, 150)
_RANK_BGR: tuple[_Colour, ...] = ((96, 174, 39), (0, 200, 240), (0, 140, 255), (40, 40, 230), (180, 20, 160))
_LINES = 4
_LETTERS = 400
_INK_BGR: _Colour = (255, 255, 255)
_CASING_BGR: _Colour = (24, 24, 24)
_DEMO_BGR: _Colour = (150, 60, 10)
_PARTS = (list, dict)
_YES_NO = {True: "yes", False: "no"}
_DEMO_MARK = "DEMO MODELS - DRAWN SCENES ONLY"


class _Area(NamedTuple):
    """A rectangle in pixels; right and bottom are just outside."""

    left: int
    top: int
    right: int
    bottom: int


class Painter:
    """Draws records on their frames.

    Colour tells the rank of the schema's `severity` (or of its last choice field); grey means that nothing is
    known, which is not the same as no hazard: nobody has said anything, the model was unsure of the lowest rank
    (`FrameRecord.is_unsure`), or the field may hold a value without a rank. A percentage that is unsure has a "?".

    Args:
        schema: The schema that the records' fields follow.
        size_wh: Width and height of the frames in pixels; it sets the size of the letters.
        zones: Corners (x, y) of each zone by name, in fractions of the frame.
        demo: Whether the upper right corner says that demo models were at work.
    """

    def __init__(
        self,
        schema: FieldSchema,
        size_wh: tuple[int, int],
        zones: Mapping[str, Sequence[tuple[float, float]]],
        *,
        demo: bool = False,
    ) -> None:
        self._schema = schema
        self._verdicts: dict[Scope, set[str]] = {
            "frame": {name for name, own in schema.frame_properties.items() if _is_choice(own)},
            "object": {name for name, own in schema.object_properties.items() if _is_choice(own)},
        }
        self._zones = {name: np.array(corners) for name, corners in zones.items()}
        self._letters_px = max(11, round(min(size_wh) / 36))
        self._line_px = max(1, round(min(size_wh) / 300))
        self._mark = _lines(_DEMO_MARK, round(1.2 * self._letters_px), size_wh[0]) if demo else []

    def draw(self, image: NDArray[np.uint8], record: FrameRecord) -> NDArray[np.uint8]:
        """Draw on `image`, shape (H, W, 3), BGR, in place, and return it."""
        image = image if image.flags.writeable and image.flags.c_contiguous else np.array(image)
        for name, corners in self._zones.items():
            self._draw_zone(image, name, corners)
        for detection in record.detections:
            self._draw_box(image, record, detection)
        taken = self._mark_places(image.shape[1])
        for detection in record.detections:
            taken.append(self._draw_label(image, record, detection, taken))
        self._draw_mark(image)
        self._draw_footer(image, record)
        return image

    def add_verdicts(self, image: NDArray[np.uint8], record: FrameRecord, *, of_objects: bool) -> NDArray[np.uint8]:
        """Draw verdicts on a picture that shows its boxes already, in place where it can be written, and return it.

        Args:
            image: Shape (H, W, 3), uint8, BGR.
            record: The record; of its detections, those in it are labelled.
            of_objects: Whether objects are labelled, at the lower edge of their boxes.
        """
        image = image if image.flags.writeable and image.flags.c_contiguous else np.array(image)
        for detection in record.detections if of_objects else ():
            verdict = self._verdict(record, detection)
            if verdict:
                patch = _letters(verdict, self._letters_px)
                left, bottom = round(detection.box_xyxy[0]), round(detection.box_xyxy[3])
                top = min(max(0, bottom - patch.shape[0]), image.shape[0] - 1)
                _blit(image, patch, left, top, background=self._colour(record, detection))
        self._draw_mark(image)
        self._draw_footer(image, record)
        return image

    def mark(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Draw only the mark of demo models, if there is one, on a copy of `image`, shape (H, W, 3), BGR."""
        if not self._mark:
            return image
        image = np.array(image)
        self._draw_mark(image)
        return image

    def colour(self, record: FrameRecord) -> tuple[int, int, int]:
        """Colour of a frame's verdict as blue, green, red; grey where nothing is known."""
        return self._colour(record)

    def _draw_box(self, image: NDArray[np.uint8], record: FrameRecord, detection: DetectionRecord) -> None:
        """A box in the colour of its verdict, with a dark casing that sets it off from any ground."""
        x1, y1, x2, y2 = (round(value) for value in detection.box_xyxy)
        for colour, line_px in (
            (_CASING_BGR, self._line_px + 2),
            (self._colour(record, detection), self._line_px),
        ):
            cv2.rectangle(image, (x1, y1), (x2, y2), colour, line_px)

    def _draw_label(
        self, image: NDArray[np.uint8], record: FrameRecord, detection: DetectionRecord, taken: Sequence[_Area]
    ) -> _Area:
        """A label above its box, or lower where others stand already; returns where it stands."""
        name = detection.class_name if detection.track_id is None else f"{detection.class_name} {detection.track_id}"
        verdict = self._verdict(record, detection)
        patch = _letters(f"{name}: {verdict}" if verdict else name, self._letters_px)
        (height, width), x1, y1 = patch.shape, round(detection.box_xyxy[0]), round(detection.box_xyxy[1])
        left = max(0, min(x1, image.shape[1] - width))
        top = _free_top(_Area(left, max(0, y1 - height), left + width, max(0, y1 - height) + height), taken)
        if top + height > image.shape[0]:
            top = max(0, y1 - height)
        _blit(image, patch, left, top, background=self._colour(record, detection))
        return _Area(left, top, left + width, top + height)

    def _draw_mark(self, image: NDArray[np.uint8]) -> None:
        for line, place in zip(self._mark, self._mark_places(image.shape[1]), strict=True):
            _blit(image, line, place.left, place.top, background=_DEMO_BGR)

    def _mark_places(self, width: int) -> list[_Area]:
        """Where the lines of the mark stand: one below the other in the upper right corner."""
        bottoms = list(accumulate(line.shape[0] for line in self._mark))
        return [
            _Area(max(0, width - line.shape[1]), bottom - line.shape[0], width, bottom)
            for line, bottom in zip(self._mark, bottoms, strict=True)
        ]

    def _draw_zone(self, image: NDArray[np.uint8], name: str, corners: NDArray[np.float64]) -> None:
        height, width = image.shape[:2]
        points = np.rint(corners * (width, height)).astype(np.int32)
        cv2.polylines(image, [points], isClosed=True, color=_INK_BGR, thickness=self._line_px)
        x, y = points[points[:, 1].argmin()]
        _blit(image, _letters(name, self._letters_px), int(x), int(y))

    def _draw_footer(self, image: NDArray[np.uint8], record: FrameRecord) -> None:
        state_px = round(1.2 * self._letters_px)
        state = f"{record.time_s:.2f} s   {headline(record, self._verdict(record))}"
        notes = (record.fields or {}).get("notes")
        said = _lines(notes, self._letters_px, image.shape[1]) if isinstance(notes, str) else []
        told = [_rendered(line, state_px) for line in _wrapped(state, state_px, image.shape[1])]
        lines = [*said, *told]
        colour = self._colour(record)
        bottom = image.shape[0] - 2 * self._line_px
        top = max(0, bottom - sum(line.shape[0] for line in lines))
        image[top:bottom] //= 3
        cv2.rectangle(image, (0, bottom), (image.shape[1], image.shape[0]), colour, -1)
        for line in lines:
            _blit(image, line, 0, top)
            top += line.shape[0]

    def _choices(self, fields: Fields | None, scope: Scope) -> Fields:
        return {
            name: value for name, value in (fields or {}).items() if self._schema.rank(name, scope=scope) is not None
        }

    def _verdict(self, record: FrameRecord, detection: DetectionRecord | None = None) -> str:
        """The verdicts about a frame or a detection, each with the model's confidence in it where that is known."""
        fields = record.fields if detection is None else detection.fields
        named = self._verdicts["frame" if detection is None else "object"]
        own = {name: value for name, value in (fields or {}).items() if name in named and not isinstance(value, _PARTS)}
        of = None if detection is None else detection.id
        # Where the model had no choice left and says once more what it has said, that is told once.
        open_ones = [value for name, value in own.items() if record.had_choice(name, detection=of)]
        told = {
            name: value
            for name, value in own.items()
            if record.had_choice(name, detection=of) or not any(same(value, other) for other in open_ones)
        }
        return ", ".join(_told(told, {name: sureness(record, name, detection=of) for name in told}))

    def _colour(self, record: FrameRecord, detection: DetectionRecord | None = None) -> _Colour:
        scope: Scope = "frame" if detection is None else "object"
        chosen = self._choices(record.fields if detection is None else detection.fields, scope)
        if not chosen:
            return _UNKNOWN_BGR
        name = "severity" if "severity" in chosen else list(chosen)[-1]
        ranks = self._schema.rank(name, scope=scope) or []
        place = place_in(ranks, chosen[name])
        if place is None or (place == 0 and self._lowest_is_unsure(record, detection, chosen, chosen[name])):
            return _UNKNOWN_BGR
        return _RANK_BGR[round(place * (len(_RANK_BGR) - 1) / max(1, len(ranks) - 1))]

    def _lowest_is_unsure(
        self, record: FrameRecord, detection: DetectionRecord | None, chosen: Fields, lowest: object
    ) -> bool:
        """Whether the model was unsure of a value that stands lowest, or that is the same as the `lowest` rank.

        A severity of `none` may follow from a hazard of `none`; then only that of the hazard is known.
        """
        scope: Scope = "frame" if detection is None else "object"
        of = None if detection is None else detection.id
        return any(
            record.is_unsure(name, detection=of)
            for name, value in chosen.items()
            if same(value, lowest) or place_in(self._schema.rank(name, scope=scope) or [], value) == 0
        )


def sureness(record: FrameRecord, field: str, *, detection: int | None = None) -> str:
    """A model's confidence in a field's value in words: `84%`, `48%?` where it was unsure, nothing where unknown.

    Args:
        record: The frame's record.
        field: Name of the field.
        detection: Id of the detection, or None for the frame's own field.
    """
    p = record.confidence_of(field, detection=detection)
    mark = "?" if record.is_unsure(field, detection=detection) else ""
    return "" if p is None else f"{p:.0%}{mark}"


def write_line(image: NDArray[np.uint8], text: str, x: int, y: int, size_px: int) -> None:
    """Write a line on `image`, shape (H, W, 3), in place, its upper left corner at (x, y), on a dark ground."""
    _blit(image, _rendered(text, size_px), x, y, background=(30, 30, 30))


def headline(record: FrameRecord, verdict: str) -> str:
    """The state of the VLM in words: a verdict with its age, or why there is none."""
    vlm = record.vlm
    if vlm.status == "ok":
        return verdict
    if vlm.status == "carried":
        return f"{verdict}   ({vlm.age_s:.1f} s old)"
    why = [vlm.reason] if vlm.status == "skipped" and vlm.reason else [vlm.status, vlm.reason]
    return f"no answer: {', '.join(word for word in why if word)}"


def _is_choice(schema: object) -> bool:
    """Whether a field holds one of some values, a boolean included."""
    if not isinstance(schema, dict):
        return False
    kinds = schema.get("type")
    if "enum" in schema or kinds == "boolean" or (isinstance(kinds, list) and "boolean" in kinds):
        return True
    branches = [branch for key in ("allOf", "anyOf", "oneOf") for branch in schema.get(key, ())]
    return any(_is_choice(branch) or (isinstance(branch, dict) and "const" in branch) for branch in branches)


def _told(values: Fields, sure: Mapping[str, str]) -> Iterator[str]:
    """Each verdict in words: text as it stands where no other field says the same, all else behind the field's name."""
    for name, value in values.items():
        alike = any(other != name and same(values[other], value) for other in values)
        if isinstance(value, str):
            words = [name, value] if alike else [value]
        else:
            words = [name, _YES_NO[value] if isinstance(value, bool) else choice_name(value)]
        yield " ".join([*words, *([sure[name]] if sure[name] else [])])


def _free_top(wanted: _Area, taken: Sequence[_Area]) -> int:
    """How far down a rectangle goes until it covers none of those in `taken`."""
    top, height = wanted.top, wanted.bottom - wanted.top
    beside = [one for one in taken if one.left < wanted.right and wanted.left < one.right]
    for one in sorted(beside, key=lambda area: area.top):
        if one.top < top + height and top < one.bottom:
            top = one.bottom
    return top


def _lines(text: str, size_px: int, width_px: int) -> list[NDArray[np.uint8]]:
    return [_letters(line, size_px) for line in _wrapped(text, size_px, width_px)]


@lru_cache(maxsize=64)
def _wrapped(text: str, size_px: int, width_px: int) -> tuple[str, ...]:
    """Text broken into lines that fit into `width_px`, `_LINES` at most."""
    font = ImageFont.load_default(size=size_px)
    lines: list[str] = []
    for word in text[:_LETTERS].split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width_px - size_px:
            lines[-1] = longer
        else:
            lines.append(word)
    return tuple(lines[:_LINES])


@lru_cache(maxsize=1024)
def _letters(text: str, size_px: int) -> NDArray[np.uint8]:
    """Text that is drawn again and again."""
    return _rendered(text, size_px)


def _rendered(text: str, size_px: int) -> NDArray[np.uint8]:
    """Text as coverage 0..255, shape (h, w), with a margin."""
    font = ImageFont.load_default(size=size_px)
    left, _, right, _ = font.getbbox(text)
    margin = size_px // 4
    picture = Image.new("L", (round(right - left) + 2 * margin, round(1.25 * size_px) + margin), 0)
    ImageDraw.Draw(picture).text((margin - left, margin // 2), text, fill=255, font=font)
    return np.asarray(picture)


def _blit(
    image: NDArray[np.uint8], patch: NDArray[np.uint8], x: int, y: int, *, background: _Colour | None = None
) -> None:
    """Lay text on `image` at (x, y), moved inside where it fits, on a plain ground or on what is there."""
    height, width = image.shape[:2]
    x = max(0, min(x, width - patch.shape[1]))
    area = image[y : min(height, y + patch.shape[0]), x : min(width, x + patch.shape[1])]
    cover = patch[: area.shape[0], : area.shape[1], None].astype(np.uint16)
    paper = area if background is None else np.array(background, np.uint16)
    area[:] = (cover * np.array(_INK_BGR, np.uint16) + (255 - cover) * paper) // 255
