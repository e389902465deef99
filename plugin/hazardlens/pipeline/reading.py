"""A pipeline's content as it is read: YAML, paths beside the file, overrides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hazardlens.errors import PipelineError
from hazardlens.pipeline.wording import hint
from hazardlens.resources import data_path, shipped_names


class _Loader(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error and not silently the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark)
        return super().construct_mapping(node, deep=deep)


def read(source: str | Path) -> object:
    """Content of a shipped pipeline or a YAML file, with the paths that exist beside the file resolved.

    Raises:
        PipelineError: If there is no such pipeline, or it cannot be read.
    """
    path = _find(source)
    content = _parsed(path)
    return _beside(content, path.parent) if isinstance(content, dict) else content


def _find(source: str | Path) -> Path:
    shipped = shipped_names("pipelines")
    if isinstance(source, str) and source in shipped:
        return Path(data_path("pipelines", f"{source}.yaml"))
    path = Path(source)
    if not path.is_file():
        raise PipelineError(f"{source}: no such file or shipped pipeline", help=hint(str(source), shipped))
    return path


def _parsed(path: Path) -> object:
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506
    except (yaml.YAMLError, ValueError) as error:
        raise PipelineError(f"{path}: not readable as YAML: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise PipelineError(f"{path}: cannot be read: {error.strerror}") from error


def _beside(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Resolve paths that exist beside the pipeline file; all other values stay as they are."""
    content = {key: dict(value) if isinstance(value, dict) else value for key, value in content.items()}
    places = (
        (content, "schema", Path.is_file),
        (content.get("detector"), "weights", Path.exists),
        (content.get("detector"), "tracker", Path.is_file),
        (content.get("vlm"), "model", Path.is_dir),
        (content.get("vlm"), "ca_file", Path.is_file),
    )
    for part, key, present in places:
        value = part.get(key) if isinstance(part, dict) else None
        if part is not None and isinstance(value, str) and value and present(folder / value):
            part[key] = str(folder / value)
    return content


def assign(content: dict[str, Any], place: str, value: object) -> None:
    """Set the value at a dotted place, making parts on the way that are absent or null.

    Raises:
        PipelineError: If something on the way has no parts.
    """
    *parents, last = place.split(".")
    part: Any = content
    for parent in parents:
        if part.get(parent) is None:
            part[parent] = {}
        part = part[parent]
        if not isinstance(part, dict):
            raise PipelineError(f"{place}: {parent} cannot be overridden in part")
    part[last] = value
