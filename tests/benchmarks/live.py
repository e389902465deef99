"""Four live sources of 5 frames a second at 320 px, with the detector shipped and a VLM that costs no CPU.

    python -m tests.benchmarks.live [--seconds 30] [--vlm-seconds 1.0]

Prints, for a run with questions and one without: frames read, detected and dropped per source, questions per source,
and the time from a newest frame's coming to its record, against two frame times plus the detector's own time. Last the
detector's frames per second with questions over those without.
"""

import argparse
import functools
import statistics
import threading
import time
from collections.abc import Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

import hazardlens
from hazardlens.cameras.base import Camera, Feed, Picture
from hazardlens.frames.base import Frame
from hazardlens.frames.file import VideoFile
from hazardlens.resources import data_path
from hazardlens.testing import FakeVlm

SOURCES, FPS, SIDE_PX = 4, 5.0, 320


def pictures() -> list[NDArray[np.uint8]]:
    """Every fifth picture of the clip shipped, at 320 px."""
    found = []
    with VideoFile(data_path("assets", "demo/site.mp4")) as video:
        for frame in video:
            if frame.index % 5 == 0:
                height = round(SIDE_PX * frame.image.shape[0] / frame.image.shape[1])
                found.append(cv2.resize(frame.image, (SIDE_PX, height)))
    return found


class Steady(Camera, Feed):
    """Gives the pictures again and again, five a second."""

    def __init__(self, name: str, images: list[NDArray[np.uint8]]) -> None:
        self.name = name
        self._images = images

    def open(self) -> Feed:
        return self

    def pictures(self, stop: threading.Event) -> Iterator[Picture]:
        began, number = time.monotonic(), 0
        while not stop.wait(max(0.0, began + number / FPS - time.monotonic())):
            image = self._images[number % len(self._images)]
            yield Picture(stamp_s=number / FPS, decode=functools.partial(np.array, image))
            number += 1

    def close(self) -> None:
        pass


def detector_seconds(detector: hazardlens.Detector, images: list[NDArray[np.uint8]]) -> float:
    """Median time of the detector by itself on one frame."""
    stream, times = object(), []
    for number, image in enumerate(images[:40]):
        began = time.perf_counter()
        detector.detect([Frame(image=image, index=number, time_s=number / FPS, source="x")], stream=stream)
        times.append(time.perf_counter() - began)
    detector.forget(stream)
    return statistics.median(times[5:])


def measure(detector: hazardlens.Detector, images: list, seconds: float, vlm: object) -> dict:
    """Watch for so long, and tell the status at the end."""
    cameras = [Steady(f"camera{number}", images) for number in range(SOURCES)]
    threading.Timer(seconds, lambda: run.stop()).start()
    with hazardlens.live(cameras, pipeline="demo", detector=detector, vlm=vlm, every="1s") as run:
        for _ in run:
            pass
        return run.status


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--vlm-seconds", type=float, default=1.0)
    chosen = parser.parse_args()
    images = pictures()
    detector = hazardlens.assemble("demo", vlm="none").detector
    alone_s = detector_seconds(detector, images)
    print(f"detector alone: {1000 * alone_s:.1f} ms a frame")
    rates = {}
    for name, vlm in (("with questions", FakeVlm(latency_s=chosen.vlm_seconds)), ("without", "none")):
        told = measure(detector, images, chosen.seconds, vlm)
        rates[name] = sum(one["frames_detected"] for one in told["sources"].values()) / chosen.seconds
        print(f"{name}: {rates[name]:.2f} frames/s detected")
        for source, one in told["sources"].items():
            counts = ", ".join(f"{one[f'frames_{key}']} {key}" for key in ("read", "detected", "dropped"))
            print(f"  {source}: {counts}, questions {one['questions']}")
        limit_s = 2 / FPS + alone_s
        latency = told["latency_s"]
        spread = f"median {latency['median']:.3f} s, p95 {latency['p95']:.3f} s"
        print(f"  newest frame to record: {spread} (at most {limit_s:.3f} s)")
    print(f"frames detected with questions over without: {rates['with questions'] / rates['without']:.3f}")


if __name__ == "__main__":
    main()
