"""What docs/alerts.md says, held against the code."""

import json
import re
from pathlib import Path

import yaml

import hazardlens
from hazardlens.pipeline import AlertRule, AlertSettings, EvidenceSettings, LiveSettings
from tests.alerts.test_outputs import RECORD

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "alerts.md").read_text(encoding="utf-8")


def test_the_pipeline_is_one() -> None:
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    pipeline = hazardlens.Pipeline.load(yaml.safe_load(example))
    pipeline.check(hazardlens.FieldSchema.load("hazard"), ["person", "truck"])
    assert [rule.scope for rule in pipeline.alerts.rules] == ["frame", "object", "frame"]


def test_the_alert_is_one() -> None:
    (example,) = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    alert = json.loads(example)
    alert.pop("evidence")
    definition = {**RECORD.schema, "$ref": "#/$defs/alert", "type": "object"}
    for key in ("required", "properties", "additionalProperties", "allOf"):
        definition.pop(key)
    assert list(RECORD.evolve(schema=definition).iter_errors(alert)) == []


def test_the_table_names_every_key_with_its_default() -> None:
    named = {
        name: defaults
        for names, defaults in re.findall(r"^\| (`.*?`) \| (.*?) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert set(named) == set(AlertRule.model_fields) - {"name"}
    for name in ("for_s", "clear_s", "cooldown_s"):
        assert float(named[name]) == AlertRule.model_fields[name].default
    assert set(re.findall(r"`evidence\.(\w+)`", PAGE)) <= set(EvidenceSettings.model_fields)
    assert AlertSettings().notify_timeout_s == 10


def test_the_settings_of_live_sources_are_those_of_their_page() -> None:
    page = (DOCS / "live.md").read_text(encoding="utf-8")
    named = dict(re.findall(r"^\| `live\.(\w+)` \| (.*?) \|", page, re.MULTILINE))
    assert set(named) == set(LiveSettings.model_fields)
    for name, default in named.items():
        assert str(LiveSettings.model_fields[name].default).removesuffix(".0") == default.replace("null", "None"), name


def test_links_lead_somewhere() -> None:
    for page in (PAGE, (DOCS / "live.md").read_text(encoding="utf-8")):
        for target in re.findall(r"\]\(([^)#]+)\)", page):
            assert (DOCS / target).exists(), target
