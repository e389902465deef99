"""Whether a server looks at pictures: two different ones must make a difference that can be seen from outside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from hazardlens.vlm.remote.pictures import data_uri
from hazardlens.vlm.remote.reading import Said

Seen = Literal["yes", "no", "unknown"]
"""Whether a server was seen to do something."""

LEAST_DIFFERENCE = 0.01
"""Two runs of the same request may give probabilities that differ by less."""
_SIZES_WH = (64, 64), (448, 224)
"""In pixels; they differ in shape as well, since some models scale every picture to one longest side."""


def two_pictures() -> tuple[str, str]:
    """Two pictures that differ in every way, as data URIs."""
    first, second = (_picture(size_wh) for size_wh in _SIZES_WH)
    return first, second


def told_apart(
    first: tuple[Said, Mapping[str, Any]], second: tuple[Said, Mapping[str, Any]]
) -> tuple[Literal["yes", "unknown"], str]:
    """Whether two answers show that the pictures asked with made a difference, and why.

    Args:
        first: What was said to the first picture, and the response as plain JSON types.
        second: The same with the second.
    """
    (one, body), (two, other) = first, second
    if None not in (one.input_tokens, two.input_tokens) and one.input_tokens != two.input_tokens:
        return "yes", f"tokens with a picture and with a larger one: {one.input_tokens}, {two.input_tokens}"
    apart = _apart(_probabilities(body), _probabilities(other))
    if apart is not None and apart > LEAST_DIFFERENCE:
        return "yes", "two pictures give different probabilities"
    if apart is not None:
        return "unknown", f"two pictures give the same tokens, and the same probabilities within {LEAST_DIFFERENCE}"
    counted = "tokens that differ" if one.input_tokens is not None else "tokens"
    return "unknown", f"the server tells neither {counted} nor probabilities"


def _picture(size_wh: tuple[int, int]) -> str:
    width, height = size_wh
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    return data_uri(noise, quality=80)


def _probabilities(body: Mapping[str, Any]) -> dict[str, float]:
    """Probabilities of the likeliest first tokens; none where the server does not tell them."""
    try:
        top = body["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return {str(one["token"]): math.exp(min(0.0, float(one["logprob"]))) for one in top}
    except (KeyError, IndexError, TypeError, ValueError):
        return {}


def _apart(one: Mapping[str, float], two: Mapping[str, float]) -> float | None:
    """By how much they differ at least, since those beyond the likeliest are not told; None where one is empty."""
    if not one or not two:
        return None
    return max(
        *(value - two.get(token, min(min(two.values()), value)) for token, value in one.items()),
        *(value - one.get(token, min(min(one.values()), value)) for token, value in two.items()),
    )
