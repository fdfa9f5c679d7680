"""The command line: light, teaching, and clear about problems."""

import contextlib
import errno
import importlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from cdpr.files import write_gz, write_text
from cdpr.hospital import raw_files
from cdpr.pipeline import cli
from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.stages import STAGES
from cdpr.problems import disk_problem
from cdpr.records import FileDigest, RunRecord
from cdpr.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
LIGHT_ROOMS = ("settings", "cases", "hospital", "costs", "ingest", "llm", "environment", "agents", "credit")
HEAVY = ("torch", "verl", "mlflow", "transformers", "vllm")


def imported_by(code: str) -> set[str]:
    """Heavy packages that a fresh Python has loaded after running ``code``."""
    check = f"{code}\nimport sys\nprint(*(n for n in {(*HEAVY, 'pandas', 'numpy')!r} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_help_loads_nothing_heavy():
    assert imported_by("from cdpr.pipeline.cli import build_parser\nbuild_parser().format_help()") == set()


def test_reading_the_workflow_loads_nothing_heavy():
    assert imported_by("from cdpr.pipeline.experiment import Experiment\nExperiment({}).current_keys()") == set()


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
    out = ["--output", f"raw={tmp_path}/r"]
    assert cli.main(["make_hospital", *out, "--settings", str(tmp_path / "bad.yaml")]) == 2
    error = capsys.readouterr().err
    assert (
        error.startswith("cdpr make_hospital:") and "did you mean 'credit.beta'" in error and "Traceback" not in error
    )
    assert cli.main(["make_hospital", *out, "--settings", str(tmp_path / "absent.yaml")]) == 2
    assert "absent.yaml" in capsys.readouterr().err


def test_no_name_of_a_file_commands_the_terminal(tmp_path):
    """In output and in errors."""
    folder = tmp_path / "\x1b[2Jcases"
    for command in (
        ["check_export", str(folder), "--template", str(folder)],
        ["check_export", str(folder / "no\x9b2J")],
    ):
        done = subprocess.run([sys.executable, "-m", "cdpr.pipeline.cli", *command], capture_output=True, text=True)
        assert "\N{REPLACEMENT CHARACTER}[2Jcases" in done.stdout + done.stderr
        assert not {"\x1b", "\x9b"} & {*done.stdout, *done.stderr}


