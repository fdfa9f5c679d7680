"""Settings: closed, explained errors, canonical variants, generated files up to date."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdpr.report.methods import main_methods
from cdpr.settings import (
    Settings,
    SettingsError,
    TrainedRun,
    is_trained,
    job_of,
    labels_of,
    load_settings,
    merge,
    parse_settings,
    resolve_variant,
    section,
    seeds_of,
    seeds_of_runs,
    sweeps,
    variants,
)
from cdpr.settings.algorithms import algorithm_class
from cdpr.settings.generate import documented_fields, explain_key, outdated_files
from cdpr.settings.load import expand_keys, flatten, restrict
from cdpr.settings.queries import check_paths
from cdpr.settings.runs import RUN
from cdpr.settings.section import UndeclaredSetting
from cdpr.settings.variants import why_not_trained

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / "config.yaml").exists(), reason="runs in the project's own folder")
def test_generated_files_are_up_to_date():
    assert outdated_files(ROOT) == [], "run `cdpr config --write`"


def test_explain_names_value_default_and_source_of_every_key_of_a_section():
    text = explain_key("utility", load_settings(ROOT / "config.yaml"))
    assert "utility.cost_unit_usd" in text and "value    7" in text and "default  1.0" in text
    assert 'paper    "lambda_test = 0.05"' in text and "decision D10" in text
    with pytest.raises(SettingsError, match=r"unknown key 'credit.betta'; did you mean 'credit.beta'"):
        explain_key("credit.betta", Settings())


@pytest.mark.parametrize("overlay", sorted(p.name for p in (ROOT / "config").glob("*.yaml")))
def test_overlays_are_valid_and_say_only_what_differs(overlay):
    demo = load_settings(ROOT / "config.yaml")
    assert load_settings(ROOT / "config.yaml", ROOT / "config" / overlay) != demo
    values = flatten(demo.model_dump())
    for name, value in flatten(yaml.safe_load((ROOT / "config" / overlay).read_text())).items():
        assert name not in values or values[name] != value, f"{overlay}: {name} is the default already"


def test_the_paper_overlay_takes_back_every_constant_of_the_demo():
    paper = flatten(load_settings(ROOT / "config.yaml", ROOT / "config" / "paper.yaml").model_dump())
    overlay = flatten(yaml.safe_load((ROOT / "config" / "paper.yaml").read_text()))
    faithful = flatten(Settings().model_dump())
    for name in flatten(yaml.safe_load((ROOT / "config.yaml").read_text())):
        assert name in overlay or paper[name] == faithful[name], f"{name} keeps the demo's value {paper[name]}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"credit": {"betta": 1}}, r"unknown key 'credit\.betta'; did you mean 'credit\.beta'"),
        ({"data": {"fihr": {"path": "x"}}}, r"unknown key 'data\.fihr'; did you mean 'data\.fhir'"),
        ({"data": {"agentclinic": {"credentialed": True}}}, r"did you mean 'data\.clinicalbench\.credentialed'"),
        ({"lambda_test": 1}, r"unknown key 'lambda_test'; did you mean 'utility\.lambda_test'"),
        ({"environment": {"turns": 5}}, r"did you mean 'environment\.max_turns'"),  # its own section first
        ({"zzz": 1}, r"unknown key 'zzz'; see config/README\.md"),
        ({"training": {"group_size": 0}}, r"key 'training\.group_size'.*greater than 0.*got 0"),
        ({"tier": "huge"}, r"key 'tier'.*got 'huge'"),
    ],
)
def test_errors_name_key_and_remedy(data, message):
    with pytest.raises(SettingsError, match=message):
        parse_settings(data)


@pytest.mark.parametrize(
    ("key", "path"),
    [("paths.results", "a{b"), ("paths.state", "a<logs>"), ("paths.results", "~/results"), ("paths.results", "a:b"),
     ("paths.results", "a?b"), ("paths.results", "a\nb"), ("paths.state", ""), ("data.private.path", "a\u2028b"),
     ("data.mimic_iv.path", "~me/mimic"), ("data.price_overrides", "a\\b"), ("policy.model", "{run}"),
     ("study.kept", "a\x1b[2J")],
)  # fmt: skip
def test_paths_that_a_reader_would_take_for_something_else_are_refused_by_name(key, path):
    nested: Any = path
    for part in reversed(key.split(".")):
        nested = {part: nested}
    with pytest.raises(SettingsError, match=re.escape(f"{key}: {path!r}: ")):
        check_paths(parse_settings(nested))


def test_other_paths_are_accepted():
    odd = "-it's #1 %20 $HOME; & | > é 漢 [1] * !(x) \"`id`"
    addresses = {"gpt": {"label": "L", "group": "open", "model": "https://host/v1?version=1"}}
    check_paths(parse_settings({"paths": {"results": odd, "state": odd}, "data": {"private": {"path": f"{odd}:"}},
                                "policy": {"model": odd}, "agents": addresses}))  # fmt: skip


def test_every_setting_is_described():
    assert [name for name, field in documented_fields().items() if not field.description] == []


def test_variants_that_train_the_same_are_one_job():
    settings = parse_settings({})
    assert job_of(settings, "without_process_reward") == "grpo"
    named = settings.experiments.variants
    assert [name for name in named if job_of(settings, name) != name] == ["without_process_reward"]
    shared = {name: job_of(settings, name) for name in variants(settings) if name not in named}
    assert shared["beta_0"] == "grpo" and shared["lambda_na_0"] == "without_lambda_na"
    assert [name for name, job in shared.items() if job == "cdpr"] == [  # the default points of the sweeps
        "candidates_4", "continuations_4", "horizon_3", "beta_0.5", "threshold_0.5", "group_size_4", "samples_8",
        "lambda_test_0.05", "lambda_cost_0.02", "lambda_na_0.1", "cost_unit_1", "continuation_frozen_init",
        "level_trajectory"]  # fmt: skip
    other = parse_settings(merge(settings.model_dump(), {"credit": {"beta": 0.9}}))
    assert resolve_variant(other, "grpo") == resolve_variant(settings, "grpo")
    with pytest.raises(SettingsError, match="unknown variant 'ppo'"):
        resolve_variant(settings, "ppo")


def test_variants_of_verl_differ_from_torch_in_the_engine_and_its_options_alone():
    settings = load_settings(ROOT / "config.yaml")
    apart = {"training": {"engine", "verl"}}
    for name in ("grpo", "cdpr"):
        torch, verl = (resolve_variant(settings, variant) for variant in (name, f"{name}_verl"))
        assert torch.model_dump(exclude=apart) == verl.model_dump(exclude=apart) and verl.training.engine == "verl"


def test_one_line_makes_a_variant_and_one_number_a_point(tmp_path):
    more = tmp_path / "mine.yaml"
    more.write_text("""
