"""The command line."""

from __future__ import annotations

import glob
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.logging import RichHandler

from hazardlens import __version__
from hazardlens.cameras.names import CAMERA_THREAD_NAME
from hazardlens.console import print_error
from hazardlens.errors import HazardlensError, InputError
from hazardlens.merge.lane import THREAD_NAME
from hazardlens.outputs.folder import RECORDS, RESULTS

app = typer.Typer(
    name="hazardlens",
    help="Merge what YOLO26 detects on every frame with schema-held answers of a vision-language model.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
schema_app = typer.Typer(help="Look at field schemas.", no_args_is_help=True)
app.add_typer(schema_app, name="schema")

_BaseUrl = Annotated[
    str | None, typer.Option(metavar="URL", help="Base URL of an OpenAI-compatible server that runs the VLM.")
]
_Api = Annotated[str | None, typer.Option(metavar="API", help="Its API: chat.completions (unless given) or responses.")]
_Concurrency = Annotated[int | None, typer.Option(metavar="N", min=1, help="Questions to the server at once.")]
_VlmName = Annotated[
    str | None,
    typer.Option(metavar="V", help="Hub name or folder of a VLM, or its name on a server; 'none' for detections only."),
]

_out = Console(emoji=False)
_err = Console(stderr=True, emoji=False)
_hasty = threading.Event()
"""Set where all is written and whoever stopped the program waits: taking torch down takes longer than that."""


def _version(wanted: bool) -> None:
    if wanted:
        _out.print(f"hazardlens {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    handler = RichHandler(console=_err, show_path=False, show_time=False)
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], format="%(message)s")


@app.command()
def process(
    videos: Annotated[list[str], typer.Argument(metavar="VIDEO...", help="Videos, pictures or glob patterns.")],
    pipeline: Annotated[str, typer.Option(help="A shipped pipeline's name, or a pipeline file.")] = "site",
    detector: Annotated[str | None, typer.Option(metavar="W", help="Weights of an Ultralytics model.")] = None,
    vlm: _VlmName = None,
    base_url: _BaseUrl = None,
    api: _Api = None,
    concurrency: _Concurrency = None,
    schema: Annotated[
        str | None, typer.Option(metavar="S", help="A shipped schema's name, a .json, .lark or .gbnf file, or JSON.")
    ] = None,
    every: Annotated[str | None, typer.Option(metavar="1s", help="Video time between questions, or 'never'.")] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results go, a folder per video.")] = Path(
        "hazardlens-out"
    ),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace results that are there.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Skip finished videos, redo unfinished ones.")] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep what the VLM was shown and said, per question.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PLACE=VALUE", help="Change a setting of the pipeline, such as vlm.device=cpu."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each video's summary as a line of JSON.")] = False,
) -> None:
    """Process videos: one merged record per frame, an annotated video, a summary.

    Exit code: 0 all done; 1 a run failed; 2 bad input; 3 done, but a video ended early or no question was answered;
    130 interrupted.
    """
    from hazardlens.jobs import Job, run_jobs

    if quiet:
        logging.getLogger().setLevel(logging.ERROR)
    if overwrite and resume:
        raise InputError("--overwrite and --resume exclude each other", help="Give one of them.")
    job = Job(
        videos=_expand(videos),
        out=out,
        if_exists="overwrite" if overwrite else "resume" if resume else "refuse",
        trace=trace,
        parts={
            "pipeline": pipeline,
            "detector": detector,
            "vlm": vlm,
            "schema": schema,
            "every": every,
            "overrides": _remote(base_url, api, concurrency) | _settings(settings or []),
        },
        quiet=quiet,
        as_json=as_json,
    )
    raise typer.Exit(run_jobs(job, out=_out, err=_err))


