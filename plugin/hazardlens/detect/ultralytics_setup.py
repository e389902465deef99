"""Ultralytics, imported in the one place that keeps it from installing packages and from sending usage data."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("YOLO_AUTOINSTALL", "false")  # read once, when Ultralytics is imported

import ultralytics.utils
import ultralytics.utils.checks
from ultralytics import YOLO
from ultralytics.data.loaders import LoadImagesAndVideos, LoadStreams
from ultralytics.engine.model import Model
from ultralytics.engine.results import Results
from ultralytics.utils import LOGGER
from ultralytics.utils.downloads import GITHUB_ASSETS_NAMES
from ultralytics.utils.events import events
from ultralytics.utils.plotting import Annotator

__all__ = [
    "GITHUB_ASSETS_NAMES",
    "LOGGER",
    "YOLO",
    "Annotator",
    "LoadImagesAndVideos",
    "LoadStreams",
    "Model",
    "Results",
    "tracks_persistently",
]

# Where somebody imported Ultralytics before, the environment variable came too late.
ultralytics.utils.AUTOINSTALL = ultralytics.utils.checks.AUTOINSTALL = False
events.enabled = False


def tracks_persistently(predictor: Any) -> bool:
    """Whether a run follows objects and goes on with the tracks of the run before, as `track(persist=True)` does."""
    if predictor.args.mode != "track":
        return False
    from ultralytics.trackers.track import on_predict_start

    callbacks = (
        one for one in predictor.callbacks["on_predict_start"] if getattr(one, "func", None) is on_predict_start
    )
    return any(bool(one.keywords.get("persist")) for one in callbacks)
