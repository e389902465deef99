"""Four live sources at 320 px, the detector shipped, and a VLM behind a server in a process of its own.

    python -m tests.benchmarks.live [--seconds 30] [--answer-seconds 1.0] [--pairs 5] [--pair-seconds 20]

First, at 5 frames a second from each source: what waits anywhere in the run, first half against second half; questions
answered per source; and the time from a newest frame's coming to its record, against two frame times plus the
detector's own time. Then, with twice as many frames as the detector can take, frames detected per second with questions
over those without, in interleaved pairs. The exit code is 1 where one of the claims does not hold.
"""

import argparse
import functools
import multiprocessing
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection

import cv2
import numpy as np
from numpy.typing import NDArray

import hazardlens
from hazardlens.cameras.base import Camera, Feed, Picture
from hazardlens.frames.base import Frame
from hazardlens.frames.file import VideoFile
from hazardlens.monitor.start import start
from hazardlens.parts import Parts, assemble
from hazardlens.resources import data_path
from tests.benchmarks.pairs import spread

SOURCES, FPS, SIDE_PX = 4, 5.0, 320
CONCURRENCY = 2
LEAST_RATIO = 0.95
LEAST_TURNS = 0.5
"""Answers of the source with the fewest over those of the one with the most."""
WARM_S = 2.0
LOOKS_EVERY_S = 0.25
Image = NDArray[np.uint8]


def pictures() -> list[Image]:
    """Every fifth picture of the clip shipped, at 320 px."""
    found = []
    with VideoFile(data_path("assets", "demo/site.mp4")) as video:
        for frame in video:
            if frame.index % 5 == 0:
                height = round(SIDE_PX * frame.image.shape[0] / frame.image.shape[1])
                found.append(cv2.resize(frame.image, (SIDE_PX, height)))
    return found


class Steady(Camera, Feed):
    """Gives the pictures again and again, so many a second."""

    def __init__(self, name: str, images: list[Image], fps: float) -> None:
        self.name = name
        self._images = images
        self._fps = fps

    def open(self) -> Feed:
        return self

    def pictures(self, stop: threading.Event) -> Iterator[Picture]:
        began, number = time.monotonic(), 0
        while not stop.wait(max(0.0, began + number / self._fps - time.monotonic())):
            image = self._images[number % len(self._images)]
            yield Picture(stamp_s=number / self._fps, decode=functools.partial(np.array, image))
            number += 1

    def close(self) -> None:
        pass


def serve(told: Connection, wait_s: float) -> None:
    """Serve until told to end; every answer takes that long and costs nothing else."""
    from hazardlens.testing import FakeServer
    from hazardlens.testing.server import Act, Received, holding

    def behave(asked: Received) -> Act:
        return replace(holding(asked), wait_s=wait_s)

    with FakeServer(behave) as server:
        told.send(server.base_url)
        told.recv()


