"""Files of credentialed data: for their owner alone, through every writer of a job and through copies."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cdpr.pipeline.experiment import Experiment
from cdpr.settings import SettingsError, parse_settings

WRITE = """
import shutil, sys
from pathlib import Path
from cdpr.files import write_bytes, write_csv, write_text
from cdpr.settings import parse_settings
from cdpr.pipeline.experiment import Experiment

marked, folder = sys.argv[1] == "True", Path(sys.argv[2])
Experiment(parse_settings({"data": {"private": {"credentialed": marked}}})).keep_private()
write_text(folder / "new/a.txt", "x")
write_bytes(folder / "b.bin", b"x")
write_csv(folder / "c.csv.gz", ["a"], [{"a": 1}])
shutil.copyfile(folder / "b.bin", folder / "copy")
shutil.copytree(folder / "new", folder / "tree")
"""


@pytest.mark.parametrize("marked", [True, False])
def test_what_a_job_writes_and_copies_is_for_its_owner_where_data_are_credentialed(tmp_path, marked):
    command = [sys.executable, "-c", WRITE, str(marked), str(tmp_path / "results")]
    subprocess.run(command, check=True, preexec_fn=lambda: os.umask(0o022))
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "results").rglob("*")}
    assert modes == ({True: 0o700, False: 0o600} if marked else {True: 0o755, False: 0o644})
    assert {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "results"]} == {
        True: 0o700 if marked else 0o755
    }


def test_folders_from_before_the_mark_are_closed_when_a_run_begins(tmp_path, monkeypatch):
    paths = {"results": str(tmp_path / "results"), "state": str(tmp_path / "state")}
    for path in paths.values():
        Path(path).mkdir(mode=0o755)
    experiment = Experiment(parse_settings({"paths": paths, "data": {"private": {"credentialed": True}}}))
    experiment.begin()
    assert [stat.S_IMODE(Path(path).stat().st_mode) for path in paths.values()] == [0o700, 0o700]
    monkeypatch.setattr(Path, "chmod", lambda *_: (_ for _ in ()).throw(PermissionError()))
    with pytest.raises(SettingsError, match=r"results: belongs to another user.*paths\.results"):
        Experiment(experiment.settings).begin()