experiments:
  variants: {eager: {label: eager, change: {credit.beta: 0.7}, feeds: [ablations], seeds: 1}}
  sweeps: {beta: {values: [0.1]}}
""")
    settings = load_settings(ROOT / "config.yaml", more)
    assert list(labels_of(settings, "ablations"))[-1] == "eager" and seeds_of(settings, "eager") == [0]
    assert sweeps(settings, "sensitivity")["beta"] == {0.1: "beta_0.1", 0.5: "beta_0.5"}
    assert resolve_variant(settings, "eager").credit.beta == 0.7
    few = parse_settings(merge(settings.model_dump(), {"experiments": {"points": 0}}))
    assert [len(points) for points in sweeps(few, "sensitivity").values()] == [1] * 6


@pytest.mark.parametrize(
    ("experiments", "message"),
    [
        ({"variants": {"x": {"label": "X", "change": {"credit.betta": 1}}}}, r"variant x: unknown key 'credit\.betta'"),
        (
            {"variants": {"x": {"label": "X", "change": {"training.options": {"decay": 1}}}}},
            r"change\.training\.options': name each setting with dots, as training\.options\.KEY: VALUE",
        ),
        ({"variants": {"x": {"label": "X", "feeds": ["table_9"]}}}, r"feeds.*got 'table_9'"),
        ({"variants": {"X-1": {"label": "X"}}}, r"'X-1' is no name"),
        ({"variants": {"x": {"change": {}, "feed": []}}}, r"unknown key 'experiments\.variants\.x\.feed'"),
        ({"sweeps": {"b": {"symbol": "b", "label": "b", "setting": "credit.bta"}}}, r"'credit\.bta' names no setting"),
    ],
)
def test_mistakes_in_the_experiments_file_are_explained(experiments, message):
    with pytest.raises(SettingsError, match=message):
        variants(settings := parse_settings({"experiments": experiments}))
        job_of(settings, "x")


def test_names_of_runs_have_one_grammar():
    settings = load_settings(ROOT / "config.yaml")
    trained = [TrainedRun(name, seed) for name in variants(settings) for seed in (0, 10)]
    assert [TrainedRun.parse(str(run)) for run in trained] == trained
    assert not [name for name in settings.agents if is_trained(name)]
    # the wildcard of the rules takes each of them whole
    assert all(re.fullmatch(RUN, name) for name in [*map(str, trained), *settings.agents, "rate_1e-05-seed0"])
    wrong = ("cdpr-seed", "cdpr-seed01", "Cdpr-seed0", "-seed0", "cdpr-seed0/mimic_iv", "cdpr-seed\N{SUPERSCRIPT TWO}")
    assert [name for name in wrong if TrainedRun.parse(name)] == []
    assert seeds_of_runs(["cdpr-seed2", "warm_start", "rate_1e-05-seed1"]) == [2, 1]
    for name, why in (("Doctor", "is no name"), ("my-seed1", "trained run"), ("a b", "is no name")):
        with pytest.raises(SettingsError, match=f"agent '{name}'.*{why}"):
            parse_settings({"agents": {name: {"model": "policy"}}})
    with pytest.raises(SettingsError, match="trained run"):
        parse_settings({"experiments": {"variants": {"my-seed1": {"label": "X"}}}})
    with pytest.raises(SettingsError, match="sweep level: the point 'level_a b' is no name"):
        sweep = {"symbol": "l", "label": "l", "setting": "credit.level", "values": ["a b"]}
        variants(parse_settings({"experiments": {"sweeps": {"level": sweep}}}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training.algorithm": "vineppo", "credit.horizon": 7}, r"variant x sets credit\.horizon, which vineppo .*"
         "comparators"),
        ({"training.algorithm": "vineppo", "training.options.weight": 2.0},
         "the options of vineppo are: continuations"),
        ({"training.algorithm": "vineppo", "training.normalise": "none"}, r"sets training\.normalise"),
        ({"training.algorithm": "grpo", "utility.lambda_test": 0.0}, r"sets utility\.lambda_test, which grpo"),
        ({"comparators.correctness_weight": 8}, r"sets comparators\.correctness_weight, which cdpr"),
        ({"training.verl.nodes": 2}, r"sets training\.verl\.nodes, which cdpr on the engine torch"),
        ({"evaluation.seed": 1}, r"sets evaluation\.seed"),
        ({"training.algorithm": "ppo"}, r"variant x: key 'training\.algorithm'.*'ppo'; known: .*cdpr.*; one of your "
         r"own.*my_package\.my_rule"),
        ({"training.algorithm": "no_such_package.rule"}, r"no module 'no_such_package' can be imported.*PYTHONPATH"),
        ({"training.algorithm": "cdpr.training.training_run"}, r"names no single subclass.*there: none"),
    ],
)  # fmt: skip
def test_what_training_would_not_notice_is_refused(change, message):
    settings = parse_settings({"experiments": {"variants": {"x": {"label": "X", "change": change}}}})
    with pytest.raises(SettingsError, match=message):
        resolve_variant(settings, "x")


def test_a_configuration_may_choose_another_algorithm_for_the_variants_that_allow_it():
    settings = parse_settings({"training": {"algorithm": "gigpo"}, "credit": {"horizon": 7}})
    assert job_of(settings, "cdpr") == "gigpo" and resolve_variant(settings, "cdpr").credit == Settings().credit
    with pytest.raises(SettingsError, match=r"variant cdpr_step sets credit\.level, which gigpo"):
        job_of(settings, "cdpr_step")


OUTSIDE = """
from cdpr.training.algorithms.grpo import Grpo


