"""`annotated.mp4`: the source's pictures with boxes and verdicts drawn on them, its timing and its sound.

A still picture becomes `annotated.jpg`.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from PIL import Image

from hazardlens.errors import OutputError
from hazardlens.frames.file import VideoFile
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output
from hazardlens.outputs.draw import Painter
from hazardlens.outputs.video import VideoWriter
from hazardlens.pipeline import Pipeline
from hazardlens.schema import FieldSchema


class AnnotatedVideo(Output):
    """Draws each frame and encodes it, off the caller's path.

    Args:
        path: The MP4 file; it is replaced if it exists.
        source: The video that the frames come from, for size, rate and sound.
        schema: The schema of the records' fields.
        pipeline: Its zones are drawn, and it says how good the video is to be.
        demo: Whether the pictures are marked as made by demo models.

    Raises:
        OutputError: If the file cannot be made.
    """

    needs_pixels: ClassVar[bool] = True

    def __init__(
        self, path: Path, *, source: VideoFile, schema: FieldSchema, pipeline: Pipeline, demo: bool = False
    ) -> None:
        self._painter = Painter(schema, source.size_wh, _corners(pipeline), demo=demo)
        self._writer = VideoWriter(
            path,
            size_wh=source.size_wh,
            rate=source.rate,
            audio_from=source.path,
            crf=pipeline.video_crf,
        )

    def write(self, outcome: Outcome) -> None:
        """Draw and encode the next frame.

        Raises:
            OutputError: If an earlier frame could not be written.
        """
        image = self._painter.draw(outcome.frame.image, outcome.record)
        self._writer.write(image, outcome.record.time_s)

    def close(self, *, complete: bool) -> None:
        """Finish the file.

        Raises:
            OutputError: If it cannot be finished; what was written before is playable.
        """
        self._writer.close(complete=complete)


class AnnotatedPicture(Output):
    """Draws the one frame of a still picture.

    Args:
        path: The JPEG file; it is replaced if it exists.
        source: The picture, for its size.
        schema: The schema of the record's fields.
        pipeline: Its zones are drawn.
        demo: Whether the picture is marked as made by demo models.
    """

    needs_pixels: ClassVar[bool] = True

    def __init__(
        self, path: Path, *, source: VideoFile, schema: FieldSchema, pipeline: Pipeline, demo: bool = False
    ) -> None:
        self._path = path
        self._painter = Painter(schema, source.size_wh, _corners(pipeline), demo=demo)

    def write(self, outcome: Outcome) -> None:
        """Draw and save the frame.

        Raises:
            OutputError: If it cannot be written.
        """
        image = self._painter.draw(outcome.frame.image, outcome.record)
        try:
            Image.fromarray(image[:, :, ::-1]).save(self._path, quality=90)
        except OSError as error:
            raise OutputError(f"{self._path} cannot be written: {error.strerror}") from error

    def close(self, *, complete: bool) -> None:
        """Nothing is held open."""


def _corners(pipeline: Pipeline) -> dict[str, tuple[tuple[float, float], ...]]:
    return {name: zone.polygon for name, zone in pipeline.zones.items()}
