"""A `FakeServer` that takes some time for each answer, in a process of its own: `python -m tests.servers.fake SECONDS`.

It prints its base URL, and ends when its standard input does.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hazardlens.testing import FakeServer
from hazardlens.testing.server import holding


@contextlib.contextmanager
def fake_server(wait_s: float) -> Iterator[str]:
    """A server whose answers hold the schema and take so long, any number at once; gives its base URL."""
    command = [sys.executable, "-m", "tests.servers.fake", str(wait_s)]
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        base_url = process.stdout.readline().strip()
        assert base_url, "the server did not start"
        yield base_url
        process.stdin.close()


def main(wait_s: float) -> None:
    with FakeServer(lambda asked: replace(holding(asked), wait_s=wait_s)) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(float(sys.argv[1]))
