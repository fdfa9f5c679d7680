"""The command line: light, teaching, and clear about problems."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cdpr import cli
from cdpr.settings import Settings
from cdpr.tracking import mlflow_index
from cdpr.workflow.stages import STAGES

ROOT = Path(__file__).resolve().parents[2]
LIGHT_ROOMS = ("settings", "cases", "hospital", "costs", "ingest", "llm", "environment", "agents", "credit")
HEAVY = ("torch", "verl", "mlflow", "transformers", "vllm")


def imported_by(code: str) -> set[str]:
    """Heavy packages that a fresh Python has loaded after running ``code``."""
    check = f"{code}\nimport sys\nprint(*(n for n in {(*HEAVY, 'pandas', 'numpy')!r} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_help_loads_nothing_heavy():
    assert imported_by("from cdpr.cli import build_parser\nbuild_parser().format_help()") == set()


def test_reading_the_workflow_loads_nothing_heavy():
    assert imported_by("from cdpr.workflow.plan import Plan\nPlan({}).current_keys()") == set()


def test_rooms_up_to_credit_import_without_learning_libraries():
    walk = (
        "import importlib, pkgutil\n"
        f"for room in {LIGHT_ROOMS!r}:\n"
        "    package = importlib.import_module('cdpr.' + room)\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not module.name.startswith('cdpr.llm.'):\n"
        "            importlib.import_module(module.name)\n"
    )
    assert imported_by(walk) & set(HEAVY) == set()


@pytest.mark.parametrize("name", STAGES)
def test_every_stage_has_a_function_and_teaching_help(name, capsys):
    module, _, function = STAGES[name].target(Settings()).partition(":")
    assert callable(getattr(importlib.import_module(module), function))
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert "example:" in text and "reads the settings" in text and f"cdpr {name}" in text


def test_problems_of_the_user_are_one_message(tmp_path, capsys):
    (tmp_path / "bad.yaml").write_text("credit: {betta: 1}\n")
    out = ["--ready", str(tmp_path / "r")]
    assert cli.main(["init_tracking", *out, "--settings", str(tmp_path / "bad.yaml")]) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("cdpr init_tracking:") and "did you mean 'credit.beta'" in error and "Traceback" not in error
    )
    assert cli.main(["init_tracking", *out, "--settings", str(tmp_path / "absent.yaml")]) == 2
    assert "absent.yaml" in capsys.readouterr().err


def test_no_name_of_a_file_commands_the_terminal(tmp_path):
    """In output and in errors."""
    folder = tmp_path / "\x1b[2Jcases"
    for command in (
        ["check_export", str(folder), "--template", str(folder)],
        ["check_export", str(folder / "no\x9b2J")],
    ):
        done = subprocess.run([sys.executable, "-m", "cdpr.cli", *command], capture_output=True, text=True)
        assert "\N{REPLACEMENT CHARACTER}[2Jcases" in done.stdout + done.stderr
        assert not {"\x1b", "\x9b"} & {*done.stdout, *done.stderr}


def test_a_missing_input_is_a_message_and_leaves_nothing(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n")
    absent = str(tmp_path / "no.jsonl")
    files = ["--warm_start_mimic_iv", absent, "--preflight", str(tmp_path / "out" / "p.json")]
    done = cli.main(["check_headroom", *files, "--settings", str(tmp_path / "c.yaml")])
    assert done == 2 and "no.jsonl" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_undeclared_settings_are_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(mlflow_index, "init_tracking", lambda settings, job: settings.credit.beta)
    (tmp_path / "c.yaml").write_text(f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n")
    arguments = ["init_tracking", "--ready", str(tmp_path / "ready"), "--settings", str(tmp_path / "c.yaml")]
    assert cli.main(arguments) == 2
    assert "Settings.credit" in capsys.readouterr().err


def test_no_command_in_the_documentation_gives_a_target_away():
    """`--configfile` and `--config` take every word that follows: a target behind them needs `--` before it."""
    pages = [
        ROOT / "README.md",
        ROOT / "config.yaml",
        ROOT / "Makefile",
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("config/**/*.*"),
    ]
    given = re.compile(
        r"--config(?:file)? +(?:(?:\S+\.yaml|\w+='[^']*') +)+(?!--|\d?>|\)|#|&|\||\.\.\.)(\w+)(?![\w.]*[=/.])"
    )
    found = [(page.name, *match.groups()) for page in pages
             for match in given.finditer(page.read_text(encoding="utf-8").replace("\\\n", " "))]  # fmt: skip
    assert not found
    assert given.search("snakemake --configfile a.yaml config/b.yaml target").group(1) == "target"
    assert given.search("snakemake --config training='{steps: 2}' target").group(1) == "target"
    assert not given.search("snakemake --configfile a.yaml --config training='{steps: 2}' -- target")
