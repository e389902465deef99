"""Cameras in, a line for what happens to them, for each answer and for each alert out. Copy it, and make it yours.

python pipelines/live.py SOURCE [PIPELINE]
"""

import sys

import hazardlens


def main(source: str, pipeline: str = "site") -> None:
    """Watch a camera until it ends, or until Ctrl-C."""
    with hazardlens.live(source, pipeline=pipeline) as run:
        for record in run:
            if record.event is not None:
                print(f"{record.time_s:.1f} s: {record.source} is {record.event.state}")
            elif record.vlm.status == "ok":
                print(f"{record.time_s:.1f} s: {record.fields}")
            for alert in record.alerts:
                print(f"{alert['time_s']:.1f} s: {alert['rule']} {alert['state']}: {alert['why']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
