"""Settings that only live sources have: which frames, time limits, waits, the lane, what is kept on disk."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hazardlens.pipeline.values import Duration, Part

_Positive = Annotated[Duration, Field(gt=0)]


class LiveSettings(Part):
    """How cameras are read and asked about. Times are the clock's, not video time.

    Attributes:
        frames: `newest`: the detector gets the newest frame of each source; `every`: each one, as far as `buffer` goes.
        buffer: Frames held per source with `every`; the oldest fall out, and are counted.
        open_timeout_s: Time in which a camera has to open.
        read_timeout_s: Time in which the next picture has to come.
        retry_first_s: Wait before the first new try.
        retry_most_s: Longest wait between tries; waits double up to it.
        rtsp_transport: How RTSP carries its packets; `udp` loses some on a bad network.
        webcam_size_wh: Width and height in pixels to ask webcams for, or None for their choice.
        question_timeout_s: Time that one question may take.
        question_gap_s: Least time between the beginnings of two questions, of all sources together.
        questions_per_minute: Most questions begun in a minute, of all sources together, or None for no limit.
        stall_s: A stage that takes longer than this is said to stand still.
        rotate_mb: Size in MB at which a file of records is put aside and a new one begun.
        keep_files: Files of records kept, the one being written included; the oldest are deleted beyond that.
        keep_evidence: Alerts whose pictures and videos are kept; the oldest are deleted beyond that.
    """

    frames: Literal["newest", "every"] = "newest"
    buffer: int = Field(default=64, ge=1)
    open_timeout_s: _Positive = 10.0
    read_timeout_s: _Positive = 10.0
    retry_first_s: _Positive = 1.0
    retry_most_s: _Positive = 60.0
    rtsp_transport: Literal["tcp", "udp"] = "tcp"
    webcam_size_wh: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] | None = None
    question_timeout_s: _Positive = 60.0
    question_gap_s: Duration = 0.0
    questions_per_minute: int | None = Field(default=None, ge=1)
    stall_s: _Positive = 30.0
    rotate_mb: float = Field(default=100.0, gt=0)
    keep_files: int = Field(default=20, ge=1)
    keep_evidence: int = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.retry_most_s < self.retry_first_s:
            raise ValueError("expected retry_most_s to be at least retry_first_s")
        return self
