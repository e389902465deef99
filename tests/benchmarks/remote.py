"""A VLM on a server: our throughput over a bare client's at saturation, and what slow answers cost the detector.

    python -m tests.benchmarks.remote [--questions 80] [--concurrency 8] [--pairs 5]
    python -m tests.benchmarks.remote --model FOLDER --concurrency 4     # vLLM, as the full tests start it
    python -m tests.benchmarks.remote --model smollm2 --concurrency 4 --questions 12   # vLLM with a VLM of 135M
    python -m tests.benchmarks.remote --base-url URL --name NAME         # a server that runs already

Prints two ratios, each the median of interleaved pairs. The first is `hazardlens.process` over a client of asyncio and
the OpenAI SDK that sends the very same requests, as many at once, and looks at nothing. The second is the detector's
frames per second with a fake server that takes one second per answer, over those of the same run without questions;
for a question each second of video, as pipelines ask by default, and for twice as many.
Without a server, a fake one takes 0.2 s for an answer. Servers run in processes of their own. vLLM keeps neither
prompts nor pictures: each frame of a camera is new, and here the same requests are sent again and again.

Also prints the processor time that either side takes for a question, in which decoding the video is ours only.
"""

import argparse
import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from hazardlens.detect.base import Detections, Detector
from hazardlens.frames.base import Frame
from hazardlens.frames.file import VideoFile
from hazardlens.merge.source import SourceMerge
from hazardlens.parts import Parts, assemble
from hazardlens.pipeline import Pipeline
from hazardlens.resources import data_path
from hazardlens.schema import FieldSchema
from hazardlens.testing import FakeDetector
from hazardlens.video import VideoRun
from hazardlens.vlm.prompt import show
from hazardlens.vlm.remote.model import RemoteVlm
from tests.benchmarks.pairs import ratios, spread
from tests.benchmarks.throughput import cut
from tests.servers.fake import fake_server
from tests.servers.peers import NAME, smollm2, vllm
from tests.smollm2_vlm import build_smollm2

SCHEMA = "hazard"
PIPELINE = {"schema": SCHEMA, "ask": {"every_s": 0.001}}
"""Every frame is asked about."""
ANSWER_S, SLOW_S = 0.2, 1.0
DEFAULT_EVERY_S = 1.0
"""What a pipeline does that says nothing else."""
SMOLLM2, CONTEXT = "smollm2", 4096


class Timed(Detector):
    """Another detector, with the time from its first frame to its last."""

    def __init__(self, inner: Detector) -> None:
        self._inner = inner
        self.name, self.class_names = inner.name, inner.class_names
        self._first_s: float | None = None
        self.taken_s = 0.0

    def detect(self, frames: Sequence[Frame], *, stream: Hashable | None = None) -> list[Detections]:
        if self._first_s is None:
            self._first_s = time.perf_counter()
        found = self._inner.detect(frames, stream=stream)
        self.taken_s = time.perf_counter() - self._first_s
        return found

    def forget(self, stream: Hashable) -> None:
        self._inner.forget(stream)
        self._first_s = None


def statuses(parts: Parts, clip: Path) -> list[str]:
    """Process a video with parts that are loaded; what became of the question about each frame."""
    with VideoRun(parts, clip) as run:
        return [record.vlm.status for record in run]


def ours(parts: Parts, clip: Path) -> None:
    """Process a video and ask about every frame of it."""
    found = statuses(parts, clip)
    assert found == ["ok"] * len(found), found


def requests_of(vlm: RemoteVlm, clip: Path) -> list[dict[str, Any]]:
    """The arguments of all requests that processing a video sends."""
    detector = FakeDetector()
    merge = SourceMerge(Pipeline.load(PIPELINE), FieldSchema.load(SCHEMA), vlm)
    found = []
    with VideoFile(clip) as video:
        for frame in video:
            _, question = merge.question(frame, detector.detect([frame])[0])
            assert question is not None
            asked = vlm._asked(question, show(question, vlm.view))
            found.append({"messages": asked.messages(""), **asked.arguments(asked.budget)})
    return found