def test_a_missing_input_is_a_message_and_leaves_nothing(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text(f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n")
    absent = str(tmp_path / "no.jsonl")
    files = ["--input", f"warm_start_mimic_iv={absent}", "--output", f"preflight={tmp_path}/out/p.json"]
    done = cli.main(["check_headroom", *files, "--settings", str(tmp_path / "c.yaml")])
    assert done == 2 and "no.jsonl" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


DAMAGED = {"empty": b"", "cut": b'{"stage": "train', "text": b"soon", "list": b"[]", "bytes": b"\xff\xfe",
           "type": b'{"stage": 7, "settings": 7}', "start": b'{"started": "soon"}',
           "length": b'{"started": "2026-01-01T00:00:00Z", "wall_seconds": NaN}'}  # fmt: skip


@pytest.mark.parametrize(
    ("word", "message"), [("wy", "did you mean `cdpr why`"), ("zzzz", "there is no command 'zzzz' (")]
)
def test_an_unknown_command_gets_the_nearest_ones(capsys, word, message):
    with pytest.raises(SystemExit) as ended:
        cli.main([word])
    assert ended.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_of_the_workflow_is_named_with_its_remedy(tmp_path, capsys, damage):
    """Of a job's record, for all commands that read it, and of the settings that a run hands to its jobs."""
    mine = tmp_path / "c.yaml"
    mine.write_text(f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n")
    record = tmp_path / "results/evaluations/oracle/private.run.json"
    evaluation = record.with_name("private.jsonl")
    record.parent.mkdir(parents=True)
    record.write_bytes(DAMAGED[damage])
    evaluation.touch()
    for command in (["verify"], ["why", str(record)], ["rebuild_tracking"]):
        assert cli.main([*command, "--settings", str(mine)]) == 2, command
        error = capsys.readouterr().err
        assert "run.json: no run.json (" in error and "remove it and run snakemake again" in error, command
        assert len(error.splitlines()) == 1 and "Traceback" not in error
    plan = Experiment(load_settings(str(mine)))
    plan.write_settings()
    resolved = Path(plan.resolved_settings)
    whole = resolved.read_bytes()
    for content in (DAMAGED[damage], whole[:-9], whole.replace(b'"candidates": 4', b'"candidates": 5')):
        resolved.write_bytes(content)
        assert cli.main(["verify", "--settings", str(resolved)]) == 2
        error = capsys.readouterr().err
        assert str(resolved) in error and "start the same snakemake command again" in error and "Traceback" not in error
        plan.write_settings()
        assert resolved.read_bytes() == whole


def test_why_answers_for_every_file_of_a_result_and_names_near_ones(tmp_path, capsys):
    """A file of a table, a figure, a file in an output folder, in results that have been moved; then names that no job
    has written."""
    mine, results = tmp_path / "c.yaml", tmp_path / "results"
    mine.write_text(f"paths: {{results: {results}, state: {tmp_path}/state}}\n")
    plan = Experiment(load_settings(str(mine)))
    for stage, files in (("write_main_table", ("tables/main_results.csv", "tables/main_results.md")),
                         ("plot_accuracy_cost", ("figures/accuracy_cost.png",)),
                         ("write_inspector", ("inspector",))):  # fmt: skip
        for file in files:
            path = results / file if "." in file else results / file / "data/index.js"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("made")
        outputs = {str(n): FileDigest(path=f"elsewhere/{file}", sha256="0" * 64) for n, file in enumerate(files)}
        made = {"parameters": plan.parameters(stage, {}), "code_digest": plan.code(stage, {})}
        record = RunRecord(stage=stage, run_key=plan.key(stage), outputs=outputs, **made)
        (results / files[0]).with_suffix(".run.json").write_text(record.model_dump_json())

    def why(file: str) -> tuple[int, str]:
        code = cli.main(["why", str(results / file), "--settings", str(mine)])
        told = capsys.readouterr()
        return code, told.out + told.err

    for file in ("tables/main_results.csv", "tables/main_results.md", "tables/main_results.run.json",
                 "figures/accuracy_cost.png", "inspector", "inspector/data/index.js"):  # fmt: skip
        assert why(file) == (0, "nothing has changed: this result is current\n"), file
    for file, near in (("tables/main_table.md", "tables/main_results.md"),
                       ("/accuracy_cost.pdf", "figures/accuracy_cost.png"),
                       ("tables/main_result.run.json", "tables/main_results")):  # fmt: skip
        code, error = why(file)
        assert code == 2 and len(error.splitlines()) == 1 and str(results / near) in error, error


@contextlib.contextmanager
def disk_of(size, tmp_path):
    """A folder on a disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can mount a disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def full_disk(tmp_path):
    """A folder on a disk of its own that has no room left."""
    with disk_of("64k", tmp_path) as place:
        (place / "results").mkdir()
        with contextlib.suppress(OSError):
            (place / "filler").write_bytes(bytes(2**17))
        yield place


def test_a_disk_that_fills_up_during_an_import_is_no_damaged_table(tmp_path):
    from cdpr.ingest.attrition import Attrition
    from cdpr.ingest.mimic_tables import Tables

    counts, query = Attrition("mimic_iv"), "CREATE TABLE large AS SELECT random() FROM range(1000000)"
    with disk_of("3m", tmp_path) as state:
        tables = Tables(tmp_path / "raw", state / "tables", counts)
        with tables, pytest.raises(Exception) as caught:
            list(tables.rows(query))
    what, _, remedy = cli.explain(caught.value).splitlines()
    assert what == "No space left on device" and remedy.startswith("Free space there, or ")


def by_name(folder):
    write_text(folder / "a.json", "x" * 2**16)


def by_gzip(folder):
    write_gz(folder / "a.gz", [os.urandom(2**16)])


def by_appending(folder):
    with (folder / "a.jsonl").open("ab", buffering=0) as file:
        file.write(b"x" * 2**16)


def by_sqlite(folder):
    with contextlib.closing(sqlite3.connect(folder / "a.db")) as database:
        database.execute("CREATE TABLE a AS SELECT randomblob(65536)")


def by_torch(folder):
    import torch

    torch.save(torch.rand(2**14), folder / "a.pt")


def by_safetensors(folder):
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.rand(2**14)}, folder / "a.safetensors")


WRITERS = (by_name, by_gzip, by_appending, by_sqlite, by_torch, by_safetensors)


@pytest.mark.parametrize("full", ["results", "state", "tmp"])
@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_the_disk_that_is_full_is_named_whoever_writes(full_disk, tmp_path, capsys, monkeypatch, write, full):
    """Of three disks that a job writes to only one is full: no error of a writer tells which."""
    folders = {name: tmp_path / name for name in ("results", "state", "tmp")} | {full: full_disk / full}
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folders["tmp"]))
    (tmp_path / "c.yaml").write_text(f"paths: {{results: {folders['results']}, state: {folders['state']}}}\n")
    monkeypatch.setattr(cli, "run_jobs", lambda *_, **__: write(folders[full]))
    output = f"md={folders['results']}/hospital"
    assert cli.main(["make_hospital", "--output", output, "--settings", str(tmp_path / "c.yaml")]) == 2
    what, where, remedy = capsys.readouterr().err.splitlines()
    assert what == "cdpr make_hospital: No space left on device" and where.startswith(str(folders[full]))
    assert remedy.startswith("Free space there, or ")


@pytest.mark.parametrize("error", [
    OSError(28, "No space left"), OSError(122, "Disk quota exceeded", "/r/x"), OSError(30, "Read-only", "/r/x"),
    PermissionError(13, "Permission denied", "/r/x"), sqlite3.OperationalError("database or disk is full"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 326656 vs 326548"),
])  # fmt: skip
def test_errors_of_disks_say_what_where_and_what_to_do(error):
    _, where, remedy = cli.explain(error).splitlines()
    assert where == (
        "/r/x" if getattr(error, "filename", None) else "the disk of the results, of the state, or of temporary files"
    )
    assert "paths.results and paths.state" in remedy and remedy.endswith("then the same command goes on.")


@pytest.mark.parametrize(("where", "remedy"), [
    ("~/.cache/snakemake", "set HOME to a folder"), ("~", "set HOME to a folder"),
    ("~/study/results/a", "paths.results"), (None, "shared memory"),
])  # fmt: skip
def test_the_remedy_names_what_cannot_be_written(where, remedy, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "/dev/shm")
    error = PermissionError(13, "Permission denied", where and os.path.expanduser(where))
    _, named, last = cli.explain(error).splitlines()
    assert named == (os.path.expanduser(where) if where else "/dev/shm") and remedy in last
    assert ("paths.results" in last) == (remedy == "paths.results")


def test_shared_memory_that_is_full_is_named_though_the_error_names_no_file(monkeypatch):
    """Its disk is looked at only where no other folder is full."""
    full = {"/dev/shm"}
    monkeypatch.setattr(os.path, "exists", lambda path: True)
    room = lambda path: SimpleNamespace(free=0 if str(path) in full else 2**32)  # noqa: E731
    monkeypatch.setattr(shutil, "disk_usage", room)
    _, where, remedy = disk_problem(errno.ENOSPC, None, ["/r", "/s"]).splitlines()
    assert where == "/dev/shm" and remedy.startswith("Free space there, or start the container with shared memory")
    full.add("/s")
    _, where, remedy = disk_problem(errno.ENOSPC, None, ["/r", "/s"]).splitlines()
    assert where == "/s" and "paths.results" in remedy


def test_undeclared_settings_are_an_error(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(raw_files, "make_hospital", lambda settings, job: settings.credit.beta)
    (tmp_path / "c.yaml").write_text(f"paths: {{results: {tmp_path}/results, state: {tmp_path}/state}}\n")
    arguments = ["make_hospital", "--output", f"md={tmp_path}/ready", "--settings", str(tmp_path / "c.yaml")]
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert "reads the setting credit, which is not declared: add credit to `reads` of make_hospital" in error


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
