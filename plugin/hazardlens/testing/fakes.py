"""A detector and VLMs that need no weights, for testing a pipeline. They are fakes: they look at nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from hazardlens.detect.base import Detections, Detector
from hazardlens.frames.base import Frame
from hazardlens.schema import ITEM_SEPARATOR, KEY_SEPARATOR
from hazardlens.vlm.base import Question, Reply, Shown, Vlm

Box = tuple[str, int | None, float, float, float, float]
"""Class name, track id or None, and corners x1, y1, x2, y2 in pixels."""


class FakeDetector(Detector):
    """Finds what a function says.

    Args:
        boxes: Gives the boxes of a frame; by default one person in the middle.
        class_names: Classes that it pretends to know, by index.
        confidence: Confidence of every detection, 0..1.
    """

    name = "fake-detector"

    def __init__(
        self,
        boxes: Callable[[Frame], Sequence[Box]] | None = None,
        *,
        class_names: Sequence[str] = ("person", "truck"),
        confidence: float = 0.9,
    ) -> None:
        self._boxes = boxes or _person_in_the_middle
        self.class_names = dict(enumerate(class_names))
        self._confidence = confidence

    def detect(self, frames: Sequence[Frame], *, stream: Hashable | None = None) -> list[Detections]:
        """One `Detections` per frame, as the function says."""
        return [self._detect(frame) for frame in frames]

    def _detect(self, frame: Frame) -> Detections:
        boxes = list(self._boxes(frame))
        index = {name: class_id for class_id, name in self.class_names.items()}
        return Detections(
            boxes_xyxy_px=np.array([box[2:] for box in boxes], np.float32).reshape(len(boxes), 4),
            confidence=np.full(len(boxes), self._confidence, np.float32),
            class_id=np.array([index[box[0]] for box in boxes], np.int64),
            track_id=tuple(box[1] for box in boxes),
            class_names=self.class_names,
        )


class FunctionVlm(Vlm):
    """Answers what a function says: fields as a mapping, or the very text of an answer.

    Args:
        function: Gives the answer to a question; what it raises is raised by `ask`.
        name: Name of the model, as written into records.
        latency_s: Wall time that every answer takes in seconds, spent asleep.
    """

    enforced = "checked"

    def __init__(
        self,
        function: Callable[[Question], Mapping[str, Any] | str],
        *,
        name: str = "fake-vlm",
        latency_s: float = 0.0,
    ) -> None:
        self._function = function
        self.name = name
        self._latency_s = latency_s

    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        """Answer what the function says."""
        if stop.wait(self._latency_s):
            raise TimeoutError("stopped before the answer was complete")
        said = self._function(question)
        text = said if isinstance(said, str) else json.dumps(said, separators=(ITEM_SEPARATOR, KEY_SEPARATOR))
        return Reply(text=text)


class FakeVlm(FunctionVlm):
    """Answers with a small instance of whatever schema it is asked with.

    Args:
        latency_s: Wall time that every answer takes in seconds, spent asleep.
    """

    def __init__(self, *, latency_s: float = 0.0) -> None:
        super().__init__(lambda question: small_instance(question.schema.document), latency_s=latency_s)


def small_instance(document: Mapping[str, Any]) -> Any:
    """A small instance of a schema made of plain keywords: the first choice everywhere, the shortest text.

    Raises:
        ValueError: For a schema that this simple rule cannot satisfy; use a `FunctionVlm` there.
    """
    return _instance(document, document)


def _instance(node: Any, root: Mapping[str, Any]) -> Any:
    node = _flat(node, root)
    if "const" in node:
        return node["const"]
    if "enum" in node:
        return node["enum"][0]
    kind = node.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        wanted = node.get("required", [])
        return {name: _instance(part, root) for name, part in node.get("properties", {}).items() if name in wanted}
    if kind == "array":
        return [_instance(part, root) for part in node.get("prefixItems", [])]
    if kind == "string":
        return "x" * int(node.get("minLength", 0))
    if kind in ("integer", "number"):
        return node.get("minimum", 0)
    if kind in ("boolean", "null"):
        return False if kind == "boolean" else None
    raise ValueError(f"no small instance of {node!r}: answer with a FunctionVlm")


def _flat(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with its reference followed and the first of its alternatives laid over it."""
    node: dict[str, Any] = dict(schema)
    if "$ref" in node:
        target: Any = root
        for step in node.pop("$ref").removeprefix("#/").split("/"):
            target = target[step]
        node = {**_flat(target, root), **node}
    if "anyOf" in node:
        first = _flat(node.pop("anyOf")[0], root)
        properties = {**node.get("properties", {})}
        for name, part in first.pop("properties", {}).items():
            properties[name] = {**properties.get(name, {}), **part}
        node = {**node, **first, **({"properties": properties} if properties else {})}
    return node


def _person_in_the_middle(frame: Frame) -> list[Box]:
    width, height = frame.size_wh
    return [("person", 1, 0.4 * width, 0.3 * height, 0.6 * width, 0.8 * height)]
