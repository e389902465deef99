"""Ultralytics, imported in the one place that keeps it from installing packages and from sending usage data."""

from __future__ import annotations

import os

os.environ.setdefault("YOLO_AUTOINSTALL", "false")  # read once, when Ultralytics is imported

import ultralytics.utils
import ultralytics.utils.checks
from ultralytics import YOLO
from ultralytics.engine.results import Results
from ultralytics.utils import LOGGER
from ultralytics.utils.downloads import GITHUB_ASSETS_NAMES
from ultralytics.utils.events import events

__all__ = ["GITHUB_ASSETS_NAMES", "LOGGER", "YOLO", "Results"]

# Where somebody imported Ultralytics before, the environment variable came too late.
ultralytics.utils.AUTOINSTALL = ultralytics.utils.checks.AUTOINSTALL = False
events.enabled = False