@app.command()
def check(
    pipeline: Annotated[
        str, typer.Argument(metavar="[PIPELINE]", help="A shipped pipeline, or a pipeline file.")
    ] = "site",
    vlm: Annotated[
        str | None,
        typer.Option(metavar="V", help="Name of the model on the server, or hub name or folder of one that runs here."),
    ] = None,
    base_url: _BaseUrl = None,
    api: _Api = None,
    schema: Annotated[str | None, typer.Option(metavar="S", help="A schema, in place of the pipeline's.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="PLACE=VALUE", help="Change a setting of the pipeline.")
    ] = None,
) -> None:
    """Ask a VLM's server a few short questions: does it answer, look at pictures, and hold the schema?

    The server is the pipeline's, or that of --base-url. Where neither names one, the VLM is loaded here, which may
    fetch it, and the mask holds the schema.

    Exit code: 0 all of it; 3 it works, but something is not held or cannot be seen; 2 it cannot be used.
    """
    from hazardlens.checking import check_vlm
    from hazardlens.console import quiet_libraries
    from hazardlens.parts import settle

    quiet_libraries()
    changes = _remote(base_url, api, None) | _settings(settings or [])
    raise typer.Exit(check_vlm(settle(pipeline, vlm=vlm, schema=schema, overrides=changes), out=_out, err=_err))


@app.command()
def live(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="0 for the first webcam, /dev/video1, rtsp://..., http://..., a file; NAME=SOURCE names it, "
            "NAME=env:VARIABLE takes it from the environment.",
        ),
    ],
    pipeline: Annotated[str, typer.Option(help="A shipped pipeline's name, or a pipeline file.")] = "site",
    detector: Annotated[str | None, typer.Option(metavar="W", help="Weights of an Ultralytics model.")] = None,
    vlm: _VlmName = None,
    base_url: _BaseUrl = None,
    api: _Api = None,
    concurrency: _Concurrency = None,
    schema: Annotated[
        str | None, typer.Option(metavar="S", help="A shipped schema's name, a .json, .lark or .gbnf file, or JSON.")
    ] = None,
    every: Annotated[str | None, typer.Option(metavar="1s", help="Time between questions, or 'never'.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where records, status and alerts go.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PLACE=VALUE", help="Change a setting, such as live.frames=every."),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show what is seen in a window.")] = False,
    serve: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, help="Show it on a page, at http://127.0.0.1:PORT; 0 for a free one."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print warnings and errors only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each record as a line of JSON.")] = False,
) -> None:
    """Watch cameras until they end, or until Ctrl-C or SIGTERM, which stop cleanly.

    A camera that is not there is waited for, and connected again when it drops out. Exit code: 0 stopped or ended;
    1 a run failed; 2 bad input.
    """
    from hazardlens.watching import Watch, watch

    parts = {
        "pipeline": pipeline,
        "detector": detector,
        "vlm": vlm,
        "schema": schema,
        "every": every,
        "overrides": _remote(base_url, api, concurrency) | _settings(settings or []),
    }
    job = Watch(sources=sources, out=out, parts=parts, quiet=quiet, as_json=as_json, show=show, serve=serve)
    code = watch(job, out=_out, err=_err)
    _hasty.set()
    raise typer.Exit(code)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results go.")] = Path("hazardlens-out/demo"),
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Draw another clip, with the same hazards in another order.")
    ] = None,
) -> None:
    """Process a drawn clip with the models shipped, without network, and show what was reported beside what is true.

    These models know drawn scenes only, not real footage. Results of an earlier demo are replaced. Exit codes are those
    of process.
    """
    from hazardlens.demo.showing import show_demo

    raise typer.Exit(show_demo(out, seed=seed, console=_out, err=_err))


@schema_app.command("check")
def schema_check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A .json, .lark or .gbnf file, a shipped name, or JSON.")],
    objects: Annotated[int, typer.Option(min=0, help="Number of detections to count an answer's length for.")] = 20,
    vlm: Annotated[
        str | None, typer.Option(metavar="V", help="Count tokens as this model's tokenizer does (hub name or folder).")
    ] = None,
) -> None:
    """Print what the mask enforces, what is only checked afterwards, and the longest answer in tokens."""
    from hazardlens.schema import FieldSchema
    from hazardlens.schema.report import schema_report

    schema = FieldSchema.load(file)
    count_tokens = None
    if vlm is not None:
        from hazardlens.console import quiet_libraries
        from hazardlens.vlm.loading import load_tokenizer

        quiet_libraries()
        count_tokens = load_tokenizer(vlm).count_tokens
    text = schema_report(schema, objects=objects, count_tokens=count_tokens, model=vlm or "")
    _out.print(text, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line and exit."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app()
    except HazardlensError as error:
        print_error(_err, error)
        _exit(error.exit_code)
    except SystemExit as ending:
        _exit(ending.code if isinstance(ending.code, int) else 0)


def _exit(code: int) -> None:
    """Exit without waiting for a VLM or a camera's driver that does not stop: Python would abort while it is busy."""
    hanging = any(thread.name.startswith((THREAD_NAME, CAMERA_THREAD_NAME)) for thread in threading.enumerate())
    if hanging or _hasty.is_set():
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _expand(patterns: list[str]) -> list[Path]:
    """Paths as they are, patterns as what they match."""
    videos: list[Path] = []
    for pattern in patterns:
        matches = [pattern] if Path(pattern).exists() else _matches(pattern)
        if not matches and glob.has_magic(pattern):
            raise InputError(f"nothing matches {pattern}", help="Check the pattern.")
        videos += [Path(match) for match in matches or [pattern]]
    return list(dict.fromkeys(videos))


def _matches(pattern: str) -> list[str]:
    """What a pattern matches, without results of earlier runs."""
    found = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute patterns
    return [path for path in found if not (Path(path).name in RESULTS and Path(path).with_name(RECORDS).exists())]


def _remote(base_url: str | None, api: str | None, concurrency: int | None) -> dict[str, Any]:
    given = {"base_url": base_url, "api": api, "concurrency": concurrency}
    return {f"vlm.{name}": value for name, value in given.items() if value is not None}


def _settings(given: list[str]) -> dict[str, Any]:
    changes = {}
    for item in given:
        place, equals, value = item.partition("=")
        if not equals or not place:
            raise InputError(f"--set {item}: expected PLACE=VALUE", help="For instance --set vlm.device=cpu.")
        try:
            changes[place] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise InputError(f"--set {item}: the value is not valid YAML", help="Quote it.") from error
    return changes