def bare(base_url: str, name: str, requests: list[dict[str, Any]], concurrency: int) -> None:
    """Send requests, some at once, and look at nothing."""

    async def run() -> None:
        places = asyncio.Semaphore(concurrency)
        async with AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=600) as client:

            async def one(request: dict[str, Any]) -> None:
                async with places:
                    await client.chat.completions.create(model=name, **request)

            await asyncio.gather(*map(one, requests))

    asyncio.run(run())


def saturation(base_url: str, name: str, clip: Path, *, concurrency: int, pairs: int) -> list[float]:
    """Our questions a second over those of the bare client, pair by pair."""
    vlm = RemoteVlm(name, base_url=base_url, concurrency=concurrency, timeout_s=600, max_new_tokens=1500)
    parts = assemble(PIPELINE, detector=FakeDetector(), vlm=vlm)  # asks the server what it does
    requests = requests_of(vlm, clip)
    work = {
        "bare client": lambda: bare(base_url, name, requests, concurrency),
        "process": lambda: ours(parts, clip),
    }
    # Wall time of theirs over ours is our throughput over theirs.
    found = ratios(work["bare client"], work["process"], pairs=pairs)
    for who, do in work.items():
        print(f"processor time for a question, {who}: {1000 * processor_s(do) / len(requests):.1f} ms")
    vlm.close()
    return found


def processor_s(work: Callable[[], None]) -> float:
    """Seconds of all processors that a call takes in this process."""
    started = time.process_time()
    work()
    return time.process_time() - started


def detection(base_url: str, weights: Path, clip: Path, *, every_s: float, pairs: int) -> list[float]:
    """The detector's frames a second with a question each `every_s` of video over those without, pair by pair."""
    settings = {"schema": SCHEMA, "ask": {"every_s": every_s}, "video": False}
    slow = {"model": "fake", "base_url": base_url, "concurrency": 8, "probe": False}

    def run(vlm: dict[str, Any] | None) -> Callable[[], float]:
        parts = assemble({**settings, "vlm": vlm}, detector=weights)
        timed = Timed(parts.detector)

        def work() -> float:
            found = statuses(replace(parts, detector=timed), clip)
            assert vlm is None or "ok" in found, found
            return timed.taken_s

        return work

    silent, asking = run(None), run(slow)
    return ratios(silent, asking, pairs=pairs, measure=lambda work: work())


@contextlib.contextmanager
def server(chosen: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str]]:
    """The server that is to be saturated; gives its base URL and its model's name."""
    if chosen.base_url is not None:
        yield chosen.base_url, chosen.name
    elif chosen.model == SMOLLM2:
        model = build_smollm2(folder / SMOLLM2, smollm2())
        with vllm(model, folder / "vllm.log", context=CONTEXT, caches=False) as base_url:
            yield base_url, NAME
    elif chosen.model is not None:
        with vllm(Path(chosen.model), folder / "vllm.log", caches=False) as base_url:
            yield base_url, NAME
    else:
        with fake_server(ANSWER_S) as base_url:
            yield base_url, "fake"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--model", help=f"folder of a model that vLLM serves, or {SMOLLM2}: untrained eyes before SmolLM2-135M"
    )
    where.add_argument("--base-url", help="a server that runs already")
    parser.add_argument("--name", default=NAME, help="name of the model there")
    parser.add_argument("--questions", type=int, default=80)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--frames", type=int, default=200, help="frames that the detector sees")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--weights", type=Path, default=data_path("assets", "models/demo-yolo26n.pt"))
    parser.add_argument("--video", type=Path, default=data_path("assets", "demo/site.mp4"))
    chosen = parser.parse_args()
    for name in ("ultralytics", "hazardlens"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asked = cut(chosen.video, chosen.questions, folder / "asked.mp4")
        with server(chosen, folder) as (base_url, model):
            found = saturation(base_url, model, asked, concurrency=chosen.concurrency, pairs=chosen.pairs)
            print(f"throughput at saturation over a bare asyncio client: {spread(found)}", flush=True)
        seen = cut(chosen.video, chosen.frames, folder / "seen.mp4")
        with fake_server(SLOW_S) as base_url:
            for every_s in (DEFAULT_EVERY_S, 0.5):
                found = detection(base_url, chosen.weights, seen, every_s=every_s, pairs=chosen.pairs)
                print(
                    f"detector's frame rate, answers of 1 s over no questions, asked every {every_s} s of video: "
                    f"{spread(found)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
