"""What is drawn: a verdict has the colour of its rank, and what is unknown is grey."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from pydantic import BaseModel

from hazardlens.outputs.draw import _CASING_BGR, _DEMO_BGR, _RANK_BGR, _UNKNOWN_BGR, Painter, headline
from hazardlens.record import Confidence, DetectionRecord, FrameRecord, VlmState
from hazardlens.schema import FieldSchema

SCHEMA = FieldSchema.load("hazard")


def record(fields: dict | None, vlm: VlmState, size_wh: tuple[int, int] = (320, 240)) -> FrameRecord:
    own = None if fields is None else {"hazard": fields["hazard"], "severity": fields["severity"]}
    detection = DetectionRecord(
        id=0,
        track_id=3,
        class_name="person",
        class_id=0,
        confidence=0.9,
        box_xyxy=(100.0, 80.0, 160.0, 180.0),
        asked=True,
        fields=own,
    )
    return FrameRecord(
        source="x", frame=0, time_s=1.0, size_wh=size_wh, detections=(detection,), fields=fields, vlm=vlm
    )


def answered(hazard: str, severity: str) -> dict:
    return {"notes": "A note — with ünïcode.", "hazard": hazard, "severity": severity}


@pytest.mark.parametrize(
    ("fields", "status", "colour"),
    [
        (answered("none", "none"), "ok", _RANK_BGR[0]),
        (answered("spill", "medium"), "ok", _RANK_BGR[2]),
        (answered("fire", "critical"), "carried", _RANK_BGR[4]),
        (None, "timeout", _UNKNOWN_BGR),
        (None, "skipped", _UNKNOWN_BGR),
    ],
)
def test_box_and_footer_have_the_colour_of_the_rank(fields: dict | None, status: str, colour: tuple) -> None:
    state = VlmState(status=status, age_s=0.5 if status == "carried" else None)
    image = Painter(SCHEMA, (320, 240), {}).draw(np.zeros((240, 320, 3), np.uint8), record(fields, state))
    assert tuple(image[130, 100]) == colour
    assert tuple(image[239, 5]) == colour


class Thing(BaseModel):
    id: int
    severity: Literal["minor", "major"] | None


class Site(BaseModel):
    severity: Literal["low", "medium", "high"] | None
    detections: list[Thing]


@pytest.mark.parametrize(
    ("own", "frame", "colours"),
    [
        ("major", "low", (_RANK_BGR[4], _RANK_BGR[0])),
        ("minor", "medium", (_RANK_BGR[0], _RANK_BGR[2])),
        (None, "high", (_UNKNOWN_BGR, _RANK_BGR[4])),
        ("major", None, (_RANK_BGR[4], _UNKNOWN_BGR)),
        ("low", "minor", (_UNKNOWN_BGR, _UNKNOWN_BGR)),
    ],
)
def test_each_scope_has_its_own_ranks_and_what_has_none_is_grey(
    own: str | None, frame: str | None, colours: tuple
) -> None:
    schema = FieldSchema.load(Site)
    made = record({"hazard": "none", "severity": frame}, VlmState(status="ok"))
    made = replace(made, detections=(replace(made.detections[0], fields={"severity": own}),))
    image = Painter(schema, (320, 240), {}).draw(np.zeros((240, 320, 3), np.uint8), made)
    assert (tuple(image[130, 100]), tuple(image[239, 5])) == colours


@pytest.mark.parametrize("demo", [False, True])
@pytest.mark.parametrize("size_wh", [(320, 240), (33, 17), (1, 1), (2000, 90)])
def test_any_size_can_be_drawn_on(size_wh: tuple[int, int], demo: bool) -> None:
    width, height = size_wh
    image = np.zeros((height, width, 3), np.uint8)
    drawn = Painter(SCHEMA, size_wh, {}, demo=demo).draw(
        image, record(answered("fire", "high"), VlmState(status="ok"), size_wh)
    )
    assert drawn.shape == image.shape
    assert drawn.any()


def test_a_picture_that_cannot_be_written_is_copied() -> None:
    image = np.zeros((240, 320, 3), np.uint8)
    image.setflags(write=False)
    assert Painter(SCHEMA, (320, 240), {}).draw(image, record(None, VlmState(status="error"))).any()


@pytest.mark.parametrize(
    ("vlm", "words"),
    [
        (VlmState(status="ok"), "fire, high"),
        (VlmState(status="carried", age_s=1.25), "fire, high   (1.2 s old)"),
        (VlmState(status="timeout", reason="late"), "no answer: timeout, late"),
        (VlmState(status="stale"), "no answer: stale"),
        (VlmState(status="skipped", reason="no VLM"), "no answer: no VLM"),
        (VlmState(status="skipped"), "no answer: skipped"),
    ],
)
def test_the_state_in_words(vlm: VlmState, words: str) -> None:
    assert headline(record(None, vlm), "fire, high") == words


def test_a_verdict_is_drawn_with_its_confidence_unless_a_rule_changed_it() -> None:
    sure = Confidence(p=0.934, choices={"fire": 0.934, "none": 0.066}, mask_mass=1.0)
    rank = Confidence(p=0.7, choices={"low": 0.7, "high": 0.3}, mask_mass=1.0)
    known = {"hazard": sure, "/detections/0/fields/severity": rank, "severity": rank}
    made = replace(record(answered("fire", "high"), VlmState(status="ok")), confidence=known)
    painter = Painter(SCHEMA, (320, 240), {})
    assert painter._verdict(made) == "fire 93%, high"
    assert painter._verdict(made, made.detections[0]) == "fire, high"
    calm = replace(made.detections[0], fields={"hazard": "fire", "severity": "low"})
    assert painter._verdict(replace(made, detections=(calm,)), calm) == "fire, low 70%"


SITE = FieldSchema.load(
    {
        "type": "object",
        "properties": {
            "left": {"enum": ["clear", "blocked"]},
            "right": {"enum": ["clear", "blocked"]},
            "gate_open": {"type": "boolean"},
            "weather": {"anyOf": [{"const": "dry"}, {"const": "wet"}]},
            "lane": {"enum": [1, 2, None]},
            "kind": {"const": "site"},
            "workers": {"type": "integer", "minimum": 0, "maximum": 9},
            "detections": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"id": {"type": "integer"}, "helmet": {"type": ["boolean", "null"]}},
                    "required": ["id", "helmet"],
                },
            },
        },
        "required": ["left", "right", "gate_open", "weather", "lane", "kind", "workers", "detections"],
    }
)


def confidence(name: str, p: float) -> Confidence:
    return Confidence(p=p, choices={name: p, "other": 1 - p}, mask_mass=1.0)


def site(helmet: bool | None, size_wh: tuple[int, int] = (640, 360), **fields: object) -> FrameRecord:
    own = {"left": "clear", "right": "blocked", "gate_open": True, "weather": "wet", "lane": 2, "kind": "site"}
    made = record(answered("none", "none"), VlmState(status="ok"), size_wh)
    known = {
        "left": confidence("clear", 0.81),
        "right": confidence("blocked", 0.62),
        "gate_open": confidence("true", 0.934),
        "weather": confidence("wet", 0.7),
        "lane": confidence("2", 0.5),
        "/detections/0/fields/helmet": confidence("null" if helmet is None else str(helmet).lower(), 0.66),
    }
    thing = replace(made.detections[0], fields={"helmet": helmet})
    return replace(made, fields={**own, "workers": 3, **fields}, detections=(thing,), confidence=known)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "clear 81%, blocked 62%, gate_open yes 93%, wet 70%, lane 2 50%"),
        ({"gate_open": False}, "clear 81%, blocked 62%, gate_open no, wet 70%, lane 2 50%"),
        ({"right": "clear"}, "left clear 81%, right clear, gate_open yes 93%, wet 70%, lane 2 50%"),
        ({"left": "blocked"}, "left blocked, right blocked 62%, gate_open yes 93%, wet 70%, lane 2 50%"),
        ({"lane": None, "weather": "dry"}, "clear 81%, blocked 62%, gate_open yes 93%, dry, lane null"),
    ],
)
def test_every_choice_of_a_frame_is_drawn(fields: dict, words: str) -> None:
    assert Painter(SITE, (640, 360), {})._verdict(site(True, **fields)) == words


def test_equal_values_of_two_fields_are_both_drawn() -> None:
    painter = Painter(SITE, (640, 360), {})
    made = site(True, right="clear")
    sure = {**made.confidence, "right": confidence("clear", 0.9)}
    assert painter._verdict(replace(made, confidence=sure)).startswith("left clear 81%, right clear 90%, gate_open")
    assert painter._verdict(replace(made, confidence=None)).startswith("left clear, right clear, gate_open yes, wet")


def test_a_value_that_follows_from_an_equal_one_is_drawn_once() -> None:
    """A severity of none leaves nothing to choose where the hazard is none."""
    made = record(answered("none", "none"), VlmState(status="ok"))
    painter = Painter(SCHEMA, (320, 240), {})
    assert painter._verdict(made) == "hazard none, severity none", "nothing tells that it follows"
    sure = {"hazard": confidence("none", 0.97)}
    assert painter._verdict(replace(made, confidence=sure)) == "none 97%"
    both = {**sure, "severity": confidence("none", 0.8)}
    assert painter._verdict(replace(made, confidence=both)) == "hazard none 97%, severity none 80%"


@pytest.mark.parametrize(("helmet", "words"), [(True, "yes 66%"), (False, "no 66%"), (None, "null 66%")])
def test_a_boolean_of_an_object_is_drawn(helmet: bool | None, words: str) -> None:
    painter, made = Painter(SITE, (640, 360), {}), site(helmet)
    assert painter._verdict(made, made.detections[0]) == f"helmet {words}"
    image = np.zeros((360, 640, 3), np.uint8)
    others = replace(made, detections=(replace(made.detections[0], fields={"helmet": helmet is not True}),))
    assert (painter.draw(image.copy(), made) != painter.draw(image.copy(), others))[:80].any()


def test_labels_of_things_that_overlap_do_not() -> None:
    vlm = VlmState(status="ok")
    one = record(answered("fire", "high"), vlm, (640, 360))
    boxes = [(100.0, 80.0, 160.0, 180.0), (110.0, 82.0, 170.0, 182.0), (112.0, 60.0, 150.0, 170.0)]
    things = tuple(replace(one.detections[0], id=k, track_id=k, box_xyxy=box) for k, box in enumerate(boxes))
    one = replace(one, detections=things)
    painter = Painter(SCHEMA, (640, 360), {})
    taken: list = []
    for thing in things:
        taken.append(painter._draw_label(np.zeros((360, 640, 3), np.uint8), one, thing, taken))
    for k, a in enumerate(taken):
        assert all(a.bottom <= b.top or b.bottom <= a.top for b in taken[:k])
    together = painter.draw(np.zeros((360, 640, 3), np.uint8), one)
    for area in taken:
        ground = (together[area.top : area.bottom, area.left : area.right] == _RANK_BGR[3]).all(axis=2)
        assert ground.mean() > 0.5


def test_a_box_is_set_off_from_a_ground_of_its_own_colour() -> None:
    image = np.full((240, 320, 3), _UNKNOWN_BGR, np.uint8)
    drawn = Painter(SCHEMA, (320, 240), {}).draw(image, record(None, VlmState(status="skipped")))
    assert tuple(drawn[130, 100]) == _UNKNOWN_BGR
    assert tuple(drawn[130, 99]) == tuple(drawn[130, 101]) == _CASING_BGR


def test_zones_are_drawn_with_their_names() -> None:
    image = np.zeros((240, 320, 3), np.uint8)
    zones = {"gate": [(0.75, 0.25), (1.0, 0.25), (1.0, 0.75), (0.75, 0.75)]}
    drawn = Painter(SCHEMA, (320, 240), zones).draw(image, record(None, VlmState(status="skipped")))
    assert drawn[100, 240].tolist() == [255, 255, 255]
    assert drawn[63:80, 245:280].any()


def test_what_stands_behind_a_line_break_is_drawn_too() -> None:
    def inked(notes: str) -> int:
        fields = {**answered("fire", "high"), "notes": notes}
        image = np.zeros((240, 320, 3), np.uint8)
        return int((Painter(SCHEMA, (320, 240), {}).draw(image, record(fields, OK)) > 200).sum())

    assert inked("One.\nTwo two two.") == inked("One. Two two two.") > inked("One.")


OK = VlmState(status="ok")


def both(size_wh: tuple[int, int], box_xyxy: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The same record drawn without and with the mark, on noise."""
    width, height = size_wh
    made = record(answered("fire", "high"), OK, size_wh)
    made = replace(made, detections=(replace(made.detections[0], box_xyxy=box_xyxy),))
    image = np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)
    plain, marked = (Painter(SCHEMA, size_wh, {}, demo=demo).draw(image.copy(), made) for demo in (False, True))
    return plain, marked


