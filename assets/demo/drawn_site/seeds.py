"""Which seeds are for what; no scene that is measured on was trained on."""

from __future__ import annotations

TRAINING = range(200_000)
"""Anything that is fitted draws from here."""

VALIDATION = range(500_000, 510_000)
"""Watched while training, to choose among checkpoints."""

HELD_OUT = range(1_000_000, 1_002_000)
"""The scenes that the figures in the model cards are measured on."""

CLIP = 2_000_012
"""Seed of the bundled clip; clips of other seeds are numbered from there."""
