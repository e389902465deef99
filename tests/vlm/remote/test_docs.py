"""docs/remote.md says what is so."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hazardlens.pipeline import Pipeline, VlmSettings
from hazardlens.pipeline.remote import RemoteSettings
from hazardlens.record import VlmState
from hazardlens.schema import FieldSchema, GroundedSchema
from hazardlens.vlm.remote.dialects import AUTO, DIALECTS, Dialect
from hazardlens.vlm.remote.proof import TRIED_IN_TURN
from hazardlens.vlm.remote.wire import wire

ROOT = Path(__file__).parent.parent.parent.parent
DOCS = (ROOT / "docs" / "remote.md").read_text(encoding="utf-8")
PLACE = {
    "json_schema": {"chat.completions": "`response_format`", "responses": "`text.format`"},
    "body_json_schema": {"responses": "`response_format` in the body"},
    "none": {"chat.completions": "in the prompt only", "responses": "in the prompt only"},
    "function": {"chat.completions": "the one function that must be called", "responses": "the same"},
    "json_object": {"chat.completions": "JSON mode, schema in the prompt", "responses": "the same"},
}


def table(heading: str) -> list[list[str]]:
    part = DOCS.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return rows[1:]


def test_all_settings_stand_there_with_their_defaults() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
    told = yaml.safe_load(block)["vlm"]
    settings = Pipeline.load({"vlm": told}).vlm
    assert settings is not None
    assert set(RemoteSettings.model_fields) <= set(told)
    default = VlmSettings(model="x")
    given = {"model", "base_url", "api", "timeout_s"}
    for name in set(told) - given:
        assert getattr(settings, name) == getattr(default, name), name
    assert (settings.api, settings.timeout_s) == ("chat.completions", 60.0)


def test_every_dialect_stands_in_the_table() -> None:
    rows = {row[0].strip("`"): row for row in table("Dialects")}
    assert list(rows) == list(DIALECTS)
    for name, (_, chat, responses, source) in rows.items():
        row = DIALECTS[name]
        strict = ", strict" if row.strict else ""
        assert chat == PLACE[row.chat]["chat.completions"] + strict
        assert responses == PLACE[row.responses]["responses"] + strict
        assert source == row.source
    tried = ", ".join(f"`{name}`" for name in TRIED_IN_TURN[:-1])
    assert tried in " ".join(DOCS.split())
    assert AUTO not in DIALECTS


def test_where_a_text_is_held_stands_in_the_table() -> None:
    rows = {row[0].strip("`"): [cell.strip("`") for cell in row[1:]] for row in table("Answers that are no JSON")}
    texts = [{"choices": ["a", "b"]}, {"regex": "[a-z]"}, {"gbnf": 'root ::= "a"'}, {"lark": 'start: "a"'}]
    for name, row in DIALECTS.items():
        for api in ("chat.completions", "responses"):
            told = rows.get(name, rows["all others"])
            assert [_place(FieldSchema.load(text).ground(0), row, api) for text in texts] == told, name


def _place(schema: GroundedSchema, row: Dialect, api: Any) -> str:
    wired = wire(schema, row, api)
    place = next((key for key in wired.arguments.get("extra_body", {}) if key in ("structured_outputs", "grammar")), "")
    is_left = any("the regular expression" in told or "the grammar" in told for told in wired.checked)
    return place or ("checked" if is_left else "a JSON object")


def test_the_statuses_of_the_table_are_those_of_records() -> None:
    statuses = {row[0].strip("`") for row in table("What becomes of an answer")}
    assert statuses == {"ok", "truncated", "invalid", "refused", "timeout", "error", "skipped"}
    assert {"fallback", "reused", "enforced"} <= set(VlmState.__dataclass_fields__)


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", DOCS) or ["remote.md"])
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / "docs" / target).exists()


def test_recipes_name_servers_that_the_dialects_know() -> None:
    recipes = DOCS.partition("## Recipes\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"^- \*\*(.*?)\*\*", recipes, re.MULTILINE))
    assert named == {"vLLM", "llama.cpp", "OpenAI", "Ollama", "LM Studio"}
    assert set(re.findall(r"vlm\.dialect=(\S+?)`", recipes)) <= set(DIALECTS)


def test_each_recipe_says_whether_it_was_run() -> None:
    recipes = DOCS.partition("## Recipes\n")[2].partition("\n## ")[0].partition('\n\n"Run here"')[0]
    parts = re.split(r"^- \*\*", recipes, flags=re.MULTILINE)[1:]
    run = {part.partition("**")[0] for part in parts if "\n  Run here: " in part}
    read = {part.partition("**")[0] for part in parts if part.rstrip().endswith("\n  From the documents.")}
    assert (run, read) == ({"vLLM", "llama.cpp"}, {"OpenAI", "Ollama", "LM Studio"})
    peers = (ROOT / "tests" / "servers" / "peers.py").read_text() + (
        ROOT / "tests" / "servers" / "llama.py"
    ).read_text()
    for what in ("vllm.entrypoints.openai.api_server", "xllamacpp", "disable_any_whitespace"):
        assert what in recipes
        assert what in peers
