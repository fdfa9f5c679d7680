"""Run keys: they change with everything that matters and with nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from cdpr.files import DigestCache
from cdpr.pipeline.experiment import Experiment
from cdpr.pipeline.run_key import PACKAGE_FOLDER, code_digest, import_closure
from cdpr.pipeline.running import list_contents
from cdpr.pipeline.stages import STAGES
from cdpr.records import FileDigest, RunRecord
from cdpr.settings import TrainedRun, merge, parse_settings, variants


@pytest.fixture
def package(tmp_path):
    """A small package: stages.a -> rooms.x -> rooms.y (inside a function); stages.b stands alone."""
    files = {
        "__init__.py": "",
        "stages/__init__.py": "",
        "stages/a.py": "from ..rooms.x import f\n",
        "stages/b.py": "import json\n",
        "rooms/__init__.py": "",
        "rooms/x.py": '"""Doc."""\ndef f():\n    from . import y\n    return y.VALUE  # why\n',
        "rooms/y.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..other import z\nVALUE = 1\n",
        "rooms/data/table.csv": "a,b\n",
        "rooms/data/units.txt": "mg\n",
        "other/__init__.py": "",
        "other/z.py": "Z = 1\n",
        "pipeline/__init__.py": "",
    }
    for name, text in files.items():
        path = tmp_path / "cdpr" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "cdpr"


def digest_after(package, name, text, root="cdpr.stages.a"):
    """Digest in a fresh copy of the file: digests of a path are remembered within a process."""
    copy = package.parent / f"copy-{abs(hash((name, text)))}" / "cdpr"
    for path in package.rglob("*"):
        if path.is_file():
            target = copy / path.relative_to(package)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (copy / name).write_text(text)
    return code_digest([root], copy)


def test_closure_follows_lazy_imports_and_leaves_out_typing_only_ones(package):
    assert import_closure(["cdpr.stages.a"], package) == [
        "cdpr.rooms", "cdpr.rooms.x", "cdpr.rooms.y", "cdpr.stages", "cdpr.stages.a",
    ]  # fmt: skip
    with pytest.raises(ModuleNotFoundError, match=r"cdpr\.stages\.nowhere"):
        import_closure(["cdpr.stages.nowhere"], package)


def test_digest_sees_code_and_data_but_not_comments_layout_or_strangers(package):
    before = code_digest(["cdpr.stages.a"], package)
    reworded = '"""Other words."""\n\n\ndef f():\n    """Doc."""\n    from . import y\n\n    return (y.VALUE)\n'
    assert digest_after(package, "rooms/x.py", reworded) == before
    assert digest_after(package, "other/z.py", "Z = 2\n") == before
    assert digest_after(package, "rooms/y.py", "VALUE = 2\n") != before
    assert digest_after(package, "rooms/data/table.csv", "a,c\n") != before
    assert digest_after(package, "rooms/data/units.txt", "g\n") != before


@pytest.mark.parametrize(
    ("file", "old", "new", "counts"),
    [
        ("settings/schema.py", "for name in entry.key_names", "for name in sorted(entry.key_names)", True),
        ("settings/variants.py", "def labels_of", "def labels_of_another", True),
        ("settings/schema.py", "All results.", "Results.", False),
        ("settings/schema.py", "vocab_size: int = key(2400", "vocab_size: int = key(2500", False),  # a value, not code
        ("settings/reference.md", "", "More words.", False),
        ("records.py", "if name in self.inputs", "if name in {*self.inputs}", True),
        ("job.py", "seed: int | None = None", "seed: int | None = 0", True),
    ],
)
def test_code_of_settings_records_and_jobs_counts_but_no_declaration_of_a_setting(tmp_path, file, old, new, counts):
    copies = [tmp_path / name / "cdpr" for name in ("before", "after")]
    for copy in copies:
        shutil.copytree(PACKAGE_FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = (copies[1] / file).read_text(encoding="utf-8")
    assert old in text
    (copies[1] / file).write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")
    before, after = (code_digest(["cdpr.report.sensitivity"], copy) for copy in copies)
    assert (before != after) is counts


def test_what_one_planning_has_looked_at_serves_all_its_digests(package):
    cache, roots = DigestCache(None), (["cdpr.stages.a"], ["cdpr.stages.b"], ["cdpr.rooms.y", "cdpr.other.z"])
    alone = [code_digest(root, package) for root in roots]
    assert [code_digest(root, package, cache) for root in roots] == alone and len(set(alone)) == 3


def test_outside_files_are_read_again_only_when_touched(tmp_path, monkeypatch):
    raw = tmp_path / "raw"
    raw.mkdir()
    (tmp_path / "state").mkdir()
    (raw / "a.csv").write_text("1")
    cache = DigestCache(tmp_path / "state" / "digests.json")
    first = cache.digest(raw)
    (raw / "a.csv").touch()
    assert DigestCache(tmp_path / "state" / "digests.json").digest(raw) == first
    monkeypatch.setattr("cdpr.files.path_digest", lambda path: pytest.fail("read again"))
    assert DigestCache(tmp_path / "state" / "digests.json").digest(raw) == first
    assert cache.digest(tmp_path / "nothing") == "absent"


def plan(tmp_path, **changes):
    """The default settings with some changed, in a folder of its own."""
    base = {"paths": {"results": str(tmp_path / "results"), "state": str(tmp_path / "state")}}
    return Experiment(parse_settings(merge(merge(parse_settings({}).model_dump(), base), changes)))


def test_every_part_of_a_key_counts(tmp_path, monkeypatch):
    base = {"parameters": {}, "code": "c", "training_of": TrainedRun("cdpr", 0)}

    def key(stage="evaluate_agent", run="cdpr-seed0", **changes):
        for name, value in (base | changes).items():
            monkeypatch.setattr(Experiment, name, lambda *_, value=value: value)
        return plan(tmp_path).key(stage, run=run, dataset="private")

    changes = [{"stage": "credit_workups"}, {"run": "cdpr-seed1"}, {"parameters": {"p": 1}}, {"code": "d"},
               {"training_of": TrainedRun("cdpr", 1)}]  # fmt: skip
    assert key() == key() and len({key(), *(key(**change) for change in changes)}) == 1 + len(changes)


def keys(of):
    """Keys of one job of every stage."""
    jobs = {
        "make_hospital": {}, "ingest_dataset": {"dataset": "private"}, "map_costs": {"dataset": "mimic_iv"},
        "warm_start_policy": {}, "train_policy": {"run": "cdpr-seed0"},
        "evaluate_agent": {"run": "cdpr-seed0", "dataset": "private"}, "write_main_table": {},
        "plot_accuracy_cost": {}, "check_headroom": {},
    }  # fmt: skip
    return {stage: of.key(stage, **options) for stage, options in jobs.items()}


@pytest.mark.parametrize(
    ("change", "concerns"),
    [
        ({"paths": {"results": "elsewhere"}}, set()),
        ({"training": {"save_every": 7}}, set()),
        ({"evaluation": {"bootstrap": 7}}, {"write_main_table", "plot_accuracy_cost"}),
        ({"credit": {"beta": 0.7}}, {"train_policy", "write_main_table", "plot_accuracy_cost"}),
        ({"costs": {"fallback_usd": 6.0}},
         {"map_costs", "warm_start_policy", "evaluate_agent", "write_main_table", "plot_accuracy_cost"}),
    ],
)  # fmt: skip
def test_a_setting_concerns_the_stages_that_read_it(tmp_path, change, concerns):
    before, after = keys(plan(tmp_path)), keys(plan(tmp_path, **change))
    assert {stage for stage in before if before[stage] != after[stage]} == concerns


def test_the_process_reward_does_not_concern_grpo(tmp_path):
    before, after = plan(tmp_path), plan(tmp_path, credit={"beta": 0.7})
    assert before.key("train_policy", run="grpo-seed0") == after.key("train_policy", run="grpo-seed0")
    grpo, cdpr = (before.code("train_policy", {"run": run}) for run in ("grpo-seed0", "cdpr-seed0"))
    assert grpo != cdpr
    assert {*before.training_runs("without_process_reward")} <= {*before.training_runs("grpo")}, "trained once"


def test_jobs_find_the_digests_that_planning_computed(tmp_path):
    planned = plan(tmp_path)
    key = planned.key("train_policy", run="cdpr-seed0")
    planned.begin()
    cached = json.loads((Path(planned.state) / "digests.json").read_text())
    assert any(name.endswith("training/algorithms/cdpr.py") for name in cached)
    assert plan(tmp_path).key("train_policy", run="cdpr-seed0") == key


def test_no_two_jobs_share_a_key(tmp_path):
    of = plan(tmp_path)
    runs = of.training_runs(*variants(of.settings))
    pairs = {*of.evaluations({*of.agents, *runs}), *of.evidence("write_leak_control").evaluations}
    others = ("warm_start_policy", *of.datasets)
    assert len(of.current_keys()) == len(others) + len(runs) + len(pairs)


def test_a_change_of_an_agent_concerns_its_own_evaluations_and_what_shows_agents(tmp_path):
    mine = {"label": "Mine", "model": "models/mine"}
    before = plan(tmp_path, agents={"mine": mine})
    after = plan(tmp_path, agents={"mine": mine | {"model": "models/other"}})
    one = {"dataset": "private"}
    assert before.key("evaluate_agent", run="mine", **one) != after.key("evaluate_agent", run="mine", **one)
    assert before.key("evaluate_agent", run="static", **one) == after.key("evaluate_agent", run="static", **one)
    assert before.key("write_main_table") != after.key("write_main_table")
    assert ("mine", "private") in before.evidence("write_main_table").evaluations


def test_how_a_model_is_asked_decides_its_evaluations_and_where_it_stands_does_not(tmp_path):
    def keys(**entry):
        found = plan(tmp_path, agents={"mine": {"label": "Mine", "model": "one"}}, models={"one": {"id": "m"} | entry})
        return found.key("evaluate_agent", run="mine", dataset="private"), found.key("write_effort")

    answers, table = keys(at="http://127.0.0.1:8000/v1")
    assert keys(at="http://127.0.0.1:9000/v1")[0] == answers
    priced = keys(at="http://127.0.0.1:8000/v1", prices={"input": 1.0, "output": 2.0})
    assert priced[0] == answers and priced[1] != table
    for change in ({"id": "n"}, {"answer": ["x"]}, {"sampling": {"temperature": 0.5}}, {"extra": {"a": 1}},
                   {"system": "fold"}):  # fmt: skip
        assert keys(at="http://127.0.0.1:8000/v1", **change)[0] != answers


def test_how_a_model_is_served_decides_its_evaluations(tmp_path):
    def keys(weights="", serve=(), **serving):
        entry = {"id": "m", "weights": weights, "serve": [*serve]}
        of = plan(tmp_path, agents={"mine": {"label": "Mine", "model": "one"}}, models={"one": entry},
                  serving={"program": "vllm", "models": ["one"], "policies": True, **serving})  # fmt: skip
        return [of.key("evaluate_agent", run=run, dataset="private") for run in ("mine", "cdpr-seed0", "static")]

    model, policy, static = keys()
    for change in ({"weights": "m-awq"}, {"serve": ["--quantization", "fp8"]}):
        changed = keys(**change)
        assert changed[0] != model and changed[1:] == [policy, static]
    for change in ({"program": "sglang"}, {"command": "vllm serve {weights} --port {port} --dtype half"}):
        changed = keys(**change)
        assert changed[0] != model and changed[1] != policy


def test_names_of_data_sets_are_in_the_keys_of_what_prints_them(tmp_path):
    of = plan(tmp_path)
    assert all("data_sets" in of.parameters(stage, {}) for stage in ("check_headroom", "make_forms"))


def test_what_published_agents_leave_open_concerns_their_own_evaluations(tmp_path):
    (tmp_path / "own.txt").write_text("Be brief.")
    row = {"label": "x", "model": "models/mine"}
    rows = {"diagagent": row | {"acts": "cdpr.agents.diag_agent:DiagAgent"},
            "medagent": row | {"acts": "cdpr.agents.med_agents:MedAgents"}}  # fmt: skip
    own = {"diag_agent": {"instruction": str(tmp_path / "own.txt")}}
    before = plan(tmp_path, agents=rows)
    after = plan(tmp_path, agents=rows, frameworks=own)
    found = {}
    for run in ("diagagent", "medagent", "static"):
        options = {"run": run, "dataset": "private"}
        found[run] = [of.key("evaluate_agent", **options) for of in (before, after)]
        seen = STAGES["evaluate_agent"].view(before.settings, options)
        assert seen.frameworks == before.settings.frameworks  # the job can read them, whoever acts
    (tmp_path / "own.txt").write_text("Text.")
    again = plan(tmp_path, agents=rows, frameworks=own)
    found["diagagent"].append(again.key("evaluate_agent", run="diagagent", dataset="private"))
    assert {run: len(set(keys)) for run, keys in found.items()} == {"diagagent": 3, "medagent": 1, "static": 1}


def test_an_algorithm_from_outside_counts_by_its_file(tmp_path, monkeypatch):
    rule = tmp_path / "outside" / "rule.py"
    rule.parent.mkdir()
    rule.write_text("from cdpr.training.algorithms.grpo import Grpo\n\n\nclass Rule(Grpo):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    change = {"training.algorithm": "outside.rule"}
    variants_of_ones_own = {"variants": {"mine": {"label": "Mine", "change": change}}}

    def key():
        return plan(tmp_path, experiments=variants_of_ones_own).key("train_policy", run="mine-seed0")

    first = key()
    assert key() == first
    rule.write_text(rule.read_text() + "    extra_samples = False\n")
    assert key() != first


@pytest.mark.parametrize("stage", STAGES)
def test_what_decides_a_job_can_be_read_again_from_its_record(tmp_path, stage):
    """Otherwise `cdpr why` would see a change where there is none."""
    of, some = plan(tmp_path), {"dataset": "private", "run": "cdpr-seed0"}
    parameters = of.parameters(stage, {name: some[name] for name in STAGES[stage].options})
    assert json.loads(json.dumps(parameters)) == parameters


def test_a_key_takes_the_content_behind_a_record_and_no_time_of_it(tmp_path):
    """A record that is read, or whose outputs are, holds the seconds of its job, and a training writes those of its
    steps."""

    def parts(name, seconds, **outputs):
        path = tmp_path / f"{name}.run.json"
        record = RunRecord(wall_seconds=seconds, outputs={k: FileDigest(path=k, sha256=v) for k, v in outputs.items()})
        path.write_text(record.model_dump_json())
        return list_contents(path, f"digest of {seconds}")

    assert parts("a", 1.5, policy="p", timings="t") == parts("b", 2.5, policy="p", timings="u")
    assert parts("a", 1.5, policy="p") != parts("b", 1.5, policy="q")
    assert list_contents(tmp_path / "cases.jsonl", "d") == ["d"]
