"""What memory this process holds."""

import gc
import os
from pathlib import Path


def resident_mb() -> float:
    """Resident memory in MB, once what nobody holds any more is collected."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
