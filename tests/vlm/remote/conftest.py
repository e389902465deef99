"""What the tests of remote VLMs share."""

import asyncio
import gc
from collections.abc import Iterator

import pytest

from hazardlens.vlm.remote.loop import submit


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    """Wait until the connections of VLMs that are gone are closed, which happens in the loop's thread."""
    yield
    gc.collect()
    submit(asyncio.sleep(0.1)).result()
