"""What the VLM is shown."""

import numpy as np
import pytest

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Question
from hazardlens.vlm.prompt import describe_detection, show


def detections(*boxes: tuple[float, float, float, float]) -> Detections:
    return Detections(
        boxes_xyxy_px=np.array(boxes, np.float32).reshape(-1, 4),
        confidence=np.full(len(boxes), 0.914, np.float32),
        class_id=np.zeros(len(boxes), np.int64),
        track_id=(None,) * len(boxes),
        class_names={0: "person"},
    )


def question(found: Detections, *, asked: int, size_wh: tuple[int, int] = (300, 300), context: str = "") -> Question:
    image = np.zeros((size_wh[1], size_wh[0], 3), np.uint8)
    image[:, :, 0] = 200
    return Question(
        frame=Frame(image=image, index=0, time_s=0.0, source="x"),
        detections=found,
        asked=asked,
        fields=FieldSchema.load("hazard"),
        schema=FieldSchema.load("hazard").ground(asked),
        context=context,
        trigger=("every",),
    )


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ((0, 0, 30, 60), "person, top left, 10 % wide and 20 % tall, detector 91 % sure"),
        ((140, 140, 160, 160), "person, middle centre, 7 % wide and 7 % tall, detector 91 % sure"),
        ((250, 200, 300, 300), "person, bottom right, 17 % wide and 33 % tall, detector 91 % sure"),
        ((290, 290, 320, 330), "person, bottom right, 10 % wide and 13 % tall, detector 91 % sure"),
    ],
)
def test_a_detection_in_plain_words(box: tuple[float, float, float, float], words: str) -> None:
    assert describe_detection(detections(box), 0, (300, 300)) == words


def test_the_prompt_names_site_fields_and_objects_and_counts_the_others() -> None:
    shown = show(
        question(detections(*[(0, 0, 9, 9)] * 5), asked=2, context="A yard with forklifts."),
        longest_side_px=100,
        draw_ids=False,
    )
    for part in ("A yard with forklifts.", "missing_ppe", "severity", "- 0: person", "- 1: person", "3 person"):
        assert part in shown.prompt
    assert "- 2: person" not in shown.prompt


def test_a_frame_without_objects_says_so() -> None:
    shown = show(question(detections(), asked=0), longest_side_px=100, draw_ids=False)
    assert "found no objects" in shown.prompt


@pytest.mark.parametrize(
    ("size_wh", "longest", "shape"),
    [((300, 150), 100, (50, 100, 3)), ((300, 150), 1000, (150, 300, 3)), ((1, 300), 100, (100, 1, 3))],
)
def test_the_picture_is_rgb_and_scaled_down_to_its_longest_side(
    size_wh: tuple[int, int], longest: int, shape: tuple[int, int, int]
) -> None:
    shown = show(question(detections(), asked=0, size_wh=size_wh), longest_side_px=longest, draw_ids=False)
    assert shown.image.shape == shape
    assert shown.image[0, 0].tolist() == [0, 0, 200]


def test_ids_are_drawn_only_if_asked_for_and_never_on_the_frame_itself() -> None:
    asked = question(detections((50, 50, 200, 200)), asked=1)
    before = asked.frame.image.copy()
    plain = show(asked, longest_side_px=300, draw_ids=False).image
    marked = show(asked, longest_side_px=300, draw_ids=True).image
    assert np.array_equal(plain, before[:, :, ::-1])
    assert not np.array_equal(plain, marked)
    assert np.array_equal(asked.frame.image, before)
