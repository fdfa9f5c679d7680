"""A copy of the project to try the workflow on."""

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "config.yaml", "config", "rules", "profiles", "workflow", "envs", "src")
RESULTS = "results/ci"

# Half of a planning is the import of Snakemake and its plugins, so `Project.run` forks a process that has done it.
_SNAKEMAKES = multiprocessing.get_context("forkserver")
_SNAKEMAKES.set_forkserver_preload(["snakemake.cli"])


def _snakemake(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], output_file: str) -> None:
    """Run the command `snakemake` in a fork; the process ends with its exit code."""
    output = os.open(output_file, os.O_WRONLY)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path.insert(0, environment["PYTHONPATH"])
    sys.argv = ["snakemake", *arguments]
    from snakemake.cli import main

    main()


class Project:
    """A copy of the project, with its own sources; made in the folder if there is none."""

    def __init__(self, folder: Path):
        self.folder = folder
        for part in () if (folder / "Snakefile").exists() else PARTS:
            source, ignored = ROOT / part, shutil.ignore_patterns("__pycache__", "*.egg-info")
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=ignored)
            else:
                shutil.copy(source, folder / part)
        # Bytecode is allowed: otherwise every process would compile the copy again.
        prefixes = ("OMP_", "PYTEST", "PYTHONDONTWRITEBYTECODE")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(prefixes)}
        self.environment = {**inherited, "PYTHONPATH": str(folder / "src")}

    def arguments(self, *more: str, overlay: str = "ci") -> list[str]:
        """Arguments of `snakemake`; `--config` and its values, or `--` and the targets, come last."""
        at = next((more.index(word) for word in ("--config", "--") if word in more), len(more))
        cores = () if "--cores" in more else ("--cores", "2")
        return [*more[:at], "--configfile", f"config/{overlay}.yaml", *cores, *more[at:]]

    def command(self, *arguments: str, overlay: str = "ci") -> list[str]:
        return [sys.executable, "-m", "snakemake", *self.arguments(*arguments, overlay=overlay)]

    def run(self, *arguments: str, overlay: str = "ci") -> subprocess.CompletedProcess[str]:
        """Run Snakemake; returns its output and exit code."""
        with tempfile.NamedTemporaryFile() as output_file:
            command_line = self.arguments(*arguments, overlay=overlay)
            process = _SNAKEMAKES.Process(
                target=_snakemake, args=(command_line, self.folder, self.environment, output_file.name)
            )
            process.start()
            process.join()
            return subprocess.CompletedProcess(
                command_line, process.exitcode, Path(output_file.name).read_text("utf-8")
            )

    def snakemake(self, *arguments: str) -> str:
        """Run Snakemake, which must succeed; returns its output."""
        result = self.run(*arguments)
        assert result.returncode == 0, result.stdout[-4000:]
        return result.stdout

    def call(self, *arguments: str, overlay: str = "ci") -> str:
        """Run the command `cdpr`, which must succeed; returns its output."""
        command = [sys.executable, "-m", "cdpr.pipeline.cli", *arguments, "--configfile", f"config/{overlay}.yaml"]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    def would_run(self, *more: str) -> dict[str, int]:
        """Number of jobs of the next run by rule; those of tables and figures by stage."""
        from cdpr.pipeline.page import stage_of_result  # here, for the fork must take that of the project

        text = self.snakemake("-n", *more)
        if "Nothing to be done" in text:
            return {}
        table = text.partition("Job stats:")[2].partition("total")[0]
        jobs = {name: int(count) for name, count in re.findall(r"^([a-z_]+) +(\d+)$", table, re.MULTILINE)}
        results = [f"{kind}s/{name}" for kind, name in re.findall(r"wildcards: (table|figure)=(\w+)", text)]
        assert len(results) == sum(jobs.pop(rule, 0) for rule in ("write_table", "plot_figure", "plot_points"))
        return jobs | {stage_of_result(path): 1 for path in results}

    def read(self, name: str) -> bytes:
        return (self.folder / RESULTS / name).read_bytes()

    def edit(self, name: str, change) -> None:
        path = self.folder / name
        path.write_text(change(path.read_text()))
