"""Public helpers for testing a pipeline without weights: fakes that say so in their names."""

from hazardlens.testing.fakes import FakeDetector, FakeVlm, FunctionVlm, small_instance
from hazardlens.testing.server import FakeServer

__all__ = ["FakeDetector", "FakeServer", "FakeVlm", "FunctionVlm", "small_instance"]
