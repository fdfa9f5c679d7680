"""Jobs in a conda environment (`--sdm conda`), which a stand-in makes as conda's manual says."""

from __future__ import annotations

import sys
import textwrap

from project import Project

# `conda env create` writes the requirements of pip beside the file of the environment, and runs pip there. The stand-in
# has pip look whether all are installed where the tests run; the environment takes its packages from there, but for
# those that are installed as links to a checkout.
CONDA = """#!{python}
import json, pathlib, subprocess, sys, sysconfig, tempfile, venv
import yaml

def option(name):
    return pathlib.Path(sys.argv[sys.argv.index(name) + 1])

if sys.argv[1:] == ["--version"]:
    print("conda 25.9.1")
elif sys.argv[1:] == ["info", "--json"]:
    print(json.dumps({{"conda_prefix": "{prefix}", "platform": "linux-64"}}))
elif sys.argv[1:3] == ["config", "--get"]:
    print(json.dumps({{"get": {{"channel_priority": "strict"}}}}))
elif sys.argv[1:3] == ["env", "create"]:
    file, prefix = option("--file"), option("--prefix")
    [pip] = [part["pip"] for part in yaml.safe_load(file.read_text())["dependencies"] if isinstance(part, dict)]
    with tempfile.NamedTemporaryFile("w", dir=file.parent, suffix=".txt") as requirements:
        requirements.write("\\n".join(pip))
        requirements.flush()
        subprocess.run([sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--dry-run",
                        "-r", requirements.name], cwd=file.parent, check=True, stdout=sys.stderr)
    venv.create(prefix, symlinks=True)
    [packages] = prefix.glob("lib/python*/site-packages")
    mark = "import pathlib, sys; pathlib.Path(sys.prefix, 'used').touch()"
    (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\\n" + mark)
elif sys.argv[1] != "clean":
    sys.exit(f"no such command: {{sys.argv}}")
"""


def test_a_job_runs_in_the_environment_that_conda_makes(tmp_path):
    prefix = tmp_path / "conda"
    (prefix / "bin").mkdir(parents=True)
    conda = prefix / "bin/conda"
    conda.write_text(CONDA.format(python=sys.executable, prefix=prefix))
    conda.chmod(0o755)
    activate = 'export CONDA_PREFIX="$1" PATH="$1/bin:{}/bin:/usr/bin:/bin"\n'
    (prefix / "bin/activate").write_text(textwrap.dedent(activate).format(prefix))
    (tmp_path / "my project").mkdir()
    project = Project(tmp_path / "my project")
    project.environment["PATH"] = f"{prefix}/bin:/usr/bin:/bin"
    project.environment["PYTHONPATH"] = ""  # as where this package is installed from the checkout
    project.snakemake("make_hospital", "--sdm", "conda")
    assert (project.folder / "results/ci/raw/run.json").exists()
    assert list(project.folder.glob(".snakemake/conda/*/used")), "the job ran elsewhere"
