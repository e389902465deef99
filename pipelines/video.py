"""A video file in, a line for each moment that matters out. Copy it, and make it yours.

python pipelines/video.py VIDEO [PIPELINE]
"""

import sys

import hazardlens


def main(video: str, pipeline: str = "site") -> None:
    """Process a video and print what the vision-language model said of the frames it was asked about."""
    for record in hazardlens.process(video, pipeline=pipeline):
        if record.vlm.status == "ok":
            print(f"{record.time_s:.1f} s: {record.fields}")
        elif record.vlm.status == "error":
            print(f"{record.time_s:.1f} s: no answer: {record.vlm.reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
