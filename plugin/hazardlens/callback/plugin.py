"""Attach a pipeline to an Ultralytics model."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from hazardlens.callback.core import Core
from hazardlens.callback.counts import Counts
from hazardlens.callback.hooks import Session, hang, take_down
from hazardlens.callback.stamps import Clock
from hazardlens.detect.ultralytics_setup import Model
from hazardlens.detect.yolo import class_names_of, is_demo
from hazardlens.errors import InputError
from hazardlens.parts import PipelineSource, SchemaSource, load_vlm, settle, warn_of_demo
from hazardlens.record import FrameRecord
from hazardlens.vlm.base import Vlm

_log = logging.getLogger(__name__)

TASKS = ("detect", "segment", "pose", "obb")
"""Tasks whose results have boxes."""

_WAIT_S = 30.0


def attach(
    model: Any,
    pipeline: PipelineSource = "site",
    *,
    vlm: str | Path | Vlm | Literal["none"] | None = None,
    schema: SchemaSource | None = None,
    every: float | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    wait: bool | None = None,
    on_record: Callable[[FrameRecord], object] | None = None,
    clock: Clock = time.monotonic,
) -> Plugin:
    """Attach a pipeline to an Ultralytics model: from now on its own results carry the fields.

    Whatever `predict`, `track` or a call of the model gives is a `FieldResults`. The detector is the model as the user
    calls it; the pipeline's `detector` settings are not used. A model that is attached already is detached first.

    Args:
        model: An Ultralytics model for one of the tasks detect, segment, pose and obb.
        pipeline: A shipped pipeline's name, a path, its content, or a `Pipeline`.
        vlm: Hub name, folder or a `Vlm`, in place of the pipeline's; `none` for records without fields.
        schema: A field schema, in place of the pipeline's.
        every: Seconds between questions (or `"1s"`, `"500ms"`), in place of the pipeline's.
        overrides: More settings to change, by dotted place, such as `{"vlm.device": "cpu"}`.
        wait: True: the result of a frame that is asked about waits for its own answer. False: nothing waits, results
            carry the newest answer with its age, and finished records come later. None: True for files and pictures,
            False for cameras, screens, and pictures that are tracked from call to call (`persist=True`).
        on_record: Called with each finished record of a frame that was asked about, in the VLM's thread; without it
            `Plugin.records` gives them.
        clock: Gives times in seconds where a source has none of its own.

    Raises:
        InputError: If it is no such model, or pipeline or schema is at fault.
        WeightsError: If the VLM cannot be loaded, or the model's classes cannot be read.
    """
    _check(model)
    settled = settle(pipeline, vlm=vlm, schema=schema, every=every, overrides=overrides)
    loaded = load_vlm(settled, class_names_of(model).values())
    demo = {"the detector": is_demo(model), loaded.name if loaded else "": loaded is not None and loaded.demo}
    warn_of_demo(name for name, known in demo.items() if known)
    core = Core(
        pipeline=settled.pipeline, schema=settled.schema, vlm=loaded, demo=any(demo.values()), on_record=on_record
    )
    _detach(model)
    hang(model.callbacks, Session(core, wait=wait, clock=clock))
    return Plugin(core, model)


class Plugin:
    """What `attach` gives: counts, finished records, and the end of it. It need not be kept for the model's sake.

    Leaving a `with` block closes it; after an error, and after Ctrl-C, without waiting for answers.
    """

    def __init__(self, core: Core, model: Any) -> None:
        self._core = core
        self._model = weakref.ref(model)

    @property
    def counts(self) -> Counts:
        """Counts so far."""
        return self._core.counts

    def records(self) -> list[FrameRecord]:
        """The finished records of frames that were asked about, since the last call; none where a callable gets them.

        The newest thousand are kept.
        """
        return self._core.take_records()

    def detach(self) -> None:
        """Take the plugin out of the model, without waiting: answers under way are still handed out."""
        self._take_down()
        self._core.retire()

    def close(self, wait_s: float = _WAIT_S) -> None:
        """Take the plugin out of the model and wait for the answers under way; may be called twice.

        Args:
            wait_s: Most seconds to wait; a question that has no answer by then has a record with status `error`.
        """
        self._take_down()
        self._core.close(wait_s)

    def _take_down(self) -> None:
        model = self._model()
        if model is not None and not self._core.retired:
            take_down(model.callbacks, self._core)
            _log.info("detached: %s", self._core.counts.line())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(_WAIT_S if error is None else 0.0)


def _check(model: Any) -> None:
    if not isinstance(model, Model):
        raise InputError(
            f"attach: expected an Ultralytics model, got {type(model).__name__}", help='Such as YOLO("yolo26n.pt").'
        )
    if model.task not in TASKS:
        raise InputError(
            f"attach: this is a '{model.task}' model, whose results have no boxes",
            help=f"Use a model for one of: {', '.join(TASKS)}.",
        )


def _detach(model: Any) -> None:
    for core in take_down(model.callbacks):
        _log.warning("the model was attached already; that plugin is detached")
        core.retire()
