"""The pipeline file: what runs, when the VLM is asked, and the rules; typed, unknown keys refused."""

from hazardlens.pipeline.alerts import AlertRule, AlertSettings, EvidenceSettings
from hazardlens.pipeline.live import LiveSettings
from hazardlens.pipeline.model import Pipeline
from hazardlens.pipeline.rules import ContradictionRule, EscalateRule, Rule, ThresholdRule, WorstObjectRule
from hazardlens.pipeline.settings import AskSettings, AskZone, DetectorSettings, VlmSettings, Zone
from hazardlens.pipeline.values import Classes, Duration, Fraction, Steps, Values, When, parse_duration

__all__ = [
    "AlertRule",
    "AlertSettings",
    "AskSettings",
    "AskZone",
    "Classes",
    "ContradictionRule",
    "DetectorSettings",
    "Duration",
    "EscalateRule",
    "EvidenceSettings",
    "Fraction",
    "LiveSettings",
    "Pipeline",
    "Rule",
    "Steps",
    "ThresholdRule",
    "Values",
    "VlmSettings",
    "When",
    "WorstObjectRule",
    "Zone",
    "parse_duration",
]
