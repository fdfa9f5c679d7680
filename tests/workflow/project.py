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

# Half of what a planning takes is to import Snakemake with its plugins, so `Project.run` forks a process that has.
_SNAKEMAKES = multiprocessing.get_context("forkserver")
_SNAKEMAKES.set_forkserver_preload(["snakemake.cli"])


def _snakemake(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], said: str) -> None:
    """The command `snakemake` in a fork; its exit code is that of the process."""
    output = os.open(said, os.O_WRONLY)
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
    """A copy of the project whose own sources are used; a folder without one gets one."""

    def __init__(self, folder: Path):
        self.folder = folder
        for part in () if (folder / "Snakefile").exists() else PARTS:
            source, ignored = ROOT / part, shutil.ignore_patterns("__pycache__", "*.egg-info")
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=ignored)
            else:
                shutil.copy(source, folder / part)
        # With bytecode: every process of this copy would compile it anew.
        left = ("OMP_", "PYTEST", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left)}
        self.environment = {**kept, "PYTHONPATH": str(folder / "src")}

    def arguments(self, *more: str, overlay: str = "ci") -> list[str]:
        """What follows `snakemake`. `--config` and what comes after it come last."""
        at = more.index("--config") if "--config" in more else len(more)
        cores = () if "--cores" in more else ("--cores", "2")
        return [*more[:at], "--configfile", f"config/{overlay}.yaml", *cores, *more[at:]]

    def command(self, *arguments: str, overlay: str = "ci") -> list[str]:
        return [sys.executable, "-m", "snakemake", *self.arguments(*arguments, overlay=overlay)]

    def run(self, *arguments: str, overlay: str = "ci") -> subprocess.CompletedProcess[str]:
        """Run Snakemake; what it says, whatever comes of it."""
        with tempfile.NamedTemporaryFile() as said:
            given = self.arguments(*arguments, overlay=overlay)
            process = _SNAKEMAKES.Process(target=_snakemake, args=(given, self.folder, self.environment, said.name))
            process.start()
            process.join()
            return subprocess.CompletedProcess(given, process.exitcode, Path(said.name).read_text("utf-8"))

    def snakemake(self, *arguments: str) -> str:
        """Run Snakemake to its end; what it says."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def would_run(self, *more: str) -> dict[str, int]:
        """Jobs that the next run would do, by rule."""
        text = self.snakemake("-n", *more)
        if "Nothing to be done" in text:
            return {}
        table = text.partition("Job stats:")[2].partition("total")[0]
        return {name: int(count) for name, count in re.findall(r"^([a-z_]+) +(\d+)$", table, re.MULTILINE)}

    def read(self, name: str) -> bytes:
        return (self.folder / RESULTS / name).read_bytes()

    def edit(self, name: str, change) -> None:
        path = self.folder / name
        path.write_text(change(path.read_text()))
