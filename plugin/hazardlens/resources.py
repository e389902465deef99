"""Finds the data that is shipped with the package: ready pipelines, schemas, models and demo assets.

In a wheel they lie in `hazardlens/data/`; in a checkout, and so in an editable install, at the repository's root.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Literal

from hazardlens.errors import InputError

Kind = Literal["pipelines", "schemas", "assets"]
"""The folders that are shipped."""

WITHOUT_WEIGHTS = "To see hazardlens work without any, on drawn scenes: hazardlens demo."
"""Advice where weights cannot be had."""
WITHOUT_VLM = f"Or name a model on a server: --vlm NAME --base-url URL. {WITHOUT_WEIGHTS}"
"""The same where a VLM cannot be had."""

_SUFFIXES: dict[Kind, str] = {"pipelines": ".yaml", "schemas": ".json", "assets": ""}


def data_folder(kind: Kind) -> Path:
    """The folder of one kind of shipped data.

    Raises:
        InputError: It is not there: the installation is incomplete.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "data" / kind, package.parents[1] / kind):
        if folder.is_dir():
            return folder
    raise InputError(
        f"the shipped folder '{kind}' is missing", help="Install hazardlens again; this copy is incomplete."
    )


def data_path(kind: Kind, name: str) -> Path:
    """Where one shipped file or folder lies.

    Args:
        kind: Folder it is shipped in.
        name: Its name there, suffix included, for instance `hazard.json`.

    Raises:
        InputError: Nothing of that name is shipped.
    """
    folder = data_folder(kind)
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.exists():
        raise InputError(
            f"no '{name}' is shipped in '{kind}'", help=f"Shipped are: {', '.join(shipped_names(kind)) or 'none'}."
        )
    return path


def shipped_names(kind: Kind) -> tuple[str, ...]:
    """Names of what is shipped, sorted: schemas and pipelines without suffix, assets by their file names."""
    suffix = _SUFFIXES[kind]
    visible = [path for path in data_folder(kind).iterdir() if not path.name.startswith(".")]
    return tuple(sorted(path.stem if suffix else path.name for path in visible if path.name.endswith(suffix)))


def shipped_model(name: str) -> Path | None:
    """Where a model that is shipped in `assets/models/` lies.

    Args:
        name: Name of its file or folder there, for instance `demo-yolo26n.pt` or `demo-vlm`.

    Returns:
        Its path, or None where no such model is shipped.
    """
    try:
        models = data_folder("assets") / "models"
    except InputError:  # whoever has models of their own needs no assets
        return None
    return next((path for path in models.glob("*") if path.name == name), None)


def model_source(given: str | Path) -> str | Path:
    """What a detector's weights or a VLM are to be loaded from: a path that exists, else a model that is shipped.

    Args:
        given: Path or name.

    Returns:
        The path, or what was given where nothing of that name is here: a published name, or a mistake.
    """
    if Path(given).exists():
        return given
    return shipped_model(str(given)) or given


def asset_package(name: str) -> ModuleType:
    """A Python package that is shipped in the folder `assets/demo/`, imported under its own name.

    From then on `import name` and `from name.module import thing` work as for any other package.

    Args:
        name: Its name, for instance `drawn_site`.

    Returns:
        The package; one that is imported already is returned as it is.

    Raises:
        InputError: No package of that name is shipped.
    """
    path = data_path("assets", f"demo/{name}/__init__.py")
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=[str(path.parent)])
    if spec is None or spec.loader is None:
        raise InputError(f"'{path}' cannot be imported")
    package = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(package)
    except BaseException:
        del sys.modules[name]
        raise
    return package
