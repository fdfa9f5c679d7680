"""The lock, which `make env` installs without resolving anything."""

from __future__ import annotations

import runpy
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked_versions(*files: str) -> dict[str, str]:
    lines = [line.partition("#")[0].strip() for file in files for line in (ROOT / file).read_text().splitlines()]
    return {canonicalize_name(r.name): next(iter(r.specifier)).version for r in map(Requirement, filter(None, lines))}


@pytest.mark.parametrize(("extra", "files"), [("dev", ()), ("cluster", ("envs/cluster.txt",))])
def test_the_lock_names_everything_that_the_package_needs_in_versions_that_serve(extra, files):
    if extra == "cluster":
        pytest.importorskip("snakemake_executor_plugin_slurm", reason="make cluster")
    locked = locked_versions("requirements.lock", *files)
    assert len(locked) > 100
    needs = PROJECT["dependencies"] + PROJECT["optional-dependencies"][extra]
    waiting, seen = [(canonicalize_name(r.name), frozenset(r.extras)) for r in map(Requirement, needs)], set()
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen or name == "torch":  # which is installed first, with what it needs
            continue
        seen.add((name, extras))
        assert name in locked, f"the lock does not name {name}"
        for needed in map(Requirement, metadata.requires(name) or ()):
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
                continue
            key = canonicalize_name(needed.name)
            assert key in locked, f"{name} needs {needed}, which the lock does not name"
            assert needed.specifier.contains(locked[key], prereleases=True), f"{name} needs {needed}: {locked[key]}"
            waiting.append((key, frozenset(needed.extras)))
    assert len({name for name, _ in seen}) > 100, "the walk went somewhere"


def test_the_conda_environment_is_that_of_the_lock():
    """Snakemake copies its file, so that it cannot point at the lock."""
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if line and line[0] != "#"]
    parts = yaml.safe_load((ROOT / "envs/cdpr.yaml").read_text())["dependencies"]
    assert parts == ["python=3.11", "pip", {"pip": lines}]


def test_uv_installs_from_the_indexes_that_pip_is_configured_for():
    uv_variables = runpy.run_path(str(ROOT / "envs/install.py"))["uv_variables"]
    configuration = (
        "global.extra-index-url='https://one.example/simple\\nhttps://two.example/simple'\n"
        "global.timeout='60'\nglobal.find-links='/old'\n:env:.find-links='/wheels /more'\n"
    )
    assert uv_variables(configuration) == {
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INDEX": "https://one.example/simple https://two.example/simple",
        "UV_FIND_LINKS": "/wheels,/more",
    }
    assert uv_variables("") == {"UV_INDEX_STRATEGY": "unsafe-best-match"}
