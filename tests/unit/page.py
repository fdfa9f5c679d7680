"""Tables and figures of the results page, as the rules list them."""

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cdpr.job import PageEntry
from cdpr.pipeline.stages import TABLES

ROOT = Path(__file__).parents[2]
_SNAKEFILE = """
include: "{root}/Snakefile"
files = {{part["rule"]: [experiment.resolved(file) for file in made(part["rule"])] for part in PAGE}}
print("PAGE", json.dumps([part | {{"outputs": files[part["rule"]]}} for part in json.loads(page())]))
"""


def page(*overlays: str) -> dict[str, PageEntry]:
    """The parts of the page by rule, in its order. ``overlays`` are files after ``--configfile``."""
    parts = {part["rule"]: {n: part[n] for n in part.keys() - {"rule", "outputs"}} for part in _parts(*overlays)}
    return {rule: PageEntry(**part, module=TABLES.get(rule.removeprefix("write_"), "")) for rule, part in parts.items()}


def outputs(*overlays: str) -> dict[str, list[str]]:
    """Files of these parts by rule."""
    return {part["rule"]: part["outputs"] for part in _parts(*overlays)}


@functools.cache
def _parts(*overlays: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Snakefile").write_text(_SNAKEFILE.format(root=ROOT))
        more = ["--configfile", *overlays] if overlays else []
        command = [sys.executable, "-m", "snakemake", "-d", folder, "-s", f"{folder}/Snakefile", "--list-rules", *more]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("PAGE ")]
    return json.loads(line.removeprefix("PAGE "))
