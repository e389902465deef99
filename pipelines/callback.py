"""An Ultralytics script whose own results carry hazard and severity. Copy it, and make it yours.

python pipelines/callback.py VIDEO [PIPELINE] [WEIGHTS]
"""

import sys

from ultralytics import YOLO

import hazardlens


def main(video: str, pipeline: str = "site", weights: str = "yolo26n.pt") -> None:
    """Track a video with Ultralytics and print its log line, which speaks the fields."""
    model = YOLO(weights)
    with hazardlens.attach(model, pipeline=pipeline):
        for result in model.track(video, stream=True, verbose=False):
            print(f"{result.record.time_s:.1f} s: {result.verbose()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
