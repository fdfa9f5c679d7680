"""The package as a library: the wheel in an empty folder, its public names, and the examples."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from toy import ToyPolicy, appendicitis, group

import cdpr
from cdpr.environment import DiagnosticEnvironment
from cdpr.report import style
from cdpr.report.methods import list_methods
from cdpr.settings import resolve_variant
from cdpr.training.algorithm import Context, open_algorithm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The package as its wheel installs it, alone in a folder: the checkout is not on the path of :func:`run`."""
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "wheel"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    build = f"from setuptools.build_meta import build_wheel; print(build_wheel({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.unpack_archive(next(folder.glob("*.whl")), folder / "installed", "zip")
    return folder / "installed"


@pytest.fixture
def run(wheel, tmp_path):
    """Run Python in an empty folder with the wheel and the packages of this environment, but without the checkout."""

    def call(*arguments: str, ok: bool = True) -> str:
        environment = {"PYTHONPATH": f"{wheel}:{sysconfig.get_path('purelib')}", "PATH": os.environ["PATH"],
                       "HOME": str(tmp_path)}  # fmt: skip
        # -S: no .pth file, and so no link to the checkout.
        done = subprocess.run([sys.executable, "-S", *arguments], cwd=tmp_path, env=environment, capture_output=True,
                              text=True)  # fmt: skip
        assert (done.returncode == 0) == ok, done.stdout + done.stderr
        return done.stdout + done.stderr

    return call


def test_the_wheel_is_the_one_that_runs_and_holds_the_whole_package(run, wheel):
    assert run("-c", "import cdpr; print(cdpr.__file__)").strip() == str(wheel / "cdpr/__init__.py")
    files = [path.relative_to(ROOT / "src") for path in (ROOT / "src").rglob("*")
             if path.is_file() and path.suffix != ".pyc" and ".egg-info" not in str(path)]  # fmt: skip
    assert len(files) > 200 and [file for file in files if not (wheel / file).is_file()] == []


EXAMPLES = {
    "quick_start": r"(?:(?:True|False) \d+ \d+\.\d\d USD, utility -?\d\.\d\d\n){10}",
    "evaluate_my_agent": r"(?:.* USD, utility .*\n){10}utility -?\d\.\d+, accuracy \d+%\n",
    "train_cdpr": r"(?s).*step 4.*cdpr_policy: utility -?\d\.\d+ on 10 test cases\n",
    "cdpr_reward_in_trl": r"(?s).*'reward': '-?\d.*'train_loss': .*",
}
OPTIONAL = {"cdpr_reward_in_trl": "trl"}
"""Packages of examples that need more than the environment has."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_runs_in_an_empty_folder(run, name):
    example = ROOT / f"examples/{name}.py"
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name])
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 60
    assert re.fullmatch(EXAMPLES[name], run(str(example)))


def test_commands_that_need_no_project_work_in_an_empty_folder_and_others_say_where_to_go(run, tmp_path):
    cli = ("-m", "cdpr.pipeline.cli")
    assert run(*cli, "--version") == f"cdpr {cdpr.__version__}\n"
    run(*cli, "check_export", "--template", "cases")
    assert run(*cli, "check_export", "cases")
    (tmp_path / "mine.yaml").write_text("utility: {lambda_test: 0.1}\n")
    for command in (("systems",), ("evaluate_served", "doctor"), ("spend",)):
        message = run(*cli, *command, "--settings", "mine.yaml", ok=False)
        assert "run from the root of the checkout" in message and "Traceback" not in message


def test_every_room_can_be_imported_in_an_empty_folder(run):
    """All modules but those whose packages are optional."""
    optional = ("cdpr.training.verl",)
    code = (
        "import importlib, pkgutil, cdpr\n"
        "for module in pkgutil.walk_packages(cdpr.__path__, 'cdpr.'):\n"
        f"    if not module.name.startswith({optional!r}) and module.name != 'cdpr.__main__':\n"
        "        importlib.import_module(module.name)\n"
        "print(cdpr.Settings().agents, len(cdpr.load_settings().models))\n"
    )
    assert run("-c", code).strip() == "{} 0"


def test_public_names_are_those_of_the_stub_and_of_the_reference():
    for name, module in cdpr.PUBLIC.items():
        assert getattr(cdpr, name) is getattr(importlib.import_module(module), name) and name in dir(cdpr)
    documented = re.findall(r"^::: cdpr\.(\w+)$", (ROOT / "docs/reference/api.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(documented) == sorted(cdpr.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        cdpr.Nothing  # noqa: B018


def test_importing_the_package_loads_nothing_else(run):
    code = "import sys, cdpr; print([n for n in sys.modules if n.startswith('cdpr') or n in ('torch', 'pydantic')])"
    assert run("-c", code).strip() == "['cdpr']"


def test_a_rule_from_outside_has_the_advantages_of_its_formula_and_a_colour_of_its_own(monkeypatch):
    """RLOO is the mean difference to each other trajectory of the group."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    settings = cdpr.load_settings(ROOT / "config.yaml", ROOT / "examples/my_algorithm.yaml")
    resolved, env = resolve_variant(settings, "rloo"), DiagnosticEnvironment(settings.environment)
    rule = open_algorithm(Context(resolved, env, ToyPolicy(), ToyPolicy, 0))
    for seed in range(5):
        rollouts = group(env, ToyPolicy(), appendicitis(), 5, seed)
        scored = asyncio.run(rule.score_group(rollouts, 0))
        right = [float(trajectory.correct) for trajectory in rollouts]
        for i, row in enumerate(scored.decisions):
            exact = sum(right[i] - other for j, other in enumerate(right) if j != i) / 4
            assert row == pytest.approx([exact] * len(rollouts[i].steps))
    rows = {**settings.agents, **settings.experiments.variants}
    others = {row.look.colour for row in rows.values() if row.look}
    assert style.look_of(settings, "rloo").colour not in others
    [method] = [method for method in list_methods(settings, "accuracy_cost") if method.name == "rloo"]
    assert method.label == "RLOO" and len(method.runs) == len(settings.seeds)