@pytest.mark.parametrize(("size_wh", "capital_px"), [((320, 180), 8), ((1280, 720), 16), ((720, 1280), 16)])
def test_the_mark_of_demo_models_is_legible_and_stands_in_the_corner_only(size_wh, capital_px: int) -> None:
    width, height = size_wh
    plain, marked = both(size_wh, (10, height / 2, width / 4, height * 0.6))
    rows, columns = np.nonzero((plain != marked).any(axis=2))
    assert (rows.min(), columns.max()) == (0, width - 1)
    assert rows.max() < height / 8
    assert columns.min() > 0
    patch = marked[: rows.max() + 1, columns.min() :].astype(int)
    ink = (patch > 240).all(axis=2)
    ground = (patch == _DEMO_BGR).all(axis=2)
    assert (ink | ground).mean() > 0.7, "plain ground, sharp letters"
    lines = np.nonzero(ink.any(axis=1))[0]
    assert lines.max() - lines.min() + 1 >= capital_px
    assert not ink[:, [0, -1]].any()


@pytest.mark.parametrize("size_wh", [(320, 180), (1280, 720)])
@pytest.mark.parametrize("left", [0.0, 0.5, 0.9])
def test_the_mark_covers_no_fields(size_wh: tuple[int, int], left: float) -> None:
    width, height = size_wh
    plain, marked = both(size_wh, (left * width, 0.0, width - 1, height / 2))
    high = (marked == _RANK_BGR[3]).all(axis=2)
    high[[0]] = False
    top = np.nonzero(high.sum(axis=1) > 0.1 * width)[0].min()
    label = high[top : top + round(1.25 * max(11, height / 36))]
    assert label.any(axis=1).all(), "the whole height of the label is seen"
    assert np.array_equal(plain[height // 2 + 4 :], marked[height // 2 + 4 :]), "and so is the footer"


@pytest.mark.parametrize(
    ("p", "mask_mass", "words", "grey"),
    [
        (0.99, 0.9, "none 99%", False),
        (0.5, 0.5, "none 50%", False),
        (0.48, 1.0, "none 48%?", True),
        (0.99, 0.49, "none 99%?", True),
    ],
)
def test_an_unsure_none_is_grey_and_has_a_question_mark(p: float, mask_mass: float, words: str, grey: bool) -> None:
    """Of the frame and of an object, whichever of them is unsure."""
    own = Confidence(p=p, choices={"none": p, "fire": 1 - p}, mask_mass=mask_mass)
    sure = Confidence(p=0.9, choices={"none": 0.9, "fire": 0.1}, mask_mass=1.0)
    made = record(answered("none", "none"), OK)
    painter, plain = Painter(SCHEMA, (320, 240), {}), np.zeros((240, 320, 3), np.uint8)
    seen = _UNKNOWN_BGR if grey else _RANK_BGR[0]
    for known, colours in (((own, sure), (_RANK_BGR[0], seen)), ((sure, own), (seen, _RANK_BGR[0]))):
        told = replace(made, confidence=dict(zip(("hazard", "/detections/0/fields/hazard"), known, strict=True)))
        image = painter.draw(plain.copy(), told)
        assert (tuple(image[130, 100]), tuple(image[239, 5])) == colours
        assert painter.colour(told) == colours[1]
        labelled = painter.add_verdicts(plain.copy(), told, of_objects=True)
        assert (labelled[:200] == colours[0]).all(axis=2).any()
        assert words in (painter._verdict(told), painter._verdict(told, told.detections[0]))


def test_any_verdict_that_is_unsure_is_marked_and_a_hazard_keeps_its_colour() -> None:
    made = replace(record(answered("fire", "high"), OK), confidence={"hazard": confidence("fire", 0.4)})
    painter = Painter(SCHEMA, (320, 240), {})
    assert painter._verdict(made) == "fire 40%?, high"
    assert painter.colour(made) == _RANK_BGR[3]
    changed = replace(made, fields=answered("none", "none"))
    assert painter.colour(changed) == _RANK_BGR[0], "a rule said none, and nothing is known of how sure that is"


def test_the_confidence_of_an_object_is_found_among_those_that_remain() -> None:
    made = record(answered("none", "none"), OK)
    other = replace(made.detections[0], id=5, fields={"hazard": "fire", "severity": "low"})
    known = {"/detections/5/fields/hazard": confidence("fire", 0.3)}
    made = replace(made, detections=(other,), confidence=known)
    assert Painter(SCHEMA, (320, 240), {})._verdict(made, other) == "fire 30%?, low"
    assert not made.is_unsure("hazard", detection=0)
