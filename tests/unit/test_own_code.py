"""Algorithms and agents of the user: what they read is in the run key, or an error that says what to declare."""

import subprocess
import sys
from pathlib import Path

import pytest

from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.run_key import code_digest, import_closure
from cdpr.pipeline.stages import STAGES
from cdpr.report.methods import main_methods
from cdpr.settings import Settings, SettingsError, merge, parse_settings
from cdpr.settings.section import UndeclaredSetting
from cdpr.settings.variants import restrict_to_algorithm

RULE = """
{head}
from cdpr.training.algorithms.grpo import Grpo
from cdpr.settings.section import Section, key


class Rule(Grpo):
    {body}
    class Options(Section):
        table: str = key("", "A file.")
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Write modules of the user, in a folder that Python searches, under names that no other test has."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def write(**modules: str) -> None:
        for name, text in modules.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    return write


def settings(tmp_path: Path, **changes) -> Settings:
    base = {"paths": {"results": str(tmp_path / "results"), "state": str(tmp_path / "state")}}
    return parse_settings(merge(base, changes))


def planned(tmp_path: Path, rule: str, **changes) -> Experiment:
    variants = {"x": {"label": "X", "change": {"training.algorithm": f"{rule}:Rule", **changes.pop("change", {})}}}
    return Experiment(settings(tmp_path, experiments={"variants": variants}, **changes))


def test_an_algorithm_that_reads_what_it_does_not_declare_is_an_error(tmp_path, own):
    own(mine_reads=RULE.format(head="", body="pass"),
        mine_declares=RULE.format(head="", body='reads = (*Grpo.reads, "credit.beta", "hospital.seed")'))  # fmt: skip
    for name, change in (("mine_reads", {"credit": {"beta": 0.7}}), ("mine_declares", {})):
        of = planned(tmp_path, name, **change)
        key = of.key("train_policy", run="x-seed0")
        readable = restrict_to_algorithm(of.settings_of("train_policy", {"run": "x-seed0"}))
        if name == "mine_declares":
            assert (readable.credit.beta, readable.hospital.seed) == (Settings().credit.beta, Settings().hospital.seed)
            for change in ({"credit": {"beta": 0.9}}, {"hospital": {"seed": 3}}):
                assert planned(tmp_path, name, **change).key("train_policy", run="x-seed0") != key
            with pytest.raises(UndeclaredSetting, match=r"credit\.horizon.*reads = \(.*\"credit\.beta\".*horizon"):
                getattr(readable.credit, "horizon", 0)  # a default does not hide it
        else:
            with pytest.raises(UndeclaredSetting, match=r'credit.*write `reads = \("training.normalise", "credit'):
                _ = readable.credit.beta
            with pytest.raises(UndeclaredSetting, match=r'comparators.*write `reads = .*"comparators'):
                _ = readable.comparators.correctness_weight
        with pytest.raises(UndeclaredSetting, match="save_every"):
            _ = readable.training.save_every  # in no run key


AGENT = """
from cdpr.agents.reference import ReferenceAgent


class Agent(ReferenceAgent):
    reads = {reads}

    def choose(self, state, seed):
        return None if self.settings.frameworks.md_agents.rounds == 1 else 0
