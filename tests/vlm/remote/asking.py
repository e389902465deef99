"""Questions to remote VLMs, for the tests here."""

import base64
import io
import threading
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console

from hazardlens.checking import check_vlm
from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.merge.lane import answer
from hazardlens.parts import settle
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Answer, Question, Vlm
from hazardlens.vlm.remote.model import RemoteVlm

HAZARD = FieldSchema.load("hazard")


def question(index: int = 0, *, asked: int = 2, schema: FieldSchema = HAZARD) -> Question:
    boxes = np.array([[4 * i, 2, 4 * i + 3, 12] for i in range(asked)], np.float32).reshape(asked, 4)
    detections = Detections(
        boxes_xyxy_px=boxes,
        confidence=np.full(asked, 0.9, np.float32),
        class_id=np.zeros(asked, np.int64),
        track_id=tuple(range(asked)),
        class_names={0: "person"},
    )
    image = np.full((32, 48, 3), index % 256, np.uint8)
    return Question(
        frame=Frame(image=image, index=index, time_s=index / 10, source="x"),
        detections=detections,
        asked=asked,
        fields=schema,
        schema=schema.ground(asked),
        context="",
        trigger=("every",),
    )


def remote(base_url: str, **settings: Any) -> RemoteVlm:
    """A remote VLM that waits little and asks the server nothing beforehand."""
    settings = {"probe": False, "first_wait_s": 0.01, "timeout_s": 5.0, "breaker_failures": 1_000, **settings}
    return RemoteVlm("fake", base_url=base_url, **settings)


def ask(vlm: Vlm, index: int = 0, **more: Any) -> Answer:
    return answer(vlm, question(index, **more), threading.Event())


def check(**changes: Any) -> tuple[int, str]:
    """What `hazardlens check` returns and tells of a VLM with some settings, by default with the hazard schema."""
    told = io.StringIO()
    console = Console(file=told, width=200)
    settled = settle({"vlm": {"model": "fake", **changes}, "schema": "hazard"})
    return check_vlm(settled, out=console, err=console), told.getvalue()


def opened(uri: str) -> Image.Image:
    """The picture in a data URI."""
    kind, _, data = uri.partition(",")
    assert kind == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))
