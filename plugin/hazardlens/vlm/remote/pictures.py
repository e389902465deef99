"""Pictures as they are sent: JPEG in a data URI."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hazardlens.vlm.base import Shown

_FINE = 95
"""From this quality on colours are kept as fine as brightness."""


def data_uri(image: NDArray[np.uint8], *, quality: int) -> str:
    """A picture as a JPEG data URI.

    Args:
        image: Pixels, shape (H, W, 3), uint8, RGB.
        quality: JPEG quality, 1 to 100; from 95 on without chroma subsampling.
    """
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality, subsampling="4:4:4" if quality >= _FINE else "4:2:0")
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def data_uris(shown: Shown, *, quality: int) -> tuple[str, ...]:
    """All pictures of a question, in order."""
    images = [shown.image] if shown.crops is None else [shown.image, shown.crops]
    return tuple(data_uri(image, quality=quality) for image in images)
