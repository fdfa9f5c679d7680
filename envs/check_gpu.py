"""Whether the GPU environment can be installed: `make check-gpu-env`. Resolves the lock for both Pythons with uv, which
reads what packages say of themselves and downloads none, and holds it against what this package asks for."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
LOCK, AFTER = HERE / "verl-gpu.txt", HERE / "verl-gpu-after.txt"
INTENDED = {"verl": "0.9.1", "vllm": "0.24.0", "torch": "2.11.0", "transformers": "5.9.0"}


def pins(path: Path, python: str) -> dict[str, str]:
    """Version by name of a lock's lines that hold for a Python version."""
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    named = [Requirement(line) for line in lines if line]
    holds = {"python_version": python}
    return {canonicalize_name(r.name): re.sub("^==", "", str(r.specifier)) for r in named
            if r.marker is None or Marker(str(r.marker)).evaluate(holds)}  # fmt: skip


def problems(python: str) -> list[str]:
    """What is wrong with the environment of a Python version; empty: nothing."""
    locked = pins(LOCK, python)
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate",
               "--python-version", python, "--python-platform", "x86_64-manylinux_2_28", str(LOCK)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return [done.stderr.strip()]
    resolved = dict(line.split("==") for line in done.stdout.split())
    missing = [f"the lock lacks {name}=={resolved[name]}" for name in sorted(resolved.keys() - locked.keys())]
    wrong = [f"{name} is {locked.get(name)}, not {version}" for name, version in INTENDED.items()
             if locked.get(name) != version]  # fmt: skip
    whole = locked | pins(AFTER, python)
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for need in map(Requirement, project["dependencies"]):
        if not need.specifier.contains(whole.get(canonicalize_name(need.name), "0"), prereleases=True):
            wrong.append(f"this package asks for {need}, the lock has {whole.get(canonicalize_name(need.name))}")
    return missing + wrong


if __name__ == "__main__":
    wrong = {python: problems(python) for python in ("3.11", "3.12")}
    for python, lines in wrong.items():
        print(f"Python {python}: " + ("\n  ".join(["cannot be installed:", *lines]) if lines else "resolves"))
    sys.exit(any(wrong.values()))
