"""Video time that jumps back: jitter, or a source that starts again."""

RESTART_S = 1.0
"""A jump back by more than this is a restart of the source, less is jitter; in seconds."""
