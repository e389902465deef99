"""A told story as a video file, with its truth beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from .render import render
from .rules import SEVERITIES, Truth, judge
from .story import FPS, tell

_BRIDGE_S = 1.0
"""A hazard that is hidden for less than this goes on all the while."""

_AHEAD = 8
"""Frames drawn at a time, to bound what is held in memory."""


def write_clip(
    path: Path, seed: int, size_wh: tuple[int, int] = (1280, 720), *, oversample: int = 2, crf: int = 24
) -> Path:
    """Draw the story of a seed.

    Args:
        path: The video file, H.264 in MP4.
        seed: Which story.
        size_wh: Width and height in pixels.
        oversample: As for `render`.
        crf: Quality of the encoder; lower is better and larger.

    Returns:
        The truth file beside it, `NAME.truth.json`.
    """
    truths: list[Truth] = []
    unfinished = path.with_name(f"unfinished-{path.name}")
    with av.open(str(unfinished), "w", options={"movflags": "+faststart"}) as out:
        stream = out.add_stream("libx264", rate=Fraction(FPS), options={"crf": str(crf), "preset": "slow"})
        stream.width, stream.height, stream.pix_fmt = *size_wh, "yuv420p"
        for image, truth in draw_story(seed, size_wh, oversample=oversample):
            truths.append(truth)
            out.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))
        out.mux(stream.encode(None))
    truth_path = path.with_suffix(".truth.json")
    truth_path.write_text(_json(truth_record(seed, truths)))
    unfinished.replace(path)
    return truth_path


def draw_story(seed: int, size_wh: tuple[int, int], *, oversample: int) -> Iterator[tuple[NDArray[np.uint8], Truth]]:
    """Pictures and truths of a story, frame by frame."""
    story = tell(seed)

    def frame(index: int) -> tuple[NDArray[np.uint8], Truth]:
        scene = story.scene_at(index / FPS)
        picture = render(scene, size_wh, oversample=oversample, seed=index)
        return picture.image, judge(scene, picture)

    frames = range(round(story.duration_s * FPS))
    with ThreadPoolExecutor(2) as pool:
        for start in frames[::_AHEAD]:
            yield from pool.map(frame, frames[start : start + _AHEAD])


def truth_record(seed: int, truths: Iterable[Truth]) -> dict[str, Any]:
    """The truth of a clip in plain values: what shows in each frame, and when which hazard is the worst."""
    frames = [
        {
            "frame": index,
            "time_s": round(index / FPS, 4),
            "hazard": truth.verdict.hazard,
            "severity": truth.verdict.severity,
            "things": [
                {
                    "track": thing.track,
                    "class": thing.kind,
                    "box_xyxy": [round(value, 1) for value in thing.box_xyxy_px],
                    "share": round(thing.share, 3),
                    "hazard": thing.verdict.hazard,
                    "severity": thing.verdict.severity,
                }
                for thing in truth.things
            ],
        }
        for index, truth in enumerate(truths)
    ]
    return {"seed": seed, "fps": FPS, "events": events(frames), "frames": frames}


def events(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Stretches in which one hazard is the worst, with the worst severity that it reaches."""
    runs: list[dict[str, Any]] = []
    for hazard, group in groupby(frames, key=lambda frame: frame["hazard"]):
        stretch = list(group)
        if hazard == "none":
            continue
        start, end = stretch[0]["time_s"], round((stretch[-1]["frame"] + 1) / FPS, 4)
        severities = [frame["severity"] for frame in stretch]
        if runs and runs[-1]["hazard"] == hazard and start - runs[-1]["end_s"] < _BRIDGE_S:
            severities.append(runs[-1]["severity"])
            start = runs.pop()["start_s"]
        worst = max(severities, key=SEVERITIES.index)
        runs.append({"hazard": hazard, "severity": worst, "start_s": start, "end_s": end})
    return runs


def _json(record: dict[str, Any]) -> str:
    """One line for each frame, so that a change of one shows as one."""
    lines = ",\n".join(json.dumps(frame, separators=(",", ":")) for frame in record["frames"])
    head = json.dumps({key: value for key, value in record.items() if key != "frames"}, indent=1)
    return f'{head[:-2]},\n "frames": [\n{lines}\n]}}\n'
