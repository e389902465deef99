"""What the VLM was shown and what it said, one group of files per question."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from hazardlens.errors import OutputError
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output


class Trace(Output):
    """Writes `frame_NNNNNN.png`, `.prompt.txt` and `.answer.json` for each question.

    Args:
        folder: Where to; it is made if it is not there.

    Raises:
        OutputError: If the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder} cannot be made: {error.strerror}") from error

    def write(self, outcome: Outcome) -> None:
        """Write what was shown and said, if the frame was asked about.

        Raises:
            OutputError: If it cannot be written.
        """
        question, answer = outcome.question, outcome.answer
        if question is None or answer is None:
            return
        stem = self.folder / f"frame_{question.frame.index:06d}"
        said = {
            "frame": question.frame.index,
            "time_s": question.frame.time_s,
            "trigger": list(question.trigger),
            "status": answer.status,
            "reason": answer.reason,
            "raw": answer.reply.text if answer.reply else None,
            "latency_s": answer.latency_s,
            "model_steps": answer.reply.model_steps if answer.reply else None,
            "schema": question.schema.document,
        }
        try:
            if answer.shown is not None:
                Image.fromarray(answer.shown.image).save(stem.with_suffix(".png"))
                stem.with_suffix(".prompt.txt").write_text(answer.shown.prompt, encoding="utf-8")
            stem.with_suffix(".answer.json").write_text(
                json.dumps(said, ensure_ascii=False, indent=2), encoding="utf-8"
            )
        except OSError as error:
            raise OutputError(f"{stem} cannot be written: {error.strerror}") from error

    def close(self, *, complete: bool) -> None:
        """Nothing is held open."""
