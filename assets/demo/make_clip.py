"""Draws the demo's clip and its truth.

python assets/demo/make_clip.py assets/demo/site.mp4
"""

from __future__ import annotations

import argparse
from pathlib import Path

from drawn_site.clip import write_clip
from drawn_site.seeds import CLIP


def main() -> None:
    """Draw the clip of a seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the MP4 file to write")
    parser.add_argument("--seed", type=int, default=CLIP, help=f"another story; {CLIP} or higher")
    options = parser.parse_args()
    if options.seed < CLIP:
        parser.error(f"seeds below {CLIP} are not for clips")
    if options.path.suffix != ".mp4" or not options.path.absolute().parent.is_dir():
        parser.error(f"{options.path}: expected an .mp4 file in a folder that is there")
    truth = write_clip(options.path, options.seed)
    print(f"{options.path} ({options.path.stat().st_size / 1e6:.1f} MB), {truth}")


if __name__ == "__main__":
    main()
