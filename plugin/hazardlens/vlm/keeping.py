"""How much of what a VLM says is kept, whatever the length of it."""

from __future__ import annotations

import sys

from hazardlens.vlm.base import Answer

MOST_RAW_BYTES = 64 * 2**10
"""As much as records keep of an answer's text, in UTF-8."""


def kept(text: str) -> str:
    """A text as long as records keep it, with a mark where more of it is left out; such a text is kept as it is."""
    if len(text) * 4 <= MOST_RAW_BYTES:
        return text
    encoded = text.encode(errors="replace")
    if len(encoded) <= MOST_RAW_BYTES:
        return text
    mark = f"... [cut, {len(encoded):,} bytes in all]"
    return encoded[: MOST_RAW_BYTES - len(mark)].decode(errors="ignore") + mark


def bytes_of(answer: Answer) -> int:
    """About how much memory an answer holds, with the pictures that were shown for it."""
    held, shown, reply = 0, answer.shown, answer.reply
    if shown is not None:
        held += shown.image.nbytes + (0 if shown.crops is None else shown.crops.nbytes) + sys.getsizeof(shown.prompt)
    if reply is not None:
        texts = {id(text): text for text in (reply.text, reply.raw, reply.reasoning) if text is not None}
        held += sum(map(sys.getsizeof, texts.values()))
        held += 0 if answer.fields is None else sys.getsizeof(reply.text)
    return held
