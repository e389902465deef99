"""Confidence that means what it says: a temperature fitted to answers with known truth, and how far off it still is.

Temperature scaling and the expected calibration error are those of Guo et al., On Calibration of Modern Neural Networks
(2017), here over the values of a choice in place of classes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hazardlens.record import Confidence

_TEMPERATURES = np.geomspace(0.05, 20.0, 1201)
_LEAST = 1e-12


class Temperatures:
    """A temperature for every choice, or one for each of some.

    Args:
        given: A number above 0 for all choices, or such a number for each of some, by their JSON pointers in the answer
            with `*` in place of an index (`/hazard`, `/detections/*/hazard`). Other choices keep their confidence.

    Raises:
        ValueError: If it is neither.
    """

    def __init__(self, given: object) -> None:
        named = given if isinstance(given, Mapping) else {"": given}
        self._by_place = {str(at): _temperature(value, str(at)) for at, value in named.items()}

    def __call__(self, pointer: str) -> float:
        """The temperature of the choice at a JSON pointer."""
        return self._by_place.get("", self._by_place.get(place(pointer), 1.0))


def _temperature(value: object, at: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"expected a number above 0{f' for {at}' if at else ''}, got {value!r}")
    return float(value)


def place(pointer: str) -> str:
    """A JSON pointer with `*` in place of each index."""
    return re.sub(r"/[0-9]+(?=/|$)", "/*", pointer)


def tempered(confidence: Confidence, temperature: float) -> Confidence:
    """Confidence with each probability raised to 1 / `temperature`, and their sum as before.

    Args:
        confidence: As a model gave it.
        temperature: Above 1 makes it less sure, below 1 surer; the order of the values stays.
    """
    if temperature == 1 or not any(confidence.choices.values()):
        return confidence
    chosen = next(name for name, p in confidence.choices.items() if p == confidence.p)
    values = np.array(list(confidence.choices.values()))
    logs = np.log(np.maximum(values, _LEAST)) / temperature
    weights = np.exp(logs - logs.max()) * (values > 0)
    scaled = weights * (values.sum() / weights.sum())
    choices = dict(zip(confidence.choices, scaled.tolist(), strict=True))
    return replace(confidence, p=choices[chosen], choices=choices)


def fit_temperature(choices: Sequence[Mapping[str, float]], truths: Sequence[str]) -> float:
    """The temperature at which the truth is likeliest, to within half a percent.

    Args:
        choices: Of each answer, the probability of each value, as in `Confidence.choices`.
        truths: Of each answer, the value that is true.

    Returns:
        A temperature between 0.05 and 20.

    Raises:
        ValueError: If there are no answers, not as many as truths, or a truth is none of the values.
    """
    if not choices or len(choices) != len(truths):
        raise ValueError(f"expected as many truths as answers and one at least, got {len(truths)} and {len(choices)}")
    surprise = np.zeros_like(_TEMPERATURES)
    for own, truth in zip(choices, truths, strict=True):
        if truth not in own:
            raise ValueError(f"expected one of {', '.join(own)} as truth, got {truth!r}")
        logs = np.log(np.maximum(np.array(list(own.values())), _LEAST))[:, None] / _TEMPERATURES
        true = list(own).index(truth)
        most = logs.max(axis=0)
        surprise += most + np.log(np.exp(logs - most).sum(axis=0)) - logs[true]
    return float(_TEMPERATURES[surprise.argmin()])


def expected_calibration_error(p: Sequence[float], is_right: Sequence[bool], *, bins: int = 10) -> float:
    """How far confidence and share of right answers lie apart, on average over answers in bins of like confidence.

    Args:
        p: Confidence of each answer, 0..1.
        is_right: Whether each is right.
        bins: Bins of equal width between 0 and 1.

    Raises:
        ValueError: If there are no answers, or not as many of both.
    """
    if not p or len(p) != len(is_right):
        raise ValueError(f"expected as many judgements as answers and one at least, got {len(is_right)} and {len(p)}")
    sure, right = np.asarray(p, float), np.asarray(is_right, float)
    place = np.minimum((sure * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=sure - right, minlength=bins)
    return float(np.abs(gaps).sum() / len(sure))
