"""The registry of data sets: who reads them, what their licence asks, and what is not where the settings say."""

import importlib
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cdpr.ingest import ingest
from cdpr.ingest.draft import Draft
from cdpr.settings import Settings, SettingsError, merge, parse_settings
from cdpr.settings.datasets import AVERAGED, DATASETS, IN_DOMAIN
from cdpr.settings.load import restrict
from cdpr.settings.queries import refuse_missing_paths
from cdpr.settings.section import UndeclaredSetting

CONFIG = yaml.safe_load((Path(__file__).resolve().parents[2] / "config.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("base", [{}, CONFIG, Settings().model_dump(mode="json")], ids=["empty", "config", "dump"])
@pytest.mark.parametrize("dataset", ["mimic_iv", "clinicalbench", "private", "fhir"])
def test_a_path_brings_the_licence_along_and_only_a_word_takes_it_away(base, dataset):
    def credentialed(**source) -> bool:
        settings = parse_settings(merge(base, {"data": {dataset: source}}))
        again = parse_settings(settings.model_dump(mode="json"))
        assert again.data.source(dataset) == settings.data.source(dataset)
        assert again.data.credentialed == settings.data.source(dataset).credentialed
        return settings.data.source(dataset).credentialed

    under_agreement = dataset in ("mimic_iv", "private", "fhir")
    assert credentialed() is False and credentialed(path="mine") is under_agreement
    assert credentialed(path="mine", credentialed=None) is under_agreement
    assert credentialed(path="mine", credentialed=False) is False and credentialed(credentialed=True) is True


def test_a_stage_that_sees_no_path_still_knows_the_mark():
    settings = parse_settings({"data": {"mimic_iv": {"path": "mine"}}})
    seen = restrict(settings, {"data.mimic_iv.credentialed"})
    assert seen.data.mimic_iv.credentialed is True
    with pytest.raises(UndeclaredSetting, match=r"data\.mimic_iv\.path"):
        _ = seen.data.mimic_iv.path


def test_no_neighbouring_folder_decides_what_the_workflow_reads():
    for settings in (Settings(), parse_settings(CONFIG)):
        assert not any(settings.data.source(name).path for name in DATASETS)


def test_every_mistyped_path_is_found(tmp_path):
    (tmp_path / "here").mkdir()
    here, gone = str(tmp_path / "here"), str(tmp_path / "gone")
    every = {
        "fee_schedules": dict.fromkeys(("clfs", "pfs", "gpci", "opps"), gone), "price_overrides": gone,
        "mimic_iv": {"path": gone}, "clinicalbench": {"path": gone},
        "private": {"path": gone}, "agentclinic": {"path": gone},
    }  # fmt: skip
    with pytest.raises(SettingsError, match="do not exist") as error:
        refuse_missing_paths(parse_settings({"data": every, "policy": {"model": gone}}))
    missing = [*(f"data.fee_schedules.{name}" for name in every["fee_schedules"]), "data.price_overrides",
               *(f"data.{name}.path" for name in ("mimic_iv", "clinicalbench", "private", "agentclinic")),
               "policy.model"]  # fmt: skip
    assert str(error.value).splitlines()[1:-1] == [f"  {name}: {gone}" for name in missing]
    there = {
        "mimic_iv": {"path": here},
        "private": {"path": here},
        "price_overrides": here,
        "fee_schedules": {"clfs": here},
    }
    refuse_missing_paths(parse_settings({"data": there}))


def test_what_the_registry_names_can_be_called():
    assert set(AVERAGED) == {"mimic_iv", "clinicalbench", "private"}
    for entry in DATASETS.values():
        for name in filter(None, (entry.importer, entry.writer)):
            module, _, function = name.partition(":")
            assert callable(getattr(importlib.import_module(module), function))
        assert not entry.writer or getattr(Settings().hospital, entry.size) > 0


def read_elsewhere(source, work):
    """An importer from outside the package, of one word a case."""
    assert work.credentialed is source.credentialed
    yield from work.records(
        Draft(word, {"Chief Complaint": "Cough"}, {"Lipase": "30"}, word) for word in work.path.read_text().split()
    )


@pytest.mark.parametrize("role", ["in_domain", "out_of_domain", "further"])
def test_an_entry_and_a_function_are_an_importer_and_the_role_decides_the_split(tmp_path, monkeypatch, role):
    entry = replace(DATASETS["clinicalbench"], importer=f"{__name__}:read_elsewhere", role=role)
    monkeypatch.setitem(DATASETS, "clinicalbench", entry)
    (tmp_path / "words").write_text("Gout Stroke Sepsis")
    settings = parse_settings({"data": {"train_cases": 1, "validation_cases": 1, "test_cases": 1}})
    records, attrition = ingest("clinicalbench", settings, tmp_path / "words")
    assert [record.note_id for record in records] == ["Gout", "Sepsis", "Stroke"]
    split = (
        {"train": 1, "validation": 1, "test": 1} if role == "in_domain" else {"train": 0, "validation": 0, "test": 3}
    )
    assert attrition.splits == split and IN_DOMAIN == "mimic_iv"
