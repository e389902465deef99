"""Where frames come from: the reader contract here, video files in `hazardlens.frames.file`."""

from __future__ import annotations

from hazardlens.frames.base import Frame, FrameAccount, FrameReader

__all__ = ["Frame", "FrameAccount", "FrameReader"]
