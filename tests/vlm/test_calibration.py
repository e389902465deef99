"""A fitted temperature makes confidence mean what it says, and changes no verdict."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from hazardlens.errors import WeightsError
from hazardlens.record import Confidence
from hazardlens.schema import FieldSchema
from hazardlens.vlm.calibration import expected_calibration_error, fit_temperature, tempered
from hazardlens.vlm.local import LocalVlm
from tests.vlm.test_decode import ask, question

NAMES = ("none", "low", "high")


def answers(count: int, overconfident: float) -> tuple[list[Confidence], list[str]]:
    """Answers whose logits are too large by a factor, with truths drawn from what they should have said."""
    noise = np.random.default_rng(0)
    found, truths = [], []
    for logits in noise.normal(0, 1.5, (count, len(NAMES))):
        honest, said = (np.exp(own) / np.exp(own).sum() for own in (logits, overconfident * logits))
        truths.append(str(noise.choice(NAMES, p=honest)))
        found.append(Confidence(p=said.max(), choices=dict(zip(NAMES, said.tolist(), strict=True)), mask_mass=1.0))
    return found, truths


@pytest.mark.parametrize("overconfident", [0.5, 1.0, 2.0, 4.0])
def test_the_temperature_is_found_and_the_error_falls(overconfident: float) -> None:
    given, truths = answers(4000, overconfident)
    temperature = fit_temperature([own.choices for own in given], truths)
    assert temperature == pytest.approx(overconfident, rel=0.1)

    def error(found: list[Confidence]) -> float:
        right = [own.choices[truth] == own.p for own, truth in zip(found, truths, strict=True)]
        return expected_calibration_error([own.p for own in found], right)

    after = error([tempered(own, temperature) for own in given])
    assert after < 0.03
    assert error(given) > 0.08 or overconfident == 1.0


def test_tempering_keeps_order_sum_and_what_cannot_be() -> None:
    own = Confidence(p=0.3, choices={"a": 0.5, "b": 0.3, "c": 0.0}, mask_mass=0.4, unresolved=0.2)
    same, flat, sharp = (tempered(own, temperature) for temperature in (1.0, 2.0, 0.5))
    assert same.choices == pytest.approx(own.choices)
    for other in (flat, sharp):
        assert sum(other.choices.values()) == pytest.approx(0.8)
        assert (other.p, other.choices["c"]) == (other.choices["b"], 0)
        assert (other.mask_mass, other.unresolved) == (0.4, 0.2)
    assert sharp.choices["a"] > own.choices["a"] > flat.choices["a"] > flat.choices["b"]


def test_the_error_by_hand() -> None:
    assert expected_calibration_error([0.9, 0.9, 0.6, 1.0], [True, False, True, True]) == pytest.approx(0.3)
    assert expected_calibration_error([0.5, 0.5], [True, False]) == 0


def test_what_cannot_be_fitted_is_refused() -> None:
    for given in (([], []), ([{"a": 1.0}], []), ([{"a": 1.0}], ["b"])):
        with pytest.raises(ValueError, match="expected"):
            fit_temperature(*given)
    with pytest.raises(ValueError, match="expected"):
        expected_calibration_error([], [])


def with_temperature(folder: Path, to: Path, temperature: object) -> Path:
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, "hazardlens_confidence_temperature": temperature}))
    return to


def test_a_temperature_in_the_models_folder_is_used_and_changes_no_verdict(
    random_vlm_folder: Path, tmp_path: Path
) -> None:
    asked = question(FieldSchema.load("hazard"), 1, 0)
    plain = ask(LocalVlm(random_vlm_folder, device="cpu"), asked)
    fitted = ask(LocalVlm(with_temperature(random_vlm_folder, tmp_path / "vlm", 2.5), device="cpu"), asked)
    assert fitted.text == plain.text
    assert fitted.confidence.keys() == plain.confidence.keys()
    for name, own in plain.confidence.items():
        assert fitted.confidence[name].choices == pytest.approx(tempered(own, 2.5).choices)
    assert fitted.confidence != plain.confidence


def test_each_field_may_have_a_temperature_of_its_own(random_vlm_folder: Path, tmp_path: Path) -> None:
    asked = question(FieldSchema.load("hazard"), 2, 0)
    plain = ask(LocalVlm(random_vlm_folder, device="cpu"), asked)
    own = with_temperature(random_vlm_folder, tmp_path / "vlm", {"/hazard": 4, "/detections/*/severity": 0.5})
    fitted = ask(LocalVlm(own, device="cpu"), asked)
    given = {"/hazard": 4, "/detections/0/severity": 0.5, "/detections/1/severity": 0.5}
    assert {"/hazard", "/severity", "/detections/0/hazard"} < plain.confidence.keys()
    for name, own in plain.confidence.items():
        assert fitted.confidence[name].choices == pytest.approx(tempered(own, given.get(name, 1)).choices)


@pytest.mark.parametrize("temperature", [0, -1, "warm", None, True, {"/hazard": 0}, {"/hazard": "warm"}])
def test_a_temperature_that_is_none_is_refused(random_vlm_folder: Path, tmp_path: Path, temperature: object) -> None:
    with pytest.raises(WeightsError, match="hazardlens_confidence_temperature"):
        LocalVlm(with_temperature(random_vlm_folder, tmp_path / "vlm", temperature), device="cpu")
