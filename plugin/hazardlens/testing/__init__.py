"""Public helpers for testing a pipeline without weights: fakes that say so in their names."""

from hazardlens.testing.fakes import FakeDetector, FakeVlm, FunctionVlm, small_instance

__all__ = ["FakeDetector", "FakeVlm", "FunctionVlm", "small_instance"]
