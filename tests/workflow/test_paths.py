"""Folders of any name: each works, or is refused by name before anything is started."""

import json
import shutil

import pytest
from project import Project

pytestmark = pytest.mark.workflow

SMALL = {"mimic_patients": 60, "textbook_cases": 40, "clinicalbench_cases": 16, "private_cases": 16}
SPLITS = {"train_cases": 20, "validation_cases": 8, "test_cases": 8}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in a folder with a name that a shell, a pattern or a URI could take for something else."""
    folder = tmp_path_factory.mktemp("made") / "it's #1 %20 $HOME é"
    folder.mkdir()
    return Project(folder)


def overlay(project: Project, name: str, **settings: dict) -> str:
    path = project.folder / f"config/{name}.yaml"
    path.write_text(
        json.dumps({"hospital": SMALL, **settings, "data": SPLITS | settings.get("data", {})}, ensure_ascii=False),
        encoding="utf-8",
    )
    return name


def test_odd_names_work_and_no_other_file_is_touched(odd):
    """Results, state, overlay and data below a project of odd name; words of these names are files of the user."""
    folder = odd.folder
    precious = [folder / name for name in ("my", "x", "results", "out")]
    for path in precious:
        path.write_text("my only copy")
    results = "my results; > x | tee out && `touch y` $(touch y) \"'*[r]"
    file = overlay(odd, "-my overlay's {a} $HOME ?", paths={"results": results, "state": "my state's *[s] é"})
    made = [f"{results}/cases/private.jsonl", f"{results}/cases/mimic_iv.jsonl"]
    first = odd.run("--", *made, overlay=file)
    assert first.returncode == 0, first.stdout[-3000:]
    odd.call("rebuild_tracking", overlay=file)
    assert (folder / results / "mlflow.db").exists()
    assert [path.read_text() for path in precious] == ["my only copy"] * 4 and not (folder / "y").exists()
    for dataset in ("private", "mimic_iv"):  # the same cases from raw files below such a name
        shutil.copytree(folder / results / "raw" / dataset, folder / f"-raw [1] * it's {dataset}")
    shutil.copytree(folder / results / "raw/private", folder / "-raw 1 a it's mimic_iv")  # what a pattern would find
    data = {d: {"path": f"-raw [1] * it's {d}", "credentialed": False} for d in ("private", "mimic_iv")}
    again = overlay(odd, "again", data=data, paths={"results": "-r", "state": "-s"})
    second = odd.run("--", "-r/cases/private.jsonl", "-r/cases/mimic_iv.jsonl", overlay=again)
    assert second.returncode == 0, second.stdout[-3000:]
    for dataset in ("private", "mimic_iv"):
        ours, theirs = ((folder / r / f"cases/{dataset}.jsonl").read_bytes() for r in (results, "-r"))
        assert ours == theirs


def test_other_names_are_refused_before_anything_is_started(odd):
    run = odd.run("--", "smoke", overlay=overlay(odd, "refused", paths={"results": "r{dataset}", "state": "s"}))
    assert run.returncode != 0 and "paths.results: 'r{dataset}': " in run.stdout and "Traceback" not in run.stdout
    assert not (odd.folder / "r").exists() and not (odd.folder / "s").exists()


def test_a_project_whose_name_is_a_pattern_is_refused(tmp_path):
    folder = tmp_path / "{a}"
    folder.mkdir()
    run = Project(folder).run("-n", "--", "smoke")
    assert run.returncode != 0 and f"the folder of the project: '{folder}': a path cannot hold" in run.stdout


def test_a_missing_overlay_is_named(odd):
    run = odd.run("--", "smoke", overlay="no such")
    assert run.returncode != 0 and "config/no such.yaml" in run.stdout and "Traceback" not in run.stdout
