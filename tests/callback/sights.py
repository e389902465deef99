"""What the tests of the callback share: a detector that sees something, answers that tell what was seen."""

from pathlib import Path
from typing import Any

from hazardlens.testing import FunctionVlm
from hazardlens.testing.video import read_number
from hazardlens.vlm.base import Question

YAML_OF = {"detect": "yolo26n.yaml", **{task: f"yolo26n-{task}.yaml" for task in ("pose", "obb")}}
YAML_OF |= {"segment": "yolo26n-seg.yaml", "classify": "yolo26n-cls.yaml"}


def build(folder: Path, task: str) -> Path:
    """Weights for a task, random, but for a last layer that turns what it sees into a few confident persons."""
    import torch
    from ultralytics import YOLO
    from ultralytics.utils import YAML
    from ultralytics.utils.checks import check_yaml

    path = folder / f"{task}.pt"
    if path.exists():
        return path
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = YOLO(YAML_OF[task])
    if task != "classify":
        model.model.names = YAML.load(check_yaml("coco8.yaml"))["names"]
        head = model.model.model[-1]
        with torch.no_grad():
            for last in (one[-1] for branch in (head.cv3, head.one2one_cv3) for one in branch):
                last.bias[:], last.bias[0] = -9, 1
                last.weight[0] *= 30
    model.save(path)
    return path


def answer(question: Question) -> dict[str, Any]:
    """A hazard that tells the number of the frame, and the severity of each object by its id."""
    severities = ["low", "medium", "high", "critical"]
    return {
        "notes": f"This is frame {question.frame.index} of {question.frame.source}.",
        "hazard": "spill",
        "severity": "low",
        "detections": [{"id": i, "hazard": "spill", "severity": severities[i % 4]} for i in range(question.asked)],
    }


def numbered(question: Question) -> dict[str, Any]:
    """The same, but the number is read from the picture."""
    return {**answer(question), "notes": f"The picture shows {read_number(question.frame.image)}."}


def vlm(**arguments: Any) -> FunctionVlm:
    return FunctionVlm(numbered, **arguments)


PIPELINE = {"schema": "hazard", "max_age_s": 5.0, "ask": {"every_s": 1.0}}
