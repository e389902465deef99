"""Names that others look for."""

CAMERA_THREAD_NAME = "hazardlens-camera"
"""How the names of the threads that read cameras begin."""
