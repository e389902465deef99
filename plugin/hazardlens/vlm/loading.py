"""Loading a local VLM: what is wrong with it is said, and nothing runs with random weights by accident."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from safetensors import SafetensorError
from transformers import AutoModelForImageTextToText, AutoProcessor, BitsAndBytesConfig, PreTrainedModel

from hazardlens.errors import WeightsError
from hazardlens.resources import WITHOUT_VLM, model_source
from hazardlens.vlm.mask import MaskFactory

_log = logging.getLogger(__name__)

_HUB_TIMEOUT_S = 15.0
_INSTEAD = f"Give the path of a folder with the model, or check the name and the network. {WITHOUT_VLM}"
_HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")

Quantization = Literal["8bit", "4bit"]


def load_tokenizer(model: str | Path) -> MaskFactory:
    """A model's tokenizer alone, for counting tokens without loading the model.

    Raises:
        WeightsError: If it cannot be had.
    """
    tokenizer = load_processor(model_source(model), {"revision": None, "trust_remote_code": False}).tokenizer
    return MaskFactory(tokenizer, vocab_rows=len(tokenizer), eos_token_ids=[tokenizer.eos_token_id])


def load_processor(model: str | Path, where: dict[str, Any]) -> Any:
    """Load a model's processor.

    Args:
        model: Hub name or folder.
        where: `revision` and `trust_remote_code`, as transformers takes them.

    Raises:
        WeightsError: If it cannot be had, or is not one that sees and can be asked.
    """
    _look_for(model, where)
    with _translated(model):
        processor = AutoProcessor.from_pretrained(model, **where)
    if getattr(processor, "image_processor", None) is None or getattr(processor, "tokenizer", None) is None:
        raise WeightsError(
            f"VLM {model}: it has no image processor, so it cannot see",
            help="Name an image-text-to-text model, for instance HuggingFaceTB/SmolVLM2-500M-Video-Instruct.",
        )
    if not getattr(processor, "chat_template", None):
        raise WeightsError(
            f"VLM {model}: it has no chat template, so it cannot be asked a question",
            help="Use an instruction-tuned model.",
        )
    return processor


def load_model(
    model: str | Path, *, device: str, dtype: str, quantization: Quantization | None, where: dict[str, Any]
) -> PreTrainedModel:
    """Load a model onto a device, all of its weights.

    Args:
        model: Hub name or folder.
        device: `auto` (a GPU where there is one), `cpu`, `cuda`, `cuda:1`, `mps`.
        dtype: `auto` (as saved), `float32`, `bfloat16`, `float16`.
        quantization: `8bit` or `4bit` through bitsandbytes, or None.
        where: `revision` and `trust_remote_code`, as transformers takes them.

    Raises:
        WeightsError: If it cannot be had, is incomplete, is no image-text-to-text model, or does not fit the device.
    """
    options: dict[str, Any] = {"dtype": dtype, **where}
    if quantization is not None:
        options["quantization_config"] = _quantization(quantization)
    with _translated(model):
        target = torch.device(device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
        if quantization is not None:
            options["device_map"] = {"": target}
        loaded, info = AutoModelForImageTextToText.from_pretrained(model, output_loading_info=True, **options)
        placed = loaded if quantization is not None else loaded.to(target)
    missing = sorted(info["missing_keys"])
    if missing:
        raise WeightsError(
            f"VLM {model}: {len(missing)} weights are missing, the first is {missing[0]}",
            help="Fetch the model again; with weights missing it would answer at random.",
        )
    return placed.eval()


def _look_for(model: str | Path, where: dict[str, Any]) -> None:
    """Ask the hub once about a model that is neither a folder nor cached; the loaders would try for minutes."""
    revision = where["revision"]
    if not Path(model).is_dir() and _HUB_NAME.fullmatch(str(model)) is None:
        raise WeightsError(
            f"VLM {model} cannot be loaded: no such folder",
            help=f"Give the path of a folder with the model. {WITHOUT_VLM}",
        )
    if Path(model).is_dir() or isinstance(try_to_load_from_cache(str(model), "config.json", revision=revision), str):
        return
    try:
        HfApi().model_info(str(model), revision=revision, timeout=_HUB_TIMEOUT_S)
    except Exception as error:  # the client lets errors of its HTTP library through, which is not ours to name
        raise WeightsError(
            f"VLM {model} cannot be loaded: it is no folder here, and the hub says: {_first_line(error)}",
            help=f"Tried this folder, the shipped models, the hub's cache and the hub. {_INSTEAD}",
        ) from error
    _log.warning("VLM %s is not here and is fetched from the hub", model)


def _quantization(quantization: Quantization) -> BitsAndBytesConfig:
    absent = [name for name in ("accelerate", "bitsandbytes") if importlib.util.find_spec(name) is None]
    if absent:
        raise WeightsError(
            f"quantisation to {quantization} needs {' and '.join(absent)}",
            help=f"Install them: pip install {' '.join(absent)}",
        )
    return BitsAndBytesConfig(load_in_8bit=quantization == "8bit", load_in_4bit=quantization == "4bit")


@contextmanager
def _translated(model: str | Path) -> Iterator[None]:
    """Translate what transformers, torch and safetensors are known to raise while a model is loaded."""
    try:
        yield
    except (AssertionError, ImportError, KeyError, OSError, RuntimeError, SafetensorError, ValueError) as error:
        raise WeightsError(f"VLM {model} cannot be loaded: {_first_line(error)}", help=_advice(model, error)) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _advice(model: str | Path, error: Exception) -> str:
    if isinstance(error, ImportError):
        return "Install the named package."
    if isinstance(error, AssertionError | RuntimeError):
        return "Check device and memory, and that the files belong together."
    if Path(model).is_dir():
        return "The folder needs config.json, the processor's and tokenizer's files, and *.safetensors of a VLM."
    if isinstance(error, OSError):
        return f"It is no image-text-to-text model, or not all of it is in the hub's cache. {_INSTEAD}"
    return "Name an image-text-to-text model."