"""


def test_an_agent_without_a_model_sees_and_keys_what_it_declares(tmp_path, own):
    own(agent_one=AGENT.format(reads=("frameworks.md_agents",)), agent_two=AGENT.format(reads=()))
    from cdpr.agents.build import build_agent

    def of(module: str, rounds: int) -> Experiment:
        entry = {"label": "Mine", "group": "reference", "acts": f"{module}:Agent"}
        return Experiment(settings(tmp_path, agents={"mine": entry}, frameworks={"md_agents": {"rounds": rounds}}))

    def key(module: str, rounds: int) -> str:
        return of(module, rounds).key("evaluate_agent", run="mine", dataset="mimic_iv")

    assert key("agent_one", 1) != key("agent_one", 2) and key("agent_two", 1) == key("agent_two", 2)
    for module in ("agent_one", "agent_two"):
        agent = build_agent(of(module, 1).settings, "mine", None, 0.0, "mimic_iv")
        if module == "agent_one":
            assert agent.choose(None, 0) is None
        else:
            with pytest.raises(UndeclaredSetting, match=r"frameworks.*`reads = \(\"frameworks"):
                agent.choose(None, 0)


def test_an_agent_of_a_group_of_its_own_needs_neither_model_nor_constructor(tmp_path, own):
    code = "import cdpr\n\n\nclass Mine(cdpr.Agent):\n    async def act(self, state, forced, seed):\n        ...\n"
    own(mine_alone=f"{code}    one_decoding = True\n", mine_undeclared=code)
    from cdpr.agents.build import build_agent

    def entry(module: str, group: str) -> Settings:
        return settings(tmp_path, agents={"mine": {"label": "Mine", "group": group, "acts": f"{module}:Mine"}})

    agent = build_agent(entry("mine_alone", "own"), "mine", None, 0.0, "mimic_iv")
    assert type(agent).__name__ == "Mine"
    [row] = [m for m in main_methods(entry("mine_alone", "own")) if m.name == "mine"]
    assert (row.runs, row.group, row.knows_hospital, row.learned) == (("mine",), "Own agents", False, True)
    with pytest.raises(SettingsError, match="write `group: own`"):
        entry("mine_alone", "open")
    with pytest.raises(SettingsError, match="one_decoding = True"):
        build_agent(entry("mine_undeclared", "own"), "mine", None, 0.0, "mimic_iv")


def test_helpers_of_the_user_are_code_of_the_rule_and_libraries_are_not(tmp_path, own):
    own(**{"helped": "import json, yaml\nfrom pack_h import helper\nfrom cdpr.credit import belief\n",
           "pack_h/__init__": "", "pack_h/helper": "from . import deeper\n", "pack_h/deeper": "X = 1\n",
           "stranger": "Y = 1\n"})  # fmt: skip
    closure = import_closure(["helped"])
    assert {"helped", "pack_h", "pack_h.helper", "pack_h.deeper", "cdpr.credit.belief"} <= {*closure}
    assert not {"json", "yaml", "stranger"} & {*closure}
    with pytest.raises(ModuleNotFoundError, match=r"no_such_module.*PYTHONPATH"):
        code_digest(["no_such_module"])


@pytest.mark.parametrize(
    ("code", "module"),
    [
        ("from cdpr import trajectory_score\n", "cdpr.credit.scores"),
        ("import cdpr\n\ncdpr.trajectory_score\n", "cdpr.credit.scores"),
        ("import cdpr as c\n\nc.trajectory_score\n", "cdpr.credit.scores"),
        ("from cdpr import Turn\n", "cdpr.environment"),
    ],
)
def test_public_names_of_the_package_are_code_of_the_module_that_has_them(own, code, module):
    name = f"public_{abs(hash(code))}"
    own(**{name: code})
    closure = import_closure([name])
    assert module in closure and ("cdpr.credit.scores" in closure) == (module == "cdpr.credit.scores")


def digest_in_new_process(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True,
                          env={"PYTHONPATH": f"{folder}:{Path(__file__).parents[2] / 'src'}", "PATH": ""})  # fmt: skip


def test_an_edited_helper_or_file_changes_the_digest(tmp_path):
    (tmp_path / "ruled.py").write_text('import rhelper\nFILES = ("table.csv",)\n')
    digests = []
    for helper, table in (("X = 1\n", "1"), ("X = 2\n", "1"), ("X = 2\n", "2"), ("X = 2  # why\n", "2")):
        (tmp_path / "rhelper.py").write_text(helper)
        (tmp_path / "table.csv").write_text(table)
        code = "from cdpr.pipeline.run_key import code_digest; print(code_digest(['ruled']))"
        digests.append(digest_in_new_process(tmp_path, code).stdout)
    assert len({*digests[:3]}) == 3 and digests[2] == digests[3] != ""


def test_a_data_file_named_by_an_option_is_in_the_key(tmp_path, own):
    own(optioned=RULE.format(head="", body="pass"))
    table, keys = tmp_path / "weights.csv", []
    for text in ("1", "2"):
        table.write_text(text)
        change = {"training.options.table": str(table)}
        keys.append(planned(tmp_path, "optioned", change=change).key("train_policy", run="x-seed0"))
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("name", "code", "error"),
    [
        ("at_import", "TABLE = open('data.csv').read()", "FILES"),
        ("by_pandas", "import pandas\nTABLE = pandas.read_csv('data.csv')", "FILES"),
        ("by_cdpr", "from cdpr.files import read_table\nTABLE = read_table('data.csv')", "FILES"),
        ("caught", "try:\n    TABLE = open('data.csv').read()\nexcept Exception:\n    pass", "FILES"),
        ("by_name", "import importlib\nimportlib.import_module('hid' + 'den')", "import"),
        ("declared", "FILES = ('data.csv', 'hidden.py')\nTABLE = open('data.csv').read()\n"
         "__import__('hid' + 'den')", ""),
        ("written", "open('note.txt', 'w').write('x')\nopen('note.txt').read()", ""),
        ("library", "import matplotlib.pyplot, numpy, pandas", ""),
    ],
)  # fmt: skip
def test_a_file_that_a_rule_reads_is_declared_or_an_error(tmp_path, name, code, error):
    (tmp_path / "data.csv").write_text("a,b\n1,2\n")
    (tmp_path / "hidden.py").write_text("X = 1\n")
    (tmp_path / f"{name}.py").write_text(RULE.format(head=code, body="pass"))
    change = {"training.algorithm": f"{name}:Rule"}
    run = ("from cdpr.settings import parse_settings, resolve_variant; from cdpr.pipeline import own_code; "
           f"s = parse_settings({{'experiments': {{'variants': {{'x': {{'label': 'X', 'change': {change}}}}}}}}}); "
           "own_code.watch(s); resolve_variant(s, 'x'); own_code.check()")  # fmt: skip
    ended = digest_in_new_process(tmp_path, run)
    if error:
        assert ended.returncode != 0 and "UndeclaredFile" in ended.stderr and error in ended.stderr
        assert f"the module {name} reads" in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr[-2000:]


@pytest.mark.parametrize("stage", ["ingest_dataset", "evaluate_agent"])
def test_an_importer_or_a_judge_that_reads_what_its_stage_does_not_declare_is_an_error(tmp_path, stage):
    """Both get the settings of the stage that calls them."""
    options = {"dataset": "private", "run": "warm_start"}
    seen = STAGES[stage].view(settings(tmp_path), options, stage)
    with pytest.raises(UndeclaredSetting, match=rf"hospital.*add hospital to `reads` of {stage}"):
        _ = seen.hospital


def test_agents_that_know_the_synthetic_hospital_are_in_no_table_of_ones_own_cases(tmp_path):
    """Their evaluations of a demo run before may lie in the same results."""
    synthetic, mine = (
        Experiment(settings(tmp_path, **change)) for change in ({}, {"data": {"private": {"path": "."}}})
    )
    knowing = {name for name, agent in mine.settings.agents.items() if agent.knows_hospital}
    assert len(knowing) == 6
    for of, dataset, are_shown in ((synthetic, "private", True), (mine, "private", False), (mine, "mimic_iv", True)):
        for stage in ("write_effort", "write_main_table", "write_report"):
            shown = {run for run, of_run in of.evidence(stage).evaluations if of_run == dataset}
            assert bool(shown & knowing) is are_shown and "warm_start" in shown
        assert bool(of.evaluations(knowing, [dataset])) is are_shown
