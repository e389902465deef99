"""The measured claims. Each module runs by itself, for instance `python -m tests.benchmarks.decoding`."""
