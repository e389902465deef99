"""A VLM on a server: our throughput over a bare client's at saturation, and what slow answers cost the detector.

    python -m tests.benchmarks.remote --video site.mp4 --weights yolo26n.pt [--base-url URL --model NAME]

Without a URL a fake server takes 0.2 s for an answer, eight at once.
"""

import argparse
import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from openai import AsyncOpenAI

from hazardlens.frames.base import Frame
from hazardlens.merge.outcome import Stages
from hazardlens.merge.source import SourceMerge
from hazardlens.merge.stream import FrameStream
from hazardlens.parts import assemble
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeDetector, FakeServer
from hazardlens.testing.server import Act, Received, holding
from hazardlens.video import VideoRun
from hazardlens.vlm.prompt import show
from hazardlens.vlm.remote.model import RemoteVlm
from tests.benchmarks.pairs import ratios, spread

HAZARD = FieldSchema.load("hazard")


class Busy:
    """A server that takes some time for an answer, and answers a few at once."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s

    def __call__(self, asked: Received) -> Act:
        return replace(holding(asked), wait_s=self._wait_s)


def frames(count: int) -> Iterator[Frame]:
    """Frames of noise at ten a second."""
    chance = np.random.default_rng(0)
    tile = chance.integers(0, 256, (90, 160, 3), np.uint8)
    image = np.kron(tile, np.ones((8, 8, 1), np.uint8))
    for index in range(count):
        yield Frame(image=image, index=index, time_s=index / 10, source="noise")


def ours(vlm: RemoteVlm, count: int) -> None:
    """Ask about every frame, through the whole merge."""
    pipeline = Pipeline.load({"ask": {"every_s": 0.01}})
    stream = FrameStream(
        pipeline=pipeline, schema=HAZARD, detector=FakeDetector(), vlm=vlm, stages=Stages(), keep_pixels=False
    )
    with contextlib.closing(stream):
        statuses = [outcome.record.vlm.status for outcome in stream.outcomes(frames(count))]
    assert statuses == ["ok"] * count, statuses


def bare(base_url: str, model: str, body: dict, count: int, concurrency: int) -> None:
    """Send one and the same request as often, as many at once, and look at nothing."""

    async def run() -> None:
        places = asyncio.Semaphore(concurrency)
        async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=300) as client:

            async def one() -> None:
                async with places:
                    await client.chat.completions.create(model=model, **body)

            await asyncio.gather(*(one() for _ in range(count)))

    asyncio.run(run())


def request_of(vlm: RemoteVlm) -> dict:
    """The arguments of one of our requests."""
    detector = FakeDetector()
    frame = next(frames(1))
    merge = SourceMerge(Pipeline.load({"ask": {"every_s": 0.01}}), HAZARD, vlm)
    _, question = merge.question(frame, detector.detect([frame])[0])
    assert question is not None
    asked = vlm._asked(question, show(question, vlm.view))
    return {"messages": asked.messages(""), **asked.arguments(asked.budget)}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url")
    parser.add_argument("--model", default="fake")
    parser.add_argument("--questions", type=int, default=80)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--video", type=Path)
    chosen = parser.parse_args()
    logging.getLogger("ultralytics").setLevel(logging.WARNING)
    with FakeServer(Busy(0.2)) as fake:
        base_url = chosen.base_url or fake.base_url
        vlm = RemoteVlm(chosen.model, base_url=base_url, concurrency=chosen.concurrency, timeout_s=300)
        for count in (0, 1):
            vlm.prepare(HAZARD.ground(count))
        body = request_of(vlm)
        found = ratios(
            lambda: bare(base_url, chosen.model, body, chosen.questions, chosen.concurrency),
            lambda: ours(vlm, chosen.questions),
            pairs=chosen.pairs,
        )
        print(f"throughput at saturation over a bare asyncio client: {spread(found)}", flush=True)
        fake.behave = Busy(1.0)
        if chosen.video is not None and chosen.weights is not None:
            at = {"model": "fake", "base_url": fake.base_url, "concurrency": 8, "probe": False}
            settings = {"schema": "hazard", "video": False}
            asking = assemble({**settings, "vlm": at}, detector=chosen.weights)
            silent = assemble({**settings, "vlm": None}, detector=chosen.weights)
            costs = ratios(
                lambda: drained(VideoRun(silent, chosen.video)),
                lambda: drained(VideoRun(asking, chosen.video)),
                pairs=chosen.pairs,
            )
            print(f"frame rate with answers that take 1 s over one without questions: {spread(costs)}", flush=True)


def drained(run: VideoRun) -> int:
    """Process a video to its end."""
    with run:
        return sum(1 for _ in run)


if __name__ == "__main__":
    main()
