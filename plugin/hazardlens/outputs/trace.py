"""What the VLM was shown and what it said, one group of files per question."""

from __future__ import annotations

import json
import re
from pathlib import Path

from PIL import Image

from hazardlens.errors import OutputError
from hazardlens.merge.outcome import Outcome
from hazardlens.outputs.base import Output

_OWN_NAME = re.compile(r"frame_[0-9]{6,}\.(png|crops\.png|prompt\.txt|answer\.json)")


class Trace(Output):
    """Writes `frame_NNNNNN.png`, `.crops.png` (if any), `.prompt.txt` and `.answer.json` for each question.

    Args:
        folder: Where to; it is made if it is not there. Files of these names from an earlier run are removed.

    Raises:
        OutputError: If the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for path in list(folder.iterdir()):
                if _OWN_NAME.fullmatch(path.name):
                    path.unlink()
        except OSError as error:
            raise OutputError(f"{folder} cannot be used: {error.strerror}") from error

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
            "raw": answer.reply.told if answer.reply else None,
            "latency_s": answer.latency_s,
            "model_steps": answer.reply.model_steps if answer.reply else None,
            "schema": question.schema.document,
        }
        try:
            if answer.shown is not None:
                Image.fromarray(answer.shown.image).save(stem.with_suffix(".png"))
                if answer.shown.crops is not None:
                    Image.fromarray(answer.shown.crops).save(stem.with_suffix(".crops.png"))
                _write(stem.with_suffix(".prompt.txt"), answer.shown.prompt)
            _write(stem.with_suffix(".answer.json"), json.dumps(said, ensure_ascii=False, indent=2))
        except OSError as error:
            raise OutputError(f"{stem} cannot be written: {error.strerror}") from error

    def close(self, *, complete: bool) -> None:
        """Nothing is held open."""


def _write(path: Path, text: str) -> None:
    """Write text; half a surrogate pair becomes an escape, which inside JSON is a valid one."""
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