@contextmanager
def serving(wait_s: float) -> Iterator[str]:
    """A server in a process of its own, by its address."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, wait_s), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("end")
        process.join(10)


def parts_of(detector: hazardlens.Detector, base_url: str | None) -> Parts:
    """The detector, with questions to a server once a second and for new tracks, or without."""
    vlm = None
    if base_url is not None:
        vlm = {"model": "fake", "base_url": base_url, "concurrency": CONCURRENCY, "probe": False}
    return assemble("demo", detector=detector, every="1s", overrides={"vlm": vlm})


def detector_seconds(detector: hazardlens.Detector, images: list[Image]) -> float:
    """Median time of the detector by itself on one frame."""
    stream, times = object(), []
    for number, image in enumerate(images[:40]):
        began = time.perf_counter()
        detector.detect([Frame(image=image, index=number, time_s=number / FPS, source="x")], stream=stream)
        times.append(time.perf_counter() - began)
    detector.forget(stream)
    return statistics.median(times[5:])


def held(run: hazardlens.LiveRun) -> int:
    """All that waits anywhere in a run: frames and events, questions and answers."""
    return run.questions_waiting + sum(len(source.reader.arrivals) for source in run.sources)


def detected(run: hazardlens.LiveRun) -> int:
    """Frames that went through the detector."""
    return sum(source.detected for source in run.sources)


def watched(parts: Parts, images: list[Image], fps: float, seconds: float) -> tuple[dict, float, list[int]]:
    """Watch for so long behind a warm-up: status, frames detected per second, and what waited, a few times a second."""
    cameras = [Steady(f"camera{number}", images, fps) for number in range(SOURCES)]
    waiting: list[int] = []
    with start(parts, cameras, out=None) as run:
        begins = time.monotonic() + WARM_S
        looks, first = begins, None
        for _ in run:
            now = time.monotonic()
            if now < looks:
                continue
            if first is None:
                first = (now, detected(run))
                run._work.latencies_s.clear()
            waiting.append(held(run))
            looks += LOOKS_EVERY_S
            if now >= begins + seconds:
                return run.status, (detected(run) - first[1]) / (now - first[0]), waiting
    raise RuntimeError("the run ended by itself")


def said(claim: str, holds: bool) -> bool:
    """Print a claim and whether it holds."""
    print(f"{'holds' if holds else 'FAILS'}: {claim}", flush=True)
    return holds


def steady(parts: Parts, images: list[Image], alone_s: float, seconds: float) -> bool:
    """At 5 frames a second from each source: queues, turns, latency; whether all claims hold."""
    told, rate, waiting = watched(parts, images, FPS, seconds)
    print(f"{rate:.2f} frames/s detected of {SOURCES * FPS:g}")
    for name, one in told["sources"].items():
        counts = ", ".join(f"{one[f'frames_{key}']} {key}" for key in ("read", "detected", "dropped"))
        print(f"  {name}: {counts}, questions {one['questions']}")
    half = len(waiting) // 2
    before, after = max(waiting[:half]), max(waiting[half:])
    most = SOURCES * 3 + CONCURRENCY
    turns = [one["questions"].get("ok", 0) for one in told["sources"].values()]
    limit_s, latency = 2 / FPS + alone_s, told["latency_s"]
    spent = f"median {latency['median']:.3f} s, p95 {latency['p95']:.3f} s"
    return all(
        [
            said(f"no queue grows: at most {before}, then {after} things wait, never over {most}", after <= most),
            said(f"each source gets its turn: {turns} answers", min(turns) >= LEAST_TURNS * max(turns) > 0),
            said(f"newest frame to record: {spent}, p95 at most {limit_s:.3f} s", latency["p95"] <= limit_s),
        ]
    )


def saturated(with_them: Parts, without: Parts, images: list[Image], fps: float, pairs: int, seconds: float) -> bool:
    """At twice as many frames as the detector takes: its rate with questions over that without, pair by pair."""
    found = []
    for pair in range(pairs):
        order = (with_them, without) if pair % 2 == 0 else (without, with_them)
        rates = {parts is with_them: watched(parts, images, fps, seconds)[:2] for parts in order}
        found.append(rates[True][1] / rates[False][1])
        dropped = min(sum(one["frames_dropped"] for one in told["sources"].values()) for told, _ in rates.values())
        asked = rates[True][0]["vlm"]["calls"]
        print(f"  {rates[True][1]:.2f} against {rates[False][1]:.2f} frames/s, {asked} questions, {dropped} dropped")
        if not dropped:
            raise RuntimeError("the detector takes all that the sources offer, so its rate says nothing")
    claim = f"frames detected with questions over without: {spread(found)}, median at least {LEAST_RATIO}"
    return said(claim, statistics.median(found) >= LEAST_RATIO)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the run at 5 frames a second")
    parser.add_argument("--answer-seconds", type=float, default=1.0, help="time that the server takes for an answer")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--pair-seconds", type=float, default=20.0, help="length of each run of a pair")
    chosen = parser.parse_args()
    images = pictures()
    detector = assemble("demo", vlm="none").detector
    alone_s = detector_seconds(detector, images)
    print(f"detector alone: {1000 * alone_s:.1f} ms a frame, on {len(os.sched_getaffinity(0))} cores", flush=True)
    with serving(chosen.answer_seconds) as base_url:
        asking, silent = parts_of(detector, base_url), parts_of(detector, None)
        holds = steady(asking, images, alone_s, chosen.seconds)
        fps = 2 / alone_s / SOURCES
        holds &= saturated(asking, silent, images, fps, chosen.pairs, chosen.pair_seconds)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
