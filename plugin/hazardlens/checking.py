"""`hazardlens check`: what a pipeline's VLM was seen to do, told to a person."""

from __future__ import annotations

from rich.console import Console

from hazardlens.console import print_error, print_lines
from hazardlens.errors import InputError, ServerError, WeightsError
from hazardlens.parts import Settled, make_vlm
from hazardlens.pipeline import VlmSettings
from hazardlens.schema import FieldSchema
from hazardlens.vlm.base import Vlm

_OK, _UNUSABLE, _PARTLY = 0, 2, 3
_MOST_LEFT = 12
_SEEN = {"yes": "seen", "no": "NOT SEEN", "unknown": "UNKNOWN"}


def check_vlm(settled: Settled, *, out: Console, err: Console) -> int:
    """Check the VLM of a pipeline and its fallbacks, and print the verdicts.

    Args:
        settled: The pipeline, checked; it is probed with its schema, grounded to as many objects as it asks about.
        out: Gets the verdicts.
        err: Gets errors.

    Returns:
        0 where all answer, see what is sent and hold the schema, 3 where not all is held or seen, 2 where one cannot be
        used.

    Raises:
        InputError: The pipeline has no VLM.
        WeightsError: One that is on no server cannot be loaded here.
    """
    settings = settled.pipeline.vlm
    if settings is None:
        raise InputError("the pipeline has no VLM to check", help="Set vlm in the pipeline, or give --vlm.")
    verdicts = [_check(one, settled.schema, settled.pipeline.max_objects, out=out, err=err) for one in settings.members]
    return next((code for code in (_UNUSABLE, _PARTLY) if code in verdicts), _OK)


def _check(settings: VlmSettings, schema: FieldSchema, objects: int, *, out: Console, err: Console) -> int:
    try:
        vlm = make_vlm(settings.model_copy(update={"probe": True}))
    except WeightsError as error:
        raise WeightsError(
            f"the pipeline names no server for this VLM, so it would run here. {error.args[0]}",
            help="Give --vlm NAME --base-url URL for one on a server, or --vlm FOLDER for one that runs here.",
        ) from error
    failure: ServerError | None = None
    try:
        for count in (0, objects):
            vlm.prepare(schema.ground(count))
    except ServerError as error:
        failure = error
    proof = getattr(vlm, "proof", None)
    code = _tell(vlm, schema, objects, out) if failure is None or (proof and proof.images == "no") else _UNUSABLE
    if failure is not None:
        print_error(err, failure)
        return _UNUSABLE
    return code


def _tell(vlm: Vlm, schema: FieldSchema, objects: int, out: Console) -> int:
    from hazardlens.vlm.remote.model import RemoteVlm

    if not isinstance(vlm, RemoteVlm) or vlm.proof is None:
        print_lines(out, [f"{vlm.name}: runs here", f"  schema {schema.name}: held by the mask"])
        return _OK
    proof, wired = vlm.proof, vlm.wired(schema.ground(objects))
    held = {"yes": "held by the server", "no": "NOT HELD, its answers are only checked afterwards"}.get(
        proof.held, f"UNKNOWN ({proof.how}), its answers are only checked afterwards"
    )
    lines = [
        f"{vlm.name}: answers",
        f"  pictures: {_SEEN[proof.images] if vlm.sends_pictures else 'not sent'} ({proof.why})",
        f"  schema {schema.name} with {objects} objects: {held}",
        f"  dialect: {proof.dialect} ({vlm.dialect.source})",
        f"  left to validation: {len(wired.checked) or 'nothing'}",
        *(f"    {place}" for place in wired.checked[:_MOST_LEFT]),
    ]
    if len(wired.checked) > _MOST_LEFT:
        lines.append(f"    ... and {len(wired.checked) - _MOST_LEFT} more")
    print_lines(out, lines)
    return _OK if proof.enforces and (proof.images == "yes" or not vlm.sends_pictures) else _PARTLY
