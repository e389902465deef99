"""Every error that hazardlens raises on purpose.

    HazardlensError
    ├── InputError (ValueError)        the user's input is at fault; nothing was started
    │   ├── VideoError                 a file that is not a readable video
    │   ├── SchemaError                a field schema that cannot be held
    │   ├── PipelineError              a pipeline file or setting
    │   └── OutputExistsError          the output folder already holds results
    ├── WeightsError                   a detector or VLM that cannot be loaded
    ├── ServerError                    a VLM server that cannot be used as the pipeline wants it
    ├── DetectionError                 the detector failed on a frame
    ├── OutputError (OSError)          results that cannot be written
    └── ConstraintError                the mask and the model do not fit together

Each class says in `retryable` whether the same call may work later unchanged, and in `exit_code` what the command line
returns for it. `help` is one line of advice, shown under the message.
"""

from __future__ import annotations

from typing import ClassVar


class HazardlensError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: What went wrong, naming the thing.
        help: One line on what to do about it, or empty.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, help: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.help = help

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  {self.help}" if self.help else message


class InputError(HazardlensError, ValueError):
    """The user's input is at fault; nothing was started and nothing was written."""

    exit_code = 2


class VideoError(InputError):
    """A file that is missing, empty, unreadable, or holds no video."""


class SchemaError(InputError):
    """A field schema that is malformed or cannot be held; the message names each place by its JSON pointer."""


class PipelineError(InputError):
    """A pipeline file or setting that is malformed, or names something that does not exist."""


class OutputExistsError(InputError):
    """The output folder already holds results and neither overwriting nor resuming was asked for."""


class WeightsError(HazardlensError):
    """A detector or VLM that cannot be loaded: missing, incomplete, unreachable or of the wrong kind."""

    exit_code = 2


class ServerError(HazardlensError):
    """A VLM server that cannot be used: unreachable, refusing, without that model, or blind to pictures."""

    retryable = True
    exit_code = 2


class DetectionError(HazardlensError):
    """The detector failed on a frame."""


class OutputError(HazardlensError, OSError):
    """Results that cannot be written, for instance on a full disk; what was written before is whole."""

    retryable = True


class ConstraintError(HazardlensError):
    """The mask and the model do not fit together, or the mask left no token to choose."""