class Rule(Grpo):
    reads = (*Grpo.reads, "credit.horizon")


class Other(Rule):
    pass
"""


def test_an_algorithm_of_ones_own_gets_the_settings_that_it_reads(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "more.py").write_text(OUTSIDE)
    (tmp_path / "package" / "rule.py").write_text(OUTSIDE.partition("class Other")[0])
    monkeypatch.syspath_prepend(tmp_path)
    assert algorithm_class("package.rule") is algorithm_class("package.rule:Rule")
    assert algorithm_class("package.more:Other").__name__ == "Other"
    change = {"training.algorithm": "package.rule", "credit.horizon": 7}
    mine = parse_settings({"credit": {"candidates": 2}, "experiments": {"variants": {"x": {
        "label": "X", "change": change}}}})  # fmt: skip
    resolved = resolve_variant(mine, "x")
    assert (resolved.credit.horizon, resolved.credit.candidates) == (7, Settings().credit.candidates)
    with pytest.raises(SettingsError, match=r"there: Rule, Other.*MODULE:CLASS"):
        algorithm_class("package.more")


def test_what_planning_reads_of_an_algorithm_needs_no_torch():
    code = (
        "import sys; from cdpr.settings.algorithms import *; [algorithm_class(name) for name in known_algorithms()]; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'mlflow')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_stage_sees_only_what_it_declares():
    seen = restrict(Settings(), {"tier", "training.steps", "costs"})
    assert seen.training.steps == Settings().training.steps and seen.costs == Settings().costs
    assert seen.model_dump().keys() == {"tier", "training", "costs"}
    for path in ("hospital", "training.epochs"):
        with pytest.raises(UndeclaredSetting, match=f"setting {path}, which is not declared"):
            value = seen
            for name in path.split("."):
                value = getattr(value, name)
    with pytest.raises(SettingsError, match="nowhere"):
        restrict(Settings(), {"nowhere"})
    rest = {"costs.price_map", "costs.group_price", "costs.class_rates", "costs.place_of_service"}
    assert expand_keys(["costs"], ["costs.fallback_usd"]) == rest


@pytest.mark.parametrize(("frozen", "gpus"), [({}, 3), ({"beside": True}, 2), ({"url": "http://localhost:9/v1"}, 2)])
def test_a_machine_has_a_gpu_more_for_a_frozen_server_that_verl_starts(frozen, gpus):
    settings = parse_settings({"training": {"verl": {"gpus_per_node": 2, "frozen": {"beside": False} | frozen}}})
    assert settings.training.verl.gpus_of_node == gpus


def test_the_checkout_is_the_working_folder_where_that_is_one_else_that_of_the_package(tmp_path, monkeypatch):
    here, package = tmp_path / "here", tmp_path / "package"
    marks = [folder / "workflow/experiments.yaml" for folder in (here, package)]
    for mark in marks:
        mark.parent.mkdir(parents=True)
        mark.write_text("")
    monkeypatch.chdir(here)
    monkeypatch.setattr(section, "__file__", str(package / "src/cdpr/settings/section.py"))
    for expected, mark in zip((here, package), marks, strict=True):
        assert section.project_folder() == expected
        mark.unlink()
    with pytest.raises(SettingsError, match="run from the root of the checkout"):
        section.project_folder()


def test_a_variant_that_cannot_be_trained_is_in_no_figure_and_its_row_says_why():
    demo, other = (load_settings(ROOT / "config.yaml", *more) for more in ((), (ROOT / "config/small_gpu.yaml",)))
    assert "record_critic" in labels_of(demo, "comparators") and "record_critic" not in labels_of(other, "comparators")
    row = next(method for method in main_methods(other) if method.name == "record_critic")
    overlay = {"experiments": {"variants": {"mine": {"label": "Mine", "change": {
        "training.algorithm": "record_critic", "environment.prompt.style": "full"}}}}}  # fmt: skip
    why = why_not_trained(parse_settings(merge(demo.model_dump(), overlay)), "mine")
    assert why.startswith("environment.prompt.style: ") and not row.runs
    assert row.why == "not run: environment.prompt.style: record_critic works with compact alone, not with full"
