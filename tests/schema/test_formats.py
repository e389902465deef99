"""Formats are checked after the mask and without it, as for the model of a server."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hazardlens.schema import FieldSchema
from hazardlens.schema.validation import FORMATS_CHECKED, validator_for

Load = Callable[..., FieldSchema]
CASES = {
    "date": ("2024-02-29", ["2023-02-29", "24-02-29", ""]),
    "date-time": ("2024-02-29T10:00:00Z", ["2023-02-29T10:00:00Z", "2024-02-29", "2024-02-29T10:00:00"]),
    "time": ("10:00:00+01:00", ["10:00", "25:00:00Z"]),
    "duration": ("P1DT2H", ["P", "1D", "PT"]),
    "email": ("a.b@example.com", ["a@", "@", "a b@example.com", "a@b@c"]),
    "hostname": ("cam-1.example.com", ["-cam.example.com", "cam_1", "a..b"]),
    "ipv4": ("127.0.0.1", ["127.0.0.256", "127.0.1"]),
    "ipv6": ("::1", ["1::2::3", "12345::"]),
    "uri": ("rtsp://10.0.0.7/stream", ["//10.0.0.7", "a b:", "stream"]),
    "uuid": ("2eb8aa08-aa98-11ea-b4aa-73b441d16380", ["2eb8aa08-aa98-11ea-b4aa-73b441d16380-", "2eb8aa08"]),
    "regex": ("^a+$", ["(", "a\\Z"]),
}


def test_every_checked_format_is_in_the_table() -> None:
    assert set(CASES) == set(FORMATS_CHECKED)


@pytest.mark.parametrize("name", CASES)
def test_an_answer_is_judged_by_its_format(one_field: Load, name: str) -> None:
    good, bad = CASES[name]
    grounded = one_field({"type": "string", "maxLength": 60, "format": name}).ground(0)
    assert grounded.takes(json.dumps({"x": good}))
    for text in bad:
        assert not grounded.takes(json.dumps({"x": text})), text
    assert one_field({"enum": [good, *bad], "format": name}).ground(0).mask_document["properties"]["x"] == {
        "const": good
    }


LABELS = (
    "Punycode|U\\+302E|Mark|Exceptions|DOT|KERAIA|GERESH|GERSHAYIM|Arabic|JOINER|3rd and 4th position|overall length"
)
TAKEN_ALL_THE_SAME = {"date-time": "leap second", "time": "leap second", "hostname": LABELS}


@pytest.mark.parametrize("name", FORMATS_CHECKED)
def test_nothing_that_the_official_suite_calls_invalid_is_taken(shared_file: Callable[[str], Path], name: str) -> None:
    path = shared_file(f"data/json-schema-test-suite/draft2020-12/optional/format/{name}.json")
    for group in json.loads(path.read_text(encoding="utf-8")):
        validator = validator_for({key: value for key, value in group["schema"].items() if key != "$schema"})
        for test in group["tests"]:
            if not re.search(TAKEN_ALL_THE_SAME.get(name, "^$"), test["description"]):
                assert test["valid"] or not validator.is_valid(test["data"]), test["description"]
