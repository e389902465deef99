"""hazardlens: what a YOLO26 detector sees on every frame, merged with schema-held answers of a vision-language model.

`hazardlens.process("site.mp4")` yields one `FrameRecord` per frame, `hazardlens.live(["rtsp://..."])` the
records of cameras as they come. Importing the package loads neither torch nor cv2.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hazardlens.callback import Counts, FieldResults, Plugin, attach
    from hazardlens.detect import Detections, Detector
    from hazardlens.errors import (
        ConstraintError,
        DetectionError,
        HazardlensError,
        InputError,
        OutputError,
        OutputExistsError,
        PipelineError,
        SchemaError,
        ServerError,
        VideoError,
        WeightsError,
    )
    from hazardlens.frames import Frame
    from hazardlens.monitor.run import LiveRun
    from hazardlens.monitor.start import live
    from hazardlens.parts import Parts, assemble
    from hazardlens.pipeline import Pipeline
    from hazardlens.record import FrameRecord
    from hazardlens.schema import FieldSchema
    from hazardlens.video import VideoRun, process
    from hazardlens.vlm import Answer, Question, Reply, Vlm

_HOME = {
    "Answer": "vlm",
    "ConstraintError": "errors",
    "Counts": "callback",
    "DetectionError": "errors",
    "Detections": "detect",
    "Detector": "detect",
    "FieldResults": "callback",
    "FieldSchema": "schema",
    "Frame": "frames",
    "FrameRecord": "record",
    "HazardlensError": "errors",
    "LiveRun": "monitor.run",
    "InputError": "errors",
    "OutputError": "errors",
    "OutputExistsError": "errors",
    "Parts": "parts",
    "Pipeline": "pipeline",
    "PipelineError": "errors",
    "Plugin": "callback",
    "Question": "vlm",
    "Reply": "vlm",
    "SchemaError": "errors",
    "ServerError": "errors",
    "VideoError": "errors",
    "VideoRun": "video",
    "Vlm": "vlm",
    "WeightsError": "errors",
    "assemble": "parts",
    "attach": "callback",
    "live": "monitor.start",
    "process": "video",
}

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "ConstraintError",
    "Counts",
    "DetectionError",
    "Detections",
    "Detector",
    "FieldResults",
    "FieldSchema",
    "Frame",
    "FrameRecord",
    "HazardlensError",
    "InputError",
    "LiveRun",
    "OutputError",
    "OutputExistsError",
    "Parts",
    "Pipeline",
    "PipelineError",
    "Plugin",
    "Question",
    "Reply",
    "SchemaError",
    "ServerError",
    "VideoError",
    "VideoRun",
    "Vlm",
    "WeightsError",
    "assemble",
    "attach",
    "live",
    "process",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
