"""How soon a mask is ready for a frame, and what memory many schemas leave behind.

    python -m tests.benchmarks.grammar [--schemas 10000]

Every frame has another number of detections, or another schema, so that nothing was compiled before.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

from hazardlens.schema import FieldSchema
from hazardlens.vlm.loading import load_tokenizer
from hazardlens.vlm.mask import MaskFactory
from tests.memory import resident_mb
from tests.random_vlm import build

SHAPES = 20
"""Different ones of each size."""


def variant(number: int, *, objects: int) -> dict[str, object]:
    """A schema like `hazard` with other words."""
    rng = random.Random(number)
    words = [f"{''.join(rng.choices('abcdefghij', k=6))}_{number}" for _ in range(8)]
    verdict = {"enum": ["none", *words]}
    item = {
        "type": "object",
        "properties": {"id": {"type": "integer", "minimum": 0}, "hazard": verdict},
        "required": ["id", "hazard"],
        "additionalProperties": False,
    }
    properties = {"notes": {"type": "string", "maxLength": 240}, "hazard": verdict}
    if objects:
        properties["detections"] = {"type": "array", "items": item}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def ready_ms(factory: MaskFactory, schema: FieldSchema, count: int) -> float:
    """Time from the number of detections to the first mask, in milliseconds."""
    started = time.perf_counter()
    factory.session(schema.ground(count)).allowed()
    return 1000 * (time.perf_counter() - started)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=10_000)
    schemas = parser.parse_args().schemas
    with tempfile.TemporaryDirectory() as folder:
        factory = load_tokenizer(build(Path(folder)))
    hazard = FieldSchema.load("hazard").document
    kinds = {"hazard": lambda k: {**hazard, "title": f"Site {k}"}, "smaller": lambda k: variant(k, objects=1)}
    ready_ms(factory, FieldSchema.load("hazard"), 1)
    for count in (20, 100):
        for name, make in kinds.items():
            fresh = [FieldSchema.load(make(100 * count + k)) for k in range(SHAPES)]
            first = statistics.median(ready_ms(factory, schema, count) for schema in fresh)
            later = statistics.median(ready_ms(factory, schema, count - 1) for schema in fresh)
            print(f"{name}, {count} detections: {first:.1f} ms the first time that so many are asked about, ", end="")
            print(f"{later:.1f} ms for another number after that")
    levels = []
    for number in range(schemas):
        ready_ms(factory, FieldSchema.load(variant(number, objects=1)), 3)
        if (number + 1) % (schemas // 10) == 0:
            levels.append(resident_mb())
    told = ", ".join(f"{level:.0f}" for level in levels)
    print(f"resident memory after each tenth of {schemas} schemas, MB: {told}")


if __name__ == "__main__":
    main()
