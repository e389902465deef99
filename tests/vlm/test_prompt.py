"""What the VLM is shown."""

import numpy as np
import pytest

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Question, View
from hazardlens.vlm.crops import crop_sheet
from hazardlens.vlm.prompt import describe_detection, prompt_text, show


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
    shown = show(question(detections(*[(0, 0, 9, 9)] * 5), asked=2, context="A yard with forklifts."), View())
    for part in ("A yard with forklifts.", "missing_ppe", "severity", "- 0: person", "- 1: person", "3 person"):
        assert part in shown.prompt
    assert "- 2: person" not in shown.prompt


def test_a_frame_without_objects_says_so() -> None:
    shown = show(question(detections(), asked=0), View())
    assert "found no objects" in shown.prompt


@pytest.mark.parametrize(
    ("size_wh", "longest", "shape"),
    [((300, 150), 100, (50, 100, 3)), ((300, 150), 1000, (150, 300, 3)), ((1, 300), 100, (100, 1, 3))],
)
def test_the_picture_is_rgb_and_scaled_down_to_its_longest_side(
    size_wh: tuple[int, int], longest: int, shape: tuple[int, int, int]
) -> None:
    shown = show(question(detections(), asked=0, size_wh=size_wh), View(longest_side_px=longest))
    assert shown.image.shape == shape
    assert shown.image[0, 0].tolist() == [0, 0, 200]


@pytest.mark.parametrize("longest", [239, 200, 180, 130, 120, 61])
@pytest.mark.parametrize("upright", [True, False])
def test_no_line_of_one_pixel_is_lost_when_the_picture_is_scaled(longest: int, upright: bool) -> None:
    """Each line weighs at least four fifths of what a mean over exact areas gives it."""
    asked = question(detections(), asked=0, size_wh=(240, 240))
    for line in range(240):
        asked.frame.image[:] = 0
        asked.frame.image[(slice(None), line) if upright else line] = 255
        seen = show(asked, View(longest_side_px=longest)).image
        assert seen.astype(float).sum() > 0.8 * 255 * 3 * longest**2 / 240


def test_ids_are_drawn_only_if_asked_for_and_never_on_the_frame_itself() -> None:
    asked = question(detections((50, 50, 200, 200)), asked=1)
    before = asked.frame.image.copy()
    plain = show(asked, View()).image
    marked = show(asked, View(draw_ids=True)).image
    assert np.array_equal(plain, before[:, :, ::-1])
    assert not np.array_equal(plain, marked)
    assert np.array_equal(asked.frame.image, before)


PERSON = "person, top left, 3 % wide and 3 % tall, detector 91 % sure"
SECOND = "The second picture shows these objects one by one, row by row in the order of their ids."


@pytest.mark.parametrize(
    ("asked", "crops_px", "lines"),
    [
        (2, None, [f"- 0: {PERSON}", f"- 1: {PERSON}", "Not asked about: 1 person."]),
        (2, 32, [f"- 0: {PERSON}", f"- 1: {PERSON}", SECOND, "Not asked about: 1 person."]),
        (3, 32, [f"- 0: {PERSON}", f"- 1: {PERSON}", f"- 2: {PERSON}", SECOND]),
        (0, 32, ["Not asked about: 3 person."]),
    ],
)
def test_the_prompt_tells_of_the_second_picture_where_there_is_one(
    asked: int, crops_px: int | None, lines: list[str]
) -> None:
    shown = show(question(detections(*[(0, 0, 9, 9)] * 3), asked=asked), View(crops_px=crops_px))
    assert shown.prompt.split("\n\n")[-1].splitlines() == ["Objects that the detector found, by id:", *lines]
    assert (shown.crops is not None) == (SECOND in shown.prompt)


def test_without_objects_there_is_no_second_picture() -> None:
    shown = show(question(detections(), asked=0), View(crops_px=32))
    assert shown.crops is None
    assert shown.prompt.endswith("found no objects in this frame.")


def test_leaving_out_the_fields_changes_nothing_else() -> None:
    asked = question(detections((0, 0, 9, 9)), asked=1, context="A yard with forklifts.")
    fields = asked.fields.describe()
    for crops_px in (None, 32):
        told = prompt_text(asked, View(crops_px=crops_px))
        silent = prompt_text(asked, View(crops_px=crops_px, describe_fields=False))
        assert told.count(fields) == 1
        assert silent == told.replace(fields + "\n\n", "")


def test_the_second_picture_is_the_sheet_of_those_asked_about_from_the_unscaled_frame() -> None:
    asked = question(detections((10, 10, 40, 40), (200, 100, 290, 150), (0, 0, 9, 9)), asked=2)
    asked.frame.image[:] = np.random.default_rng(0).integers(0, 256, asked.frame.image.shape, np.uint8)
    shown = show(asked, View(longest_side_px=50, crops_px=32))
    sheet = crop_sheet(asked.frame.image, asked.detections.boxes_xyxy_px[:2], crop_px=32)
    assert np.array_equal(shown.crops, sheet)
    assert not sheet[:32, 64:].any()


def test_ids_are_drawn_in_the_corner_of_each_cell_that_shows_an_object() -> None:
    asked = question(detections(*[(50, 50, 200, 200)] * 6), asked=5)
    plain = show(asked, View(crops_px=64)).crops
    marked = show(asked, View(crops_px=64, draw_ids=True)).crops
    changed = (plain != marked).any(axis=2).reshape(4, 64, 4, 64).swapaxes(1, 2).reshape(16, 64, 64)
    assert [bool(cell.any()) for cell in changed] == [True] * 5 + [False] * 11
    assert not changed[:, 20:].any()
    assert not changed[:, :, 20:].any()
    assert len({cell.tobytes() for cell in changed[:5]}) == 5, "each cell has its own number"
