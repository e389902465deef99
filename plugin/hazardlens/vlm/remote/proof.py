"""From a few short questions to a verdict: the dialect that a server speaks, and what it was seen to do."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from hazardlens.errors import ServerError
from hazardlens.schema import GroundedSchema
from hazardlens.vlm.remote.dialects import DIALECTS, Dialect
from hazardlens.vlm.remote.faults import Fault
from hazardlens.vlm.remote.probe import Prober, kind_of_server
from hazardlens.vlm.remote.sight import Sight
from hazardlens.vlm.remote.wire import proves

_log = logging.getLogger(__name__)

TRIED_IN_TURN = ("json_schema", "llama.cpp", "vllm", "function", "prompt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What a server was seen to do.

    Attributes:
        dialect: The dialect that it was asked in.
        enforces: Whether it held the schema.
        images: Whether it looks at pictures.
        why: What the verdict on pictures rests on.
    """

    dialect: str
    enforces: bool
    images: Sight
    why: str


def prove(prober: Prober, schema: GroundedSchema, row: Dialect, *, is_settled: bool, pictures: bool) -> Proof:
    """See what a server does.

    Args:
        prober: Asks it.
        schema: What the run asks with.
        row: The dialect that is spoken, or the one to begin with.
        is_settled: Whether that is the one; else it is found out.
        pictures: Whether pictures are sent.

    Raises:
        ServerError: If it does not answer, or if what it does could not be seen.
    """
    body = prober.answers(row)
    if is_settled:
        enforces = holds(prober, schema, row)
    else:
        told = kind_of_server(body)
        names = [told] if told else list(TRIED_IN_TURN)
        holding = next((name for name in names if _echoes(prober, schema, DIALECTS[name])), None)
        row = DIALECTS[holding or names[-1]]
        enforces = holding is not None and proves(schema, row, prober.api)
        _log.info("%s speaks the dialect %s", prober.name, row.name)
    images, why = prober.images(row) if pictures else ("unknown", "no pictures are sent")
    return Proof(dialect=row.name, enforces=enforces, images=images, why=why)


def holds(prober: Prober, schema: GroundedSchema, row: Dialect) -> bool:
    """Whether the server constrains its decoding to the schema.

    Raises:
        ServerError: If that could not be seen.
    """
    return proves(schema, row, prober.api) and _echoes(prober, schema, row)


def _echoes(prober: Prober, schema: GroundedSchema, row: Dialect) -> bool:
    try:
        return prober.enforces(schema, row)
    except Fault as fault:
        if fault.kind != "rejected":
            raise ServerError(
                f"whether {prober.name} holds the schema could not be seen: {fault.reason}",
                help="See the server's own log; vlm.dialect says how it is asked, and vlm.probe: false leaves this "
                "check out.",
            ) from None
        _log.info("the dialect %s is not taken: %s", row.name, fault.reason)
        return False
