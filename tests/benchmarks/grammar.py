"""How soon a mask is ready for a frame, and what memory many schemas leave behind.

    python -m tests.benchmarks.grammar [--schemas 10000]

Every frame has another number of detections, or another schema, so that nothing was compiled before.
"""

import argparse
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from hazardlens.schema import FieldSchema
from hazardlens.vlm.loading import load_tokenizer
from hazardlens.vlm.mask import MaskFactory
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


def memory_mb() -> float:
    """Most memory that this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=10_000)
    schemas = parser.parse_args().schemas
    with tempfile.TemporaryDirectory() as folder:
        factory = load_tokenizer(build(Path(folder)))
    hazard = FieldSchema.load("hazard")
    for count in (20, 100):
        ready_ms(factory, hazard, count - 1)
        times = [ready_ms(factory, hazard, count)]
        times += [ready_ms(factory, FieldSchema.load(variant(k, objects=1)), count) for k in range(SHAPES)]
        print(f"{count} detections: hazard {times[0]:.1f} ms, others {statistics.median(times[1:]):.1f} ms")
    levels = []
    for number in range(schemas):
        ready_ms(factory, FieldSchema.load(variant(number, objects=1)), 3)
        if (number + 1) % (schemas // 10) == 0:
            levels.append(memory_mb())
    print(f"most memory after each tenth of {schemas} schemas, MB: " + ", ".join(f"{level:.0f}" for level in levels))


if __name__ == "__main__":
    main()
