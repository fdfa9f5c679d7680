"""Files and folders that are not as an import would have them: one clear message, never a fault of the program."""

import json
import os
from contextlib import contextmanager, suppress

import pytest
from mimic_tables import mimic_tables, settings, write_mimic, write_table

from cdpr.ingest import IngestError, ingest
from cdpr.ingest.check import check, write_template
from cdpr.ingest.texts import LONGEST_TEXT
from cdpr.pipeline import cli

KINDS = {"mimic_iv": "note/discharge.csv.gz", "clinicalbench": "a.json", "private": "cases.csv",
         "agentclinic": "a.jsonl", "agentclinic_extended": "a.jsonl", "fhir": "a.ndjson"}  # fmt: skip


@contextmanager
def as_somebody():
    """Permissions do not hold for root; within it the process is nobody."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("dataset", KINDS)
@pytest.mark.parametrize("what", ["folder", "inner", "file"])
def test_what_may_not_be_read_is_said_so(tmp_path, dataset, what):
    raw = write_mimic(tmp_path / "raw") if dataset == "mimic_iv" else tmp_path / "raw"
    state = tmp_path / "state"
    for folder in (raw, state):
        folder.mkdir(exist_ok=True)
    file = raw / KINDS[dataset]
    if dataset != "mimic_iv":
        file.write_text("{}")
    closed = {"folder": raw, "inner": file.parent, "file": file}[what]
    state.chmod(0o777)
    for folder in (tmp_path, *(p for p in tmp_path.parents if p.name.startswith(("pytest-", "popen-")))):
        folder.chmod(0o755)
    with suppress(IngestError):  # what is imported when it is first needed may not be readable by nobody
        ingest(dataset, settings(**{dataset: {"path": str(raw)}}), raw, state)
        check(settings(), raw)
    closed.chmod(0)
    try:
        with as_somebody(), pytest.raises(IngestError, match="may not be read by this user") as error:
            ingest(dataset, settings(**{dataset: {"path": str(raw)}}), raw, state)
        assert closed in (error.value.path, *error.value.path.parents)
        if dataset == "private":
            with as_somebody():
                assert "may not be read by this user" in check(settings(), raw).text()
    finally:
        closed.chmod(0o755)


def marked(dataset: str, credentialed: bool) -> dict[str, bool]:
    """The mark of a source in its settings; AgentClinic's files are open and have none."""
    return {} if dataset.startswith("agentclinic") else {"credentialed": credentialed}


@pytest.mark.parametrize("dataset", KINDS)
def test_a_binary_file_prints_no_garbage(tmp_path, dataset):
    raw = write_mimic(tmp_path / "raw") if dataset == "mimic_iv" else tmp_path / "raw"
    raw.mkdir(exist_ok=True)
    content = bytes(range(256)) * 40
    for name in {KINDS[dataset], *(["results.csv"] if dataset == "private" else [])}:
        (raw / name.removesuffix(".gz")).write_bytes(content)
        if name.endswith(".gz"):
            (raw / name).unlink()
    with pytest.raises(IngestError) as error:
        ingest(dataset, settings(**{dataset: {"path": str(raw)} | marked(dataset, False)}), raw)
    said = str(error.value)
    assert said.isascii() and said.isprintable() and len(said) < 600


TWICE = '{"id": "a", "Mr Meier of Ulm": 1, "Mr Meier of Ulm": 2}'
LONG = json.dumps({"id": "a", "Mr Meier's \\ wife": {"Ulm": "x" * (LONGEST_TEXT + 1)}})


@pytest.mark.parametrize("dataset", ["clinicalbench", "fhir", "agentclinic"])
@pytest.mark.parametrize(("text", "said"), [(TWICE, "occurs twice in one object"), (LONG, "a text of 1,000,001")])
def test_names_in_json_are_words_of_the_case(tmp_path, dataset, text, said):
    """They name the place of an error in open data, and are withheld of credentialed ones."""
    (tmp_path / KINDS[dataset]).write_text(text)
    for credentialed in (False, True) if marked(dataset, True) else (False,):
        chosen = settings(**{dataset: {"path": str(tmp_path)} | marked(dataset, credentialed)})
        with pytest.raises(IngestError, match=said) as error:
            ingest(dataset, chosen, tmp_path)
        assert ("Meier" in str(error.value)) == (not credentialed)
        assert "Ulm" not in str(error.value) or not credentialed


@pytest.mark.parametrize("credentialed", [False, True])
def test_a_check_withholds_names_that_the_layout_does_not_know(tmp_path, credentialed):
    write_template(tmp_path)
    header, *rows = (tmp_path / "cases.csv").read_text().splitlines()
    (tmp_path / "cases.csv").write_text("\n".join([f"{header},Mr Meier of Ulm", *(f"{row},x" for row in rows)]))
    report = check(settings(private={"path": str(tmp_path), "credentialed": credentialed}), tmp_path)
    assert "not in the layout" in report.text() and ("meier" in report.text()) == (not credentialed)
    assert "meier" in report.text(show_values=True)


def test_an_import_without_a_case_for_training_says_so(tmp_path):
    tables = mimic_tables()
    tables["note/discharge"] = tables["note/discharge"][0], tables["note/discharge"][1][:2]  # of one patient
    for name, (columns, rows) in tables.items():
        write_table(tmp_path / f"{name}.csv.gz", columns, rows)
    _, attrition = ingest("mimic_iv", settings(), tmp_path)
    assert attrition.splits["train"] == 0
    assert "WARNING: no case is left for the split 'train': 2 usable cases of 1 patients" in attrition.warnings


def test_an_export_is_checked_where_no_project_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_template(tmp_path / "mine")
    assert cli.main(["check_export", "mine"]) == 0 and "can be ingested" in capsys.readouterr().out
    assert cli.main(["check_export", "mine", "--settings", "gone.yaml"]) == 2
    assert "gone.yaml: no such file; go to the folder of the project" in capsys.readouterr().err
    for flag in ("--check", "--write"):
        assert cli.main(["config", flag]) == 2 and "no project here" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
