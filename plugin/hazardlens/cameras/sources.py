"""From what a user names to cameras: numbers, devices, addresses, files, each with a name for its records."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from hazardlens.cameras.base import Camera
from hazardlens.cameras.secrets import is_address, redacted
from hazardlens.errors import InputError
from hazardlens.pipeline.live import LiveSettings

CameraSource = int | str | Path | Camera
"""A webcam's number, a device, an address, a file, or a camera."""

_NAMED = re.compile(r"([A-Za-z][\w.-]*)=(.+)", re.DOTALL)
_FROM_ENVIRONMENT = "env:"


def cameras(
    sources: CameraSource | Iterable[CameraSource] | Mapping[str, CameraSource], settings: LiveSettings
) -> list[Camera]:
    """Make cameras.

    Args:
        sources: One or several, or several by name. Text may be `NAME=SOURCE`, and `env:VARIABLE` takes the source from
            the environment, so that a password stands in no command line.
        settings: How they are read.

    Raises:
        InputError: If there are none, a name stands twice, or a file is no video. A camera that is not there is none.
    """
    if isinstance(sources, Mapping):
        named: list[tuple[str | None, CameraSource]] = [(name, source) for name, source in sources.items()]
    else:
        several = [sources] if isinstance(sources, int | str | Path | Camera) else sources
        named = [_split(source) for source in several]
    made = [_camera(name, source, settings) for name, source in named]
    if not made:
        raise InputError("live: no sources", help="Name at least one, such as 0 for the first webcam.")
    names = [camera.name for camera in made]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"live: two sources are called {name!r}", help="Name them: gate=SOURCE yard=SOURCE.")
    return made


def _split(source: CameraSource) -> tuple[str | None, CameraSource]:
    if not isinstance(source, str) or Path(source).exists():
        return None, source
    match = _NAMED.fullmatch(source)
    return (match[1], match[2]) if match else (None, source)


def _camera(name: str | None, source: CameraSource, settings: LiveSettings) -> Camera:
    if isinstance(source, Camera):
        if name is not None:
            source.name = name
        return source
    if isinstance(source, str) and source.startswith(_FROM_ENVIRONMENT):
        variable = source.removeprefix(_FROM_ENVIRONMENT)
        if not os.environ.get(variable):
            raise InputError(f"live: the environment has no {variable}", help="Set it to the camera's address.")
        return _camera(name or variable.lower(), os.environ[variable], settings)
    if isinstance(source, bool) or not isinstance(source, int | str | Path):
        raise InputError(f"live: expected a number, an address, a path or a camera, got {type(source).__name__}")
    text = str(source)
    if is_address(text):
        from hazardlens.cameras.network import NetworkCamera

        return NetworkCamera(text.strip(), name=name or redacted(text), settings=settings)
    if text.isdecimal() or text.startswith("/dev/video"):
        from hazardlens.cameras.webcam import Webcam

        device = int(text) if text.isdecimal() else text
        plain = f"webcam{device}" if isinstance(device, int) else text
        return Webcam(device, name=name or plain, size_wh=settings.webcam_size_wh)
    from hazardlens.cameras.played import PlayedFile

    return PlayedFile(text, name=name)
