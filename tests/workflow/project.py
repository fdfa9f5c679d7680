"""A copy of the project to try the workflow on."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "config.yaml", "config", "rules", "profiles", "workflow", "envs", "src")
RESULTS = "results/ci"


class Project:
    """A copy of the project whose own sources are used."""

    def __init__(self, folder: Path):
        self.folder = folder
        for part in PARTS:
            source, ignored = ROOT / part, shutil.ignore_patterns("__pycache__", "*.egg-info")
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=ignored)
            else:
                shutil.copy(source, folder / part)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "PYTEST"))}
        self.environment = {**kept, "PYTHONPATH": str(folder / "src")}

    def command(self, *arguments: str, overlay: str = "ci") -> list[str]:
        snakemake = [sys.executable, "-m", "snakemake", *arguments, "--configfile", f"config/{overlay}.yaml"]
        return [*snakemake, *(() if "--cores" in arguments else ("--cores", "2"))]

    def run(self, *arguments: str, overlay: str = "ci") -> subprocess.CompletedProcess[str]:
        """Run Snakemake; what it says, whatever comes of it. `--config` and what follows it come last."""
        at = arguments.index("--config") if "--config" in arguments else len(arguments)
        command = [*self.command(*arguments[:at], overlay=overlay), *arguments[at:]]
        return subprocess.run(command, cwd=self.folder, env=self.environment, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip

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
