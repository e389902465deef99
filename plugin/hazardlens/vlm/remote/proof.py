"""From a few short questions to a verdict: the dialect that a server speaks, and what it was seen to do."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from hazardlens.errors import ServerError
from hazardlens.schema import GroundedSchema
from hazardlens.vlm.remote.dialects import DIALECTS, Dialect
from hazardlens.vlm.remote.faults import Fault
from hazardlens.vlm.remote.probe import Prober, kind_of_server
from hazardlens.vlm.remote.sight import Seen
from hazardlens.vlm.remote.wire import proves

_log = logging.getLogger(__name__)

TRIED_IN_TURN = ("json_schema", "llama.cpp", "vllm", "function", "prompt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """What a server was seen to do.

    Attributes:
        dialect: The dialect that it was asked in.
        held: Whether it held the schema.
        how: What that verdict rests on.
        images: Whether it looks at pictures.
        why: What the verdict on pictures rests on.
    """

    dialect: str
    held: Seen
    how: str
    images: Seen
    why: str

    @property
    def enforces(self) -> bool:
        """Whether it was seen to hold the schema."""
        return self.held == "yes"


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
        held, how = holds(prober, schema, row)
    else:
        told = kind_of_server(body)
        row, held, how = _found_out(prober, schema, [told] if told else TRIED_IN_TURN)
        _log.info("%s speaks the dialect %s", prober.name, row.name)
    images, why = prober.images(row) if pictures else ("unknown", "no pictures are sent")
    return Proof(dialect=row.name, held=held, how=how, images=images, why=why)


def holds(prober: Prober, schema: GroundedSchema, row: Dialect) -> tuple[Seen, str]:
    """Whether the server constrains its decoding to the schema, and what that rests on.

    Raises:
        ServerError: If a fault kept that from being seen.
    """
    if not proves(schema, row, prober.api):
        return "no", "a constant would prove nothing"
    return _echoes(prober, schema, row)


def _found_out(prober: Prober, schema: GroundedSchema, names: Sequence[str]) -> tuple[Dialect, Seen, str]:
    """The first dialect in which the schema is held, else the first in which that is not known, else the last."""
    unknown: tuple[Dialect, Seen, str] | None = None
    for name in names:
        row = DIALECTS[name]
        held, how = _echoes(prober, schema, row)
        if held == "yes":
            return row, held if proves(schema, row, prober.api) else "no", how
        if held == "unknown" and unknown is None:
            unknown = row, held, how
    return unknown or (row, "no", how)


def _echoes(prober: Prober, schema: GroundedSchema, row: Dialect) -> tuple[Seen, str]:
    try:
        return prober.held(schema, row)
    except Fault as fault:
        if fault.kind != "rejected":
            raise ServerError(
                f"whether {prober.name} holds the schema could not be seen: {fault.reason}",
                help="See the server's own log; vlm.dialect says how it is asked, and vlm.probe: false leaves this "
                "check out.",
            ) from None
        _log.info("the dialect %s is not taken: %s", row.name, fault.reason)
        return "no", fault.reason
