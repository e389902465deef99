"""Print the n-th command of the README: the n-th fenced block marked `sh`."""

import re
import sys
from pathlib import Path


def commands(readme: str) -> list[str]:
    """All fenced `sh` blocks, in order."""
    return [block.strip() for block in re.findall(r"^```sh\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)]


if __name__ == "__main__":
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    sys.stdout.write(commands(text)[int(sys.argv[1]) - 1] + "\n")
