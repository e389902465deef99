import numpy as np
import pytest

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.merge import policy as policy_module
from hazardlens.merge.policy import AskPolicy
from hazardlens.pipeline import AskSettings, Zone

NAMES = {0: "person", 1: "car"}
LEFT = {"gate": {"polygon": [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}}
IN, OUT = 20, 80
IMAGE = np.zeros((100, 100, 3), np.uint8)


def _frame(index, time_s):
    return Frame(image=IMAGE, index=index, time_s=time_s, source="clip")


def _detections(items):
    """Detections of (track, x of the foot point, class id, height)."""
    full = [(*item, *(0, 0, 10)[len(item) - 1 :]) if len(item) < 4 else item for item in items]
    n = len(full)
    boxes = [[x - 5, 50 - height, x + 5, 50] for _, x, _, height in full]
    return Detections(
        boxes_xyxy_px=np.asarray(boxes, np.float32).reshape(n, 4),
        confidence=np.ones(n, np.float32),
        class_id=np.asarray([item[2] for item in full], np.int64),
        track_id=tuple(item[0] for item in full),
        class_names=NAMES,
    )


def _policy(zones=None, /, **ask):
    settings = AskSettings.model_validate({"every_s": None, **ask})
    return AskPolicy(settings, {name: Zone.model_validate(zone) for name, zone in (zones or {}).items()})


def _run(policy, frames):
    """Trigger names by frame index, for (time, detections) in order; frames that are not asked are left out."""
    decided = {
        index: policy.decide(_frame(index, time), _detections(items)) for index, (time, items) in enumerate(frames)
    }
    return {index: names for index, names in decided.items() if names}


@pytest.mark.parametrize(
    ("every", "times", "asked"),
    [
        ("1s", [i / 10 for i in range(31)], [0, 10, 20, 30]),
        ("100ms", [i * 0.1 for i in range(8)], list(range(8))),
        (0.3, [i / 10 for i in range(10)], [0, 3, 6, 9]),
        (1.0, [i / 30 + 1234.567 for i in range(91)], [0, 30, 60, 90]),
        (0.1, [round(i / 30, 3) for i in range(10)], [0, 3, 6, 9]),
        (1.0, [i * 0.7 for i in range(8)], [0, 2, 3, 5, 6]),
        (1.0, [0.0, 0.5, 7.3, 7.5, 8.0, 8.5], [0, 2, 4]),
        (1.0, [50.0, 50.5, 51.0, 0.0, 0.5, 1.0], [0, 2, 3, 5]),
        (1.0, [0.0, 0.5, 0.4, 0.99, 1.0, 0.9, 1.1, 2.0], [0, 4, 7]),
        (60.0, [100.0, 10.0, 69.0, 70.0], [0, 1, 3]),
        (0.0001, [0.0, 0.04, 0.08], [0, 1, 2]),
    ],
    ids=["10fps", "rounding", "0.3", "offset", "ms_times", "odd", "gap", "back", "jitter", "back_long", "each"],
)
def test_every_is_a_grid_in_video_time(every, times, asked):
    got = _run(_policy(every_s=every), [(time, []) for time in times])
    assert got == dict.fromkeys(asked, ("every",))


def test_every_does_not_drift_over_an_hour():
    frames = [(i / 29.97, []) for i in range(int(3600 * 29.97))]
    assert len(_run(_policy(every_s=1.0), frames)) == 3600


P, C = [(1, OUT)], [(2, OUT, 1)]


@pytest.mark.parametrize(
    ("ask", "frames", "asked"),
    [
        ({}, [(0, []), (1, P), (2, P), (3, []), (4, P)], {1: ("new_track",)}),
        ({}, [(0, C), (1, C + P)], {1: ("new_track",)}),
        ({}, [(0, [(None, OUT)]), (1, P)], {1: ("new_track",)}),
        ({}, [(9, P), (9.5, P), (0, P)], {0: ("new_track",), 2: ("new_track",)}),
        ({"min_gap_s": 1}, [(0, P), (0.5, [(3, OUT)]), (1.0, [(3, OUT)]), (1.5, [(3, OUT)])], {0: 1, 2: 1}),
        ({"min_gap_s": 1}, [(0, P), (0.5, [(3, OUT)]), (1.0, P), (1.5, [(3, OUT)])], {0: 1, 3: 1}),
        ({"min_gap_s": 0.3}, [(0.1 * i, [(i, OUT)]) for i in range(7)], {0: 1, 3: 1, 6: 1}),
        ({"min_gap_s": 0.3}, [(0.4, P), (0.7, [(3, OUT)])], {0: 1, 1: 1}),
        (
            {"every_s": 1, "min_gap_s": 0.5},
            [(0, []), (0.8, P), (1.0, P), (1.2, P), (1.3, P), (2.0, P), (3, P)],
            {0: ("every",), 1: ("new_track",), 4: ("every",), 5: ("every",), 6: ("every",)},
        ),
        (
            {"every_s": 1},
            [(0, P), (0.5, P), (1, [*P, (5, IN)])],
            {0: ("every", "new_track"), 2: ("every", "new_track")},
        ),
    ],
    ids=["once", "class", "no_track", "restart", "gap", "gone", "gap_frames", "gap_rounding", "every_waits", "both"],
)
def test_new_tracks(ask, frames, asked):
    got = _run(_policy(new_track=["person"], **ask), frames)
    assert got == {index: ("new_track",) if names == 1 else names for index, names in asked.items()}


def _seen(*states, track=1, step_s=1.0, class_id=0):
    """One detection per frame, inside the zone, outside, or (None) absent."""
    return [(i * step_s, [] if x is None else [(track, x, class_id)]) for i, x in enumerate(states)]


@pytest.mark.parametrize(
    ("ask", "frames", "asked"),
    [
        ({}, _seen(OUT, IN, IN, OUT, IN), [1, 4]),
        ({}, _seen(IN, IN), [0]),
        ({}, _seen(OUT, IN, None, IN), [1]),
        ({}, _seen(OUT, IN, None, OUT, IN), [1, 4]),
        ({}, _seen(None, IN, IN, None, IN, track=None), [1, 4]),
        ({}, _seen(OUT, IN, IN, OUT, IN, track=None), [1, 4]),
        ({}, [(0, [(1, IN)]), (1, [(1, IN), (2, IN)]), (2, [(2, IN)])], [0, 1]),
        ({}, [(0, [(1, IN)]), (1, [(1, IN), (None, IN)])], [0]),
        ({"zones": [{"zone": "gate", "classes": ["car"]}]}, _seen(IN, IN), []),
        ({"zones": [{"zone": "gate", "classes": ["car"]}]}, _seen(OUT, IN, class_id=1), [1]),
        ({"min_gap_s": 1}, [(0, [(9, IN)]), *[(t + 0.5, items) for t, items in _seen(IN, IN, step_s=0.5)]], [0, 2]),
        ({"min_gap_s": 1}, [(0, [(9, IN)]), (0.5, [(1, IN)]), (1.0, [(1, OUT)])], [0, 2]),
        ({"min_gap_s": 1}, [(0, [(9, IN)]), (0.5, [(1, IN)]), (1.0, [])], [0]),
        ({"min_gap_s": 1}, [(0, [(9, IN)]), (0.5, [(1, IN)]), (0.8, []), (1.0, [(1, IN)])], [0, 3]),
        ({"min_gap_s": 1}, [(0, [(9, IN)]), (0.2, []), (0.5, [(None, IN)]), (1.0, [(None, OUT)])], [0]),
        ({"min_gap_s": 1}, [(0, [(9, IN)]), (0.2, []), (0.5, [(None, IN)]), (1.0, [(None, IN)])], [0, 3]),
        ({}, [*_seen(IN, IN), (-5.0, [(1, IN)])], [0, 2]),
    ],
    ids=[
        "enters",
        "starts_inside",
        "flicker",
        "returns",
        "untracked_flicker",
        "untracked",
        "second",
        "untracked_joins",
        "other_class",
        "class",
        "waits",
        "waits_though_it_left",
        "gone",
        "gone_and_back",
        "untracked_gone",
        "untracked_waits",
        "restart",
    ],
)
def test_zones(ask, frames, asked):
    got = _run(_policy(LEFT, **{"zones": ["gate"], **ask}), frames)
    assert got == dict.fromkeys(asked, ("zone:gate",))


def test_zone_by_its_own_classes():
    zones = {"gate": {**LEFT["gate"], "classes": ["car"]}}
    assert _run(_policy(zones, zones=["gate"]), _seen(IN, IN)) == {}
    assert _run(_policy(zones, zones=["gate"]), _seen(OUT, IN, class_id=1)) == {1: ("zone:gate",)}


def test_two_zones_both_see_every_frame():
    zones = {**LEFT, "all": {"polygon": [[0, 0], [1, 0], [1, 1], [0, 1]]}}
    got = _run(_policy(zones, zones=["all", "gate"]), _seen(OUT, IN, IN))
    assert got == {0: ("zone:all",), 1: ("zone:gate",)}


@pytest.mark.parametrize(
    ("items", "most", "tracks", "asked"),
    [
        ([], 3, [], 0),
        ([(1, 10), (2, 20), (3, 30)], 3, [1, 2, 3], 3),
        ([(1, 10), (2, 20), (3, 30)], 0, [1, 2, 3], 0),
        ([(1, 10, 0, 10), (2, 20, 0, 30), (3, 30, 0, 20)], 2, [2, 3, 1], 2),
        ([(1, 10, 0, 10), (8, 20, 0, 30), (9, 30, 0, 20)], 2, [1, 8, 9], 2),
        ([(None, 10, 0, 40), (8, 20, 0, 30), (7, 30, 0, 10)], 1, [7, None, 8], 1),
        ([(None, 10), (None, 20), (None, 30)], 2, [None, None, None], 2),
    ],
    ids=["empty", "fits", "none", "large_first", "new_first", "untracked_is_not_new", "ties"],
)
def test_select(items, most, tracks, asked):
    policy = _policy(every_s=1)
    policy.select(_detections([(8, 10), (9, 10)]), 20)
    detections = _detections(items)
    chosen, count = policy.select(detections, most)
    assert (count, list(chosen.track_id)) == (asked, tracks)
    if asked == len(items):
        assert chosen is detections


def test_select_goes_round_all_tracks():
    policy = _policy(every_s=1)
    items = [(track, 10, 0, 100 - track) for track in range(1, 7)]
    asked = [policy.select(_detections(items), 2)[0].track_id[:2] for _ in range(4)]
    assert asked == [(1, 2), (3, 4), (5, 6), (1, 2)]


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(policy_module, "REMEMBERED", 3)
    policy = _policy(LEFT, new_track=["person"], zones=["gate"])
    frames = [(i, [(i, IN)]) for i in range(50)]
    assert len(_run(policy, frames)) == 50
    for i in range(50):
        policy.select(_detections([(i, IN)]), 5)
    sizes = [len(policy._tracks), len(policy._asked_about), len(policy._entries[0][1]._inside)]
    assert sizes == [3, 3, 3]
    assert policy.decide(_frame(50, 50.0), _detections([(0, OUT)])) == ("new_track",), "forgotten, so new again"
    assert policy.decide(_frame(51, 51.0), _detections([(49, OUT)])) == (), "remembered"


def test_memory_forgets_the_longest_unseen(monkeypatch):
    monkeypatch.setattr(policy_module, "REMEMBERED", 3)
    policy = _policy(new_track=["person"])
    _run(policy, [(i, [(100, OUT), (i, OUT)]) for i in range(3)])
    assert policy.decide(_frame(3, 3.0), _detections([(100, OUT)])) == ()


def test_what_would_ask_waits_while_no_question_can_be_taken():
    policy = _policy(every_s=10.0, new_track=["person"])
    frames = [(0.0, P), (0.1, P), (0.2, P), (0.3, []), (0.4, P)]
    free = [True, False, True, False, True]
    seen = [
        policy.decide(_frame(index, time), _detections([(5, OUT)] if index == 1 else items), may_ask=may)
        for index, ((time, items), may) in enumerate(zip(frames, free, strict=True))
    ]
    assert seen == [("every", "new_track"), (), (), (), ()], "track 5 was gone before a question could be taken"
    busy = _policy(every_s=1.0)
    decided = [busy.decide(_frame(k, k / 2), _detections([]), may_ask=k in (0, 4, 5, 6)) for k in range(7)]
    assert [bool(names) for names in decided] == [True, False, False, False, True, False, True]


def _retried(fails, frames, zones=None, /, **ask):
    """Indices of frames that are asked about, where each question is over at once: those in `fails` in vain."""
    policy, asked = _policy(zones, **ask), []
    for index, (time, items) in enumerate(frames):
        frame = _frame(index, time)
        if policy.decide(frame, _detections(items)):
            asked.append(index)
            policy.settled(frame, ok=len(asked) - 1 not in fails)
    return asked


STAYS = [(k / 10, P) for k in range(80)]


@pytest.mark.parametrize(
    ("fails", "frames", "asked"),
    [
        ((), STAYS, [0]),
        ((0,), STAYS, [0, 10]),
        ((0, 1), STAYS, [0, 10, 30]),
        (range(99), STAYS, [0, 10, 30, 70]),
        ((0,), [*STAYS[:5], *[(k / 10, []) for k in range(5, 30)], *STAYS[30:]], [0, 30]),
    ],
    ids=["ok", "once", "twice", "ever", "gone_and_back"],
)
def test_a_question_that_fails_about_a_new_track_is_asked_again_with_growing_waits(fails, frames, asked):
    assert _retried(fails, frames, new_track=["person"]) == asked


def test_a_question_that_fails_about_an_entry_is_asked_again():
    inside = [(k / 10, [(1, IN)]) for k in range(30)]
    assert _retried((), inside, LEFT, zones=["gate"]) == [0]
    assert _retried((0,), inside, LEFT, zones=["gate"]) == [0, 10]
    left = [*inside[:5], *[(k / 10, []) for k in range(5, 12)], *inside[12:]]
    assert _retried((0,), left, LEFT, zones=["gate"]) == [0, 12]


def test_who_is_in_a_later_question_waits_for_its_answer():
    policy = _policy(new_track=["person"], every_s=1)
    first, second = _frame(0, 0.0), _frame(10, 1.0)
    assert policy.decide(first, _detections(P))
    assert policy.decide(second, _detections(P)) == ("every",)
    policy.dropped(first)
    assert policy.decide(_frame(11, 1.1), _detections(P)) == ()
    policy.settled(second, ok=True)
    assert policy.decide(_frame(12, 1.2), _detections(P)) == ()


def test_who_is_in_no_later_question_is_asked_about_again():
    policy = _policy(new_track=["person"], every_s=1)
    first, second = _frame(0, 0.0), _frame(10, 1.0)
    assert policy.decide(first, _detections([*P, (7, OUT)]))
    assert policy.decide(second, _detections(P)) == ("every",)
    policy.dropped(first)
    assert policy.decide(_frame(11, 1.1), _detections([(7, OUT)])) == ("new_track",)
    policy.settled(first, ok=False)
    assert policy.decide(_frame(12, 1.2), _detections([*P, (7, OUT)])) == ()


def test_an_answer_stands_though_a_later_question_fails():
    policy = _policy(new_track=["person"], every_s=1)
    first, second = _frame(0, 0.0), _frame(10, 1.0)
    assert policy.decide(first, _detections(P))
    assert policy.decide(second, _detections(P)) == ("every",)
    policy.settled(first, ok=True)
    policy.settled(second, ok=False)
    assert policy.decide(_frame(19, 1.9), _detections(P)) == ()
    assert policy.decide(_frame(60, 6.0), _detections(P)) == ("every",)
