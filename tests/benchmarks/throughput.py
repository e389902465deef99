"""`hazardlens.process` against bare Ultralytics on the same video and weights, with a VLM that costs no CPU.

    python -m tests.benchmarks.throughput --weights yolo26n.pt --video site.mp4 [--frames 200] [--pairs 5]

Prints frames per second of ours over theirs: detection and records against `YOLO.predict(stream=True)`, and tracking,
records and video against `YOLO.track(stream=True, save=True)`.
"""

import argparse
import logging
import os
import tempfile
from fractions import Fraction
from pathlib import Path

from hazardlens.frames.file import VideoFile
from hazardlens.outputs.folder import VideoFolder
from hazardlens.outputs.video import VideoWriter
from hazardlens.parts import Parts, assemble
from hazardlens.testing import FakeVlm
from hazardlens.video import VideoRun
from tests.benchmarks.pairs import ratios, spread

os.environ.setdefault("YOLO_AUTOINSTALL", "false")
CONFIDENCE = 0.25


def cut(video: Path, frames: int, to: Path) -> Path:
    """The first frames of a video as a constant-rate H.264 file, so that both sides read the same."""
    with VideoFile(video) as reader:
        rate = reader.rate or Fraction(25)
        with VideoWriter(to, size_wh=reader.size_wh, rate=rate, audio_from=None) as writer:
            for frame in reader:
                if frame.index == frames:
                    break
                writer.write(frame.image, frame.index / float(rate))
    return to


def parts(weights: Path, *, track: bool, video: bool) -> Parts:
    """Our side: the hazard schema asked every second, a VLM that sleeps for 0.2 s."""
    settings = {"detector": {"confidence": CONFIDENCE, "track": track}, "schema": "hazard", "video": video}
    return assemble(settings, detector=weights, vlm=FakeVlm(latency_s=0.2))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--video", type=Path, required=True)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=5)
    chosen = parser.parse_args()
    from ultralytics import YOLO

    logging.getLogger("ultralytics").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = cut(chosen.video, chosen.frames, folder / "clip.mp4")
        bare = YOLO(str(chosen.weights), task="detect")
        arguments = {"stream": True, "verbose": False, "conf": CONFIDENCE}

        def ours(ready: Parts) -> int:
            with VideoRun(ready, clip, folder=VideoFolder(video=clip, path=folder / "ours")) as run:
                return sum(1 for _ in run)

        def theirs_predict() -> int:
            return sum(1 for _ in bare.predict(str(clip), **arguments))

        def theirs_track() -> int:
            saved = {"save": True, "project": str(folder), "name": "theirs", "exist_ok": True}
            return sum(1 for _ in bare.track(str(clip), **arguments, **saved))

        detect_only = parts(chosen.weights, track=False, video=False)
        with_video = parts(chosen.weights, track=True, video=True)
        plain = ratios(theirs_predict, lambda: ours(detect_only), pairs=chosen.pairs)
        print(f"detection and records, throughput over YOLO.predict(stream=True): {spread(plain)}", flush=True)
        full = ratios(theirs_track, lambda: ours(with_video), pairs=chosen.pairs)
        print(f"tracking, records and video, throughput over YOLO.track(stream=True, save=True): {spread(full)}")


if __name__ == "__main__":
    main()
