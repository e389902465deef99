"""Clips: what happens in a story, and the bundled clip with its truth."""

import json
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from drawn_site.actors import Actor
from drawn_site.clip import events, truth_record, write_clip
from drawn_site.render import Picture, render
from drawn_site.rules import Truth, Verdict, judge
from drawn_site.scene import KINDS, VEHICLES, Scene, Thing
from drawn_site.seeds import CLIP, TRAINING
from drawn_site.story import FPS, tell
from hazardlens.resources import data_path

CLIP_PATH = data_path("assets", "demo/site.mp4")
TOLD = {"fire", "smoke", "spill", "person_down", "missing_ppe", "vehicle_proximity", "blocked_path"}


@pytest.fixture(scope="module")
def recorded() -> dict[str, Any]:
    return json.loads(CLIP_PATH.with_suffix(".truth.json").read_text())


def draw(scene: Scene, index: int) -> tuple[Picture, Truth]:
    picture = render(scene, (640, 360), oversample=1, seed=index)
    return picture, judge(scene, picture)


def test_every_story_tells_every_hazard_and_ends_calm() -> None:
    for seed in (CLIP + 1, CLIP + 2):
        story = tell(seed)
        times = np.arange(0.0, story.duration_s, 0.5)
        verdicts = [draw(story.scene_at(time), 0)[1].verdict for time in times]
        assert {verdict.hazard for verdict in verdicts} == TOLD | {"none"}
        assert verdicts[0] == verdicts[-1] == Verdict()
        assert 20 <= story.duration_s <= 40


def test_stories_differ_and_repeat() -> None:
    one, again, other = tell(CLIP).scene_at(4.0), tell(CLIP).scene_at(4.0), tell(CLIP + 1).scene_at(4.0)
    assert one == again != other


@pytest.mark.parametrize("seed", range(CLIP, CLIP + 25))
def test_things_keep_their_tracks_and_move_smoothly(seed: int) -> None:
    """Nothing jumps, spins or drops: 4.2 m/s (a forklift), a turn in 0.35 s (a vehicle's in 1.2 s), a fall in 0.6 s."""
    story = tell(seed)
    assert 20 <= story.duration_s <= 40
    scenes = [story.scene_at(index / FPS) for index in range(round(story.duration_s * FPS))]
    for before, after in pairwise(scenes):
        assert [thing.track for thing in before.things] == list(range(1, len(before.things) + 1))
        for one, next_ in zip(before.things, after.things, strict=True):
            assert (one.track, one.kind, one.look) == (next_.track, next_.kind, next_.look)
            assert np.hypot(one.at[0] - next_.at[0], one.at[1] - next_.at[1]) < 4.2 / FPS
            assert abs((one.heading - next_.heading + np.pi) % (2 * np.pi) - np.pi) < (
                3.2 / FPS if one.kind in VEHICLES else 9.5 / FPS
            )
            assert abs(height(one) - height(next_)) < 2.0 / FPS


def height(thing: Thing) -> float:
    """1 for a person who is up, 0 for one who lies."""
    return 1.0 - thing.fallen if thing.posture == "down" else 1.0


def test_smoke_and_flames_grow_and_fade() -> None:
    story = tell(CLIP)
    sizes: dict[str, list[float]] = {"fire": [], "smoke": [], "spill": []}
    for index in range(round(story.duration_s * FPS)):
        shown = {effect.kind: effect.size_m for effect in story.scene_at(index / FPS).effects}
        for kind, row in sizes.items():
            row.append(shown.get(kind, 0.0))  # type: ignore[call-overload]
    for row in sizes.values():
        assert max(row) > 1.2
        assert max(abs(after - before) for before, after in pairwise(row)) < 0.55 * max(row)


def test_moments_are_told_in_order() -> None:
    actor = Actor(Thing(track=1, kind="worker", at=(0.0, 9.0)))
    actor.go(1.0, (0.0, 9.0))
    with pytest.raises(ValueError, match=r"after 1\.0 s"):
        actor.go(1.0, (1.0, 9.0))


def test_the_clip_is_what_it_should_be() -> None:
    assert CLIP not in TRAINING
    assert CLIP_PATH.stat().st_size <= 4_000_000
    with av.open(str(CLIP_PATH)) as clip:
        video = clip.streams.video[0]
        assert video.codec_context.name == "h264"
        assert video.average_rate == FPS
        assert 20 <= float(video.duration * video.time_base) <= 40


def test_the_clip_shows_what_its_truth_says(recorded: dict[str, Any]) -> None:
    """Pictures and truth of some frames, drawn again."""
    story = tell(recorded["seed"])
    assert recorded["seed"] == CLIP
    chosen = range(5, len(recorded["frames"]), 61)
    with av.open(str(CLIP_PATH)) as clip:
        images = {k: f.to_ndarray(format="bgr24") for k, f in enumerate(clip.decode(video=0)) if k in chosen}
        assert len(recorded["frames"]) == clip.streams.video[0].frames
    for index in chosen:
        scene = story.scene_at(index / FPS)
        picture = render(scene, (1280, 720), seed=index)
        truth = judge(scene, picture)
        assert np.abs(picture.image.astype(int) - images[index]).mean() < 4
        assert recorded["frames"][index] == truth_record(CLIP, [truth])["frames"][0] | {
            "frame": index,
            "time_s": round(index / FPS, 4),
        }


def test_the_clips_events(recorded: dict[str, Any]) -> None:
    told = recorded["events"]
    assert told == events(recorded["frames"])
    assert {event["hazard"] for event in told} == TOLD
    assert all(before["end_s"] <= after["start_s"] for before, after in pairwise(told))
    calm = sum(frame["hazard"] == "none" for frame in recorded["frames"]) / len(recorded["frames"])
    assert 0.15 < calm < 0.5
    assert {thing["class"] for frame in recorded["frames"] for thing in frame["things"]} == set(KINDS)


def test_a_hazard_hidden_for_a_moment_is_one_event() -> None:
    def stretches(*seconds: float) -> list[tuple[float, float]]:
        lengths = [(k % 2 == 1, round(length * FPS)) for k, length in enumerate(seconds)]
        burning = [fire for fire, length in lengths for _ in range(length)]
        frames = [
            {
                "frame": k,
                "time_s": k / FPS,
                "hazard": "fire" if fire else "none",
                "severity": "high" if fire else "none",
            }
            for k, fire in enumerate(burning)
        ]
        return [(event["start_s"], event["end_s"]) for event in events(frames)]

    assert stretches(1, 2, 0.5, 1, 1) == [(1.0, 4.5)]
    assert stretches(1, 2, 1.5, 1, 1) == [(1.0, 3.0), (4.5, 5.5)]


def test_a_clip_is_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    story = tell(CLIP + 1)
    monkeypatch.setattr("drawn_site.clip.tell", lambda _: type(story)(duration_s=1.0, scene_at=story.scene_at))
    truth = json.loads(write_clip(tmp_path / "short.mp4", CLIP + 1, (320, 180), oversample=1).read_text())
    with av.open(str(tmp_path / "short.mp4")) as clip:
        frames = list(clip.decode(video=0))
    assert len(frames) == len(truth["frames"]) == FPS
    assert [frame.time for frame in frames] == pytest.approx([float(Fraction(k, FPS)) for k in range(FPS)])
    assert truth["frames"][0]["hazard"] == "none"
