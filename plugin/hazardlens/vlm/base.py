"""The VLM contract: a question with its picture in, a reply in words out, judged by the schema that was asked with."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hazardlens.detect.base import Detections
from hazardlens.frames.base import Frame
from hazardlens.record import Confidence, Fields, Status
from hazardlens.schema import FieldSchema, GroundedSchema

Enforced = Literal["mask", "server", "checked"]
"""How the form of an answer is held: by a mask here, by a server that was seen to do it, or by validation only."""

ReplyEnd = Literal["complete", "truncated", "refused", "timeout", "error", "skipped"]
"""How a reply came to its end; in the last three cases nothing was said."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Question:
    """What the VLM is asked about one frame.

    Attributes:
        frame: The frame it is about.
        detections: All detections of the frame, those asked about first.
        asked: How many of them are asked about; their ids are 0..asked-1.
        fields: The schema of the fields.
        schema: The same, grounded to those detections.
        context: What this site is and what matters there, in the user's words; may be empty.
        trigger: Why the frame is asked.
    """

    frame: Frame
    detections: Detections
    asked: int
    fields: FieldSchema
    schema: GroundedSchema
    context: str
    trigger: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """How a question is shown to a VLM.

    Attributes:
        longest_side_px: The picture is scaled down so that its longest side is at most this.
        draw_ids: Whether the ids of the detections asked about are drawn on the pictures, and their boxes on the first.
        crops_px: Side in pixels of each object's own cut-out, shown in a second picture, or None for no second picture.
        describe_fields: Whether the prompt describes the fields; a VLM that was trained for its schema needs no words.
        blur: Classes whose boxes are made unrecognizable in all pictures.
        reason_first: Whether the prompt asks for a few words of reasoning ahead of the answer.
    """

    longest_side_px: int = 1024
    draw_ids: bool = False
    crops_px: int | None = None
    describe_fields: bool = True
    blur: tuple[str, ...] = ()
    reason_first: bool = False


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Shown:
    """What the VLM gets to see.

    Attributes:
        image: Pixels as sent, shape (H, W, 3), uint8, RGB.
        prompt: The whole text of the prompt.
        crops: The second picture, of the objects asked about one by one, shape (S, S, 3), uint8, RGB, or None.
    """

    image: NDArray[np.uint8]
    prompt: str
    crops: NDArray[np.uint8] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What a VLM said, before anybody has judged it.

    Attributes:
        text: The answer's text, in the form that the schema asks for.
        end: `complete`, `truncated` (the token budget ran out), `refused`, `timeout` (no answer in time), `error` (no
            answer), or `skipped` (not asked, because a limit is spent).
        reason: Why the reply is not complete, or why it was found to be invalid already, or None.
        input_tokens: Tokens of prompt and pictures over all tries, or None where unknown.
        output_tokens: Tokens that it wrote over all tries, what it reasoned included, or None where unknown.
        model_steps: Forward passes of the model that the answer took, or None where unknown.
        extra_passes: Forward passes beyond those, for the model's exact probabilities.
        confidence: How sure the model was of its verdicts, by their JSON pointers in the answer, or None where unknown.
        raw: The text as it came, or None where it is `text` itself.
        attempts: Tries that the reply took.
        model: Who replied, or None for the VLM that was asked.
        enforced: How the form of this reply was held, or None for the VLM's own way.
        fallback: What was asked before in vain, and why, in order.
        reused: Whether this is the answer to an earlier question of exactly the same bytes.
        reasoning: What it said freely ahead of the answer, or None where it was not to be kept.
    """

    text: str
    end: ReplyEnd = "complete"
    reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    model_steps: int | None = None
    extra_passes: int = 0
    confidence: Mapping[str, Confidence] | None = None
    raw: str | None = None
    attempts: int = 1
    reasoning: str | None = None
    model: str | None = None
    enforced: Enforced | None = None
    fallback: tuple[str, ...] = ()
    reused: bool = False

    @property
    def told(self) -> str | None:
        """The text as it came, or None where nothing was said."""
        if self.end in ("timeout", "error", "skipped") and not (self.raw or self.text):
            return None
        return self.text if self.raw is None else self.raw


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A judged reply: fields that satisfy the schema, or the reason why there are none.

    Attributes:
        status: `ok`, `truncated`, `invalid`, `refused`, `timeout`, `error` or `skipped`.
        reason: Why the status is not `ok`, or None.
        fields: The fields as the model gave them, or None unless `ok`.
        reply: What the model said, or None where it said nothing.
        latency_s: Wall time from asking to answer in seconds; its pictures may have been made ready before.
        attempts: Tries that the answer took.
        shown: What the model was shown, or None if that already failed.
    """

    status: Status
    reason: str | None
    fields: Fields | None
    reply: Reply | None
    latency_s: float
    attempts: int
    shown: Shown | None


class Vlm(ABC):
    """A vision-language model that answers questions.

    Attributes:
        name: Name of the model, as written into records.
        enforced: How it holds the form of its answers.
        view: How it is shown its questions.
        demo: Whether it is a demo model, which knows drawn scenes only; what is made with it says so.
        concurrency: How many questions it may be asked at once.
    """

    name: str
    enforced: Enforced
    view: View = View()
    demo: bool = False
    concurrency: int = 1

    @abstractmethod
    def ask(self, question: Question, shown: Shown, stop: threading.Event) -> Reply:
        """Answer `question`, given what is `shown`; a lane calls it from as many threads as `concurrency` says.

        Args:
            question: The question.
            shown: Its pictures and prompt.
            stop: Set by another thread when nobody waits for the answer any more; then end soon, with any error.

        Raises:
            TimeoutError: If the answer takes too long; the status is then `timeout`, and `error` for any other error.
        """

    def prepare(self, schema: GroundedSchema) -> None:
        """Do now what a first question of this shape would otherwise wait for; raise if it cannot be asked."""
