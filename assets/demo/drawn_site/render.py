"""From a scene to its picture, and what of each thing shows in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
from numpy.typing import NDArray

from . import effects, lens, props, vehicles, worker
from .camera import Projection
from .canvas import Canvas
from .scene import Effect, Hour, Kind, Point, Scene, Thing
from .solids import Body, Light, draw, shadow_outlines
from .surroundings import draw_place

_BUILD: dict[Kind, Callable[[Thing], list[Body]]] = {
    "worker": worker.build,
    "forklift": vehicles.forklift,
    "truck": vehicles.truck,
    "ladder": props.ladder,
    "cone": props.cone,
    "pallet": props.pallet,
}
_SHADOW: dict[Hour, float] = {"day": 0.42, "dusk": 0.26, "night": 0.2}
_SUN_ELEVATION = math.radians(58)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What of a thing or an effect shows."""

    box_xyxy_px: tuple[float, float, float, float] | None
    """Around all its pixels that show; None where none do."""
    share: float
    """Of the pixels it would have with nothing in front of it and no edge of the picture, how many show: 0 to 1.

    Beyond a quarter of the picture's width outside it nothing is counted.
    Of smoke, only pixels count that it hides more than half, and only those inside the picture.
    """
    upper: float
    """The same for a worker's head and torso; for all else as `share`."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A drawn scene."""

    image: NDArray[np.uint8]
    """Shape (H, W, 3), BGR."""
    things: tuple[Shown, ...]
    """In the scene's order, as are the effects."""
    effects: tuple[Shown, ...]


def render(scene: Scene, size_wh: tuple[int, int] = (640, 360), *, oversample: int = 2, seed: int = 0) -> Picture:
    """Draw a scene.

    Args:
        scene: What to draw.
        size_wh: Width and height of the picture in pixels.
        oversample: The scene is drawn this many times larger, and shrunk, which smooths its edges.
        seed: Of the sensor's noise.
    """
    full = size_wh[0] * oversample, size_wh[1] * oversample
    project = Projection(scene.camera, full)
    canvas = Canvas(full)
    canvas.image[:] = draw_place(scene.site, scene.camera, full)
    owner_of = _owners(scene)
    alone = _paint(scene, canvas, project, owner_of)
    image = lens.light(canvas.image, scene, project)
    image = cv2.resize(image, size_wh, interpolation=cv2.INTER_AREA) if oversample > 1 else image
    seen = _Seen(canvas, alone, oversample)
    return Picture(
        image=lens.record(image, scene.lens, np.random.default_rng(seed)),
        things=tuple(seen(owner_of[thing]) for thing in scene.things),
        effects=tuple(seen(owner_of[effect]) for effect in scene.effects),
    )


def _owners(scene: Scene) -> dict[Thing | Effect, int]:
    """A number for each thing, with the next one left for a worker's upper half, and for each effect."""
    items: tuple[Thing | Effect, ...] = (*scene.things, *scene.effects)
    return {item: 1 + 2 * k for k, item in enumerate(items)}


def _paint(scene: Scene, canvas: Canvas, project: Projection, owner_of: dict[Thing | Effect, int]) -> dict[int, int]:
    """Draw puddles, shadows, then all that stands, the farthest first; give the pixels each owner has alone."""
    alone: dict[int, int] = {}
    for effect in scene.effects:
        if effect.kind == "spill":
            canvas.owner = owner_of[effect]
            effects.draw_spill(effect, canvas, project)
            alone |= canvas.take_alone()
    light = Light(scene.sun, _SUN_ELEVATION)
    solids = [(thing.at, _BUILD[thing.kind](thing), owner_of[thing]) for thing in scene.things]
    solids += [(item.at, props.clutter(item), 0) for item in scene.site.clutter]
    _shadows([bodies for _, bodies, _ in solids], canvas, project, light, _SHADOW[scene.hour])
    steps: list[tuple[Point, Callable[[], None]]] = [
        (at, partial(draw, bodies, canvas, project, light, owner)) for at, bodies, owner in solids
    ]
    steps += [
        (effect.at, partial(_rise, effect, canvas, project, scene.time_s, owner_of[effect]))
        for effect in scene.effects
        if effect.kind != "spill"
    ]
    for _, paint in sorted(steps, key=lambda step: -_depth(step[0], project)):
        paint()
        alone |= canvas.take_alone()
    return alone


def _depth(at: Point, project: Projection) -> float:
    return float(project(np.array([(at[0], 0.5, at[1])]))[1][0])


def _rise(effect: Effect, canvas: Canvas, project: Projection, time_s: float, owner: int) -> None:
    canvas.owner = owner
    paint = effects.draw_fire if effect.kind == "fire" else effects.draw_smoke
    paint(effect, canvas, project, time_s)


def _shadows(solids: list[list[Body]], canvas: Canvas, project: Projection, light: Light, strength: float) -> None:
    height, width = canvas.owners.shape
    dark = np.full((height // 2, width // 2), 255, np.uint8)
    for bodies in solids:
        for outline in shadow_outlines(bodies, project, light):
            area = np.round(np.clip(outline / 2, -9999, 9999)).astype(np.int32)
            cv2.fillConvexPoly(dark, area, round(255 * (1 - strength)))
    dark = cv2.GaussianBlur(dark, (0, 0), width / 500)
    veil = cv2.cvtColor(cv2.resize(dark, (width, height)), cv2.COLOR_GRAY2BGR)
    cv2.multiply(canvas.image, veil, dst=canvas.image, scale=1 / 255)


class _Seen:
    """Looks up what of an owner shows."""

    def __init__(self, canvas: Canvas, alone: dict[int, int], oversample: int) -> None:
        self._owners, self._alone, self._oversample = canvas.owners, alone, oversample
        self._counts = np.bincount(canvas.owners.ravel(), minlength=256)

    def __call__(self, owner: int) -> Shown:
        pixels = int(self._counts[owner] + self._counts[owner + 1])
        total = self._alone.get(owner, 0) + self._alone.get(owner + 1, 0)
        if not pixels or not total:
            return Shown(box_xyxy_px=None, share=0.0, upper=0.0)
        mask = cv2.inRange(self._owners, owner, owner + 1)
        x, y, w, h = (value / self._oversample for value in cv2.boundingRect(mask))
        share = min(1.0, pixels / total)
        upper = self._alone.get(owner + 1, 0)
        return Shown(
            box_xyxy_px=(x, y, x + w, y + h),
            share=share,
            upper=min(1.0, float(self._counts[owner + 1]) / upper) if upper else share,
        )
