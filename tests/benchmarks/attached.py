"""An Ultralytics model with a plugin attached, against the same model without, on the same video.

    python -m tests.benchmarks.attached --weights yolo26n.pt --video site.mp4 [--frames 200] [--pairs 9]

Prints the throughput of the attached model over that of the bare one: attached but never asking, and with a VLM that
answers in one second and costs no CPU, asked once a second of video, where nobody waits.
"""

import argparse
import logging
import os
import tempfile
from pathlib import Path

import hazardlens
from hazardlens.testing import FakeVlm
from tests.benchmarks.pairs import ratios, spread
from tests.benchmarks.throughput import cut

os.environ.setdefault("YOLO_AUTOINSTALL", "false")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--video", type=Path, required=True)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--latency", type=float, default=1.0, help="seconds that an answer takes")
    chosen = parser.parse_args()
    from ultralytics import YOLO

    logging.getLogger("ultralytics").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        clip = cut(chosen.video, chosen.frames, Path(name) / "clip.mp4")
        bare, silent, asking = (YOLO(str(chosen.weights), task="detect") for _ in range(3))
        settings = {"schema": "hazard"}
        quiet = {**settings, "ask": {"every_s": None, "new_track": ["toaster"]}}
        hazardlens.attach(silent, quiet, vlm=FakeVlm())
        plugin = hazardlens.attach(asking, settings, vlm=FakeVlm(latency_s=chosen.latency), wait=False)

        def run(model: YOLO) -> int:
            return sum(1 for _ in model.track(str(clip), stream=True, verbose=False))

        for words, model in (("attached, not asking", silent), ("attached, nobody waits for answers", asking)):
            # Wall time of the bare model over that of the attached one is throughput the other way round.
            found = ratios(lambda: run(bare), lambda attached=model: run(attached), pairs=chosen.pairs)
            print(f"{words}, throughput over the bare model: {spread(found)}", flush=True)
        print(f"of the latter: {plugin.counts.line()}")


if __name__ == "__main__":
    main()
