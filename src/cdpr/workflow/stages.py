"""The table of stages: one entry makes a rule's inputs and outputs, a run key, a command and what ``cdpr why`` says."""

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..environment.opening import judging_code
from ..job import PageEntry
from ..settings import SettingsError
from ..settings.datasets import BENCHMARKS, DATASETS, IN_DOMAIN, LESSONS
from . import evidence as behind
from . import sources, study_stages
from .experiment import Experiment, Options, Product
from .stage import DECISIONS, JUDGED, RUN, Evidence, Need, Output, Stage

# Placement and memory settings of verl that do not affect results.
_PLACES = tuple(
    f"training.verl.{name}"
    for name in ("nodes", "gpus_per_node", "gpu_memory_gb", "offload", "rollout_memory", "frozen")
)
_REPORTED = ("tier", "seeds", "evaluation", "data", "costs", "hospital", "training", "credit", "comparators",
             "experiments", "agents", "models", "judge", "matcher", "serving.program", "serving.models",
             "study.states", *DECISIONS)  # fmt: skip
_DATASET = {"dataset": f"one of {', '.join(DATASETS)}"}
_DATASET_OR_VARIANT = f"{_DATASET['dataset']}, or a leak-controlled variant such as {IN_DOMAIN}_controlled"
_EvidenceOf = Callable[[Experiment], Evidence]


# Tables and figures


def _result(name: str, summary: str, call: str, evidence: _EvidenceOf, outputs: Mapping[str, Output], *,
            reads: tuple[str, ...] = (), also: Callable[[Experiment, Options], Mapping[str, Any]] = sources.data_sets,
            **more: Any) -> Stage:  # fmt: skip
    """A stage that shows results of other runs, which it reads below the results folder."""
    return Stage(name, summary, call, reads=(*_REPORTED, *reads), runtime=("training.save_every",), evidence=evidence,
                 outputs=outputs, also=also, **more)  # fmt: skip


def _table(name: str, summary: str, evidence: _EvidenceOf, page: PageEntry | None, file: str = "",
           **needs: Need) -> Stage:  # fmt: skip
    """``write_<name>``: a table of ``cdpr.report.<name>`` as CSV, Markdown and LaTeX. On the ``page`` (None: not there)
    its module's ``sheet(settings, results)`` shows it."""
    stem, module = f"tables/{file or name}", f"cdpr.report.{name}"
    outputs = {
        "csv": Output(f"<results>/{stem}.csv", "the numbers"),
        "md": Output(f"<results>/{stem}.md", "the table to read"),
        "tex": Output(f"<results>/{stem}.tex", "the table to print"),
    }
    return _result(f"write_{name}", summary, f"{module}:write_{name}", evidence, outputs, needs=needs,
                   page=page and replace(page, file=f"{stem}.md", module=module),
                   also=sources.data_sets_and_paper if page else sources.data_sets)  # fmt: skip


def _plot(name: str, csv: str = "") -> dict[str, Output]:
    stem = f"<results>/figures/{name}"
    outputs = {"png": Output(f"{stem}.png", "the figure"), "pdf": Output(f"{stem}.pdf", "for print")}
    return outputs | ({"csv": Output(f"{stem}.csv", csv)} if csv else {})


def _figure(name: str, summary: str, evidence: _EvidenceOf, page: PageEntry | None, module: str = "", csv: str = "",
            **needs: Need) -> Stage:  # fmt: skip
    """``plot_<name>``: a figure of ``cdpr.report.<module>`` as PNG and PDF."""
    return _result(f"plot_{name}", summary, f"cdpr.report.{module or name}:plot_{name}", evidence, _plot(name, csv),
                   needs=needs, page=page and replace(page, file=f"figures/{name}.png"))  # fmt: skip


def stages_on_page(experiment: Experiment) -> list[str]:
    """Stages of the results page in its order; the table of open cases only where some agent works up such cases."""
    open_cases = bool(behind.open_cases(experiment).evaluations)
    return [name for name, stage in STAGES.items() if stage.page and (open_cases or name != "write_open_cases")]


def page_entries(experiment: Experiment) -> tuple[PageEntry, ...]:
    """Tables and figures of the results page, in its order."""
    return tuple(entry for name in stages_on_page(experiment) if (entry := STAGES[name].page))


def check_functions(stages: Mapping[str, Stage]) -> None:
    """Raise SettingsError for a function that a stage or a data set names and its module lacks, before hours of work
    end without it: the stage's own, ``sheet`` of a table on the results page, importers and writers."""
    table, places = "src/cdpr/workflow/stages.py", "src/cdpr/settings/datasets.yaml"
    calls = [(f"{table}: {name}", stage.call) for name, stage in stages.items() if isinstance(stage.call, str)]
    calls += [(f"{table}: {name}: the results page", f"{stage.page.module}:sheet")
              for name, stage in stages.items() if stage.page and stage.page.module]  # fmt: skip
    calls += [(f"{places}: {name}", call) for name, d in DATASETS.items() for call in (d.importer, d.writer) if call]
    for where, call in calls:
        module, _, function = call.partition(":")
        if not re.search(rf"(?m)^(?:def )?{function}\b", _source(module)):
            raise SettingsError(f"{where}: there is no function {function} in {module}")


@cache
def _source(module: str) -> str:
    """The text of a module, which is not imported; empty where there is none."""
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:
        return ""
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


def _page_evidence(experiment: Experiment) -> Evidence:
    """Everything behind the tables and figures that the page shows and the ledger judges."""
    evidence = Evidence()
    for name in stages_on_page(experiment):
        evidence |= STAGES[name].evidence(experiment)
    return evidence


def _page_parts(experiment: Experiment) -> list[Product]:
    jobs: list[tuple[str, Options]] = [(name, {}) for name in (*stages_on_page(experiment), "write_claims")]
    jobs += [("write_data_card", {"dataset": dataset}) for dataset in experiment.datasets]
    return [Product(name, output, options) for name, options in jobs for output in (*STAGES[name].outputs, "record")]


def _page_texts(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Chapters and texts of the page, beside the data sets that it describes."""
    return {**sources.data_sets(experiment, options), "page": [list(astuple(e)) for e in page_entries(experiment)]}


_ALL = (
    Stage(
        "make_hospital", "Write the synthetic hospital's raw files, each data set in its own native format.",
        "cdpr.hospital.raw_files:make_hospital",
        reads=("hospital",),
        outputs={name: Output(f"<results>/raw/{name}", f"{entry.label} format", folder=True)
                 for name, entry in DATASETS.items() if entry.writer},
        record="<results>/raw/run.json",
        also=sources.writers, more_code=sources.writers_code,
    ),
    Stage(
        "ingest_dataset", "Read a data set's raw files into case records, split by patient.",
        "cdpr.ingest.run:ingest_dataset",
        reads=("data.{dataset}", "data.leaks", "data.train_cases", "data.validation_cases", "data.test_cases"),
        runtime=("data.{dataset}.path", "governance"),
        options=_DATASET,
        needs={"raw": sources.raw_data},
        outputs={
            "records": Output("<results>/records/{dataset}.jsonl", "case records, one JSON object a line"),
            "report": Output("<results>/records/{dataset}.report.json", "how many cases each rule dropped"),
            "findings": Output("<results>/records/{dataset}.findings.csv",
                               "every dropped case and every leak, one a row; as private as the records"),
        },
        also=sources.data_set, more_code=sources.importers_code,
    ),
    Stage(
        "build_catalogue", "Make the price catalogue from your own year or locality of the Medicare fee schedules.",
        "cdpr.costs.build_catalogue:build_catalogue",
        reads=("data.fee_schedules.locality", "data.fee_schedules.conversion_factor"),
        needs={name: sources.fee_schedule(name, about) for name, about in (
            ("clfs", "Clinical Laboratory Fee Schedule (CSV)"), ("pfs", "relative value file, PPRRVU (CSV)"),
            ("gpci", "geographic indices, GPCI (CSV)"), ("opps", "OPPS Addendum B (xlsx)"))},
        outputs={"catalogue": Output("<results>/costs/catalogue", "folder with the tables, and what was left out",
                                     folder=True)},
    ),
    Stage(
        "map_costs", "Attach prices and billing groups to the examinations of case records.",
        "cdpr.costs.price:map_costs",
        reads=("costs",),
        options=_DATASET,
        needs={"records": "ingest_dataset.records", "catalogue": sources.catalogue,
               "overrides": sources.price_overrides},
        outputs={
            "cases": Output("<results>/cases/{dataset}.jsonl", "priced case records"),
            "coverage": Output("<results>/costs/{dataset}.csv", "what each examination was priced by"),
            "review": Output("<results>/cases/{dataset}.review.csv",
                             "examinations that nothing priced, to be filled in as overrides; as private as the cases"),
        },
    ),
    Stage(
        "write_data_card", "Write a data set's card: counts, attrition, leaks, distributions, price coverage, licence.",
        "cdpr.report.data_card:write_data_card",
        reads=("tier", "data.{dataset}"),
        runtime=("data.{dataset}.path",),
        options=_DATASET,
        needs={"cases": "map_costs.cases", "report": "ingest_dataset.report", "coverage": "map_costs.coverage",
               "ingested": "ingest_dataset.record"},
        outputs={
            "md": Output("<results>/cards/{dataset}.md", "the card to read"),
            "json": Output("<results>/cards/{dataset}.json", "its numbers"),
            "png": Output("<results>/cards/{dataset}.png", "the figure"),
            "pdf": Output("<results>/cards/{dataset}.pdf", "the figure for print"),
        },
        also=sources.data_sets,
    ),
    Stage(
        "remove_leaks", "Make the leak-controlled variant of a benchmark's test cases.",
        "cdpr.ingest.leaks:remove_leaks",
        options=_DATASET,
        needs={"cases": "map_costs.cases"},
        outputs={
            "controlled": Output("<results>/cases/{dataset}_controlled.jsonl",
                                 "the test cases without what gives the diagnosis away"),
            "report": Output("<results>/cases/{dataset}_controlled.report.json", "what was taken out"),
        },
    ),
    Stage(
        "warm_start_policy", "Teach a policy medicine and the habits of clinicians; the tiny one is built first.",
        "cdpr.training.torch.warm_start:warm_start_policy",
        reads=("warm_start", "costs", *DECISIONS),
        needs={name: Product("map_costs", "cases", {"dataset": name}) for name in LESSONS}
        | {"model": sources.policy_folder},
        outputs={
            "policy": Output("<results>/policies/warm_start", "Hugging Face folder", folder=True),
            "metrics": Output("<results>/policies/warm_start.metrics.jsonl", "loss and validation per step"),
        },
        tensors=True,
    ),
    Stage(
        "train_policy", "Train a policy with one variant (grpo, cdpr, vineppo, gigpo, all_actions, an ablation, ...).",
        sources.engine,
        reads=("training", "credit", "comparators", "warm_start.cases", *DECISIONS),
        runtime=("training.save_every", *JUDGED, *_PLACES),
        options={"run": "VARIANT-seedN, for example cdpr-seed0"},
        needs={"cases": sources.IN_DOMAIN_CASES, "init_policy": sources.init_policy},
        outputs={
            "policy": Output("<results>/training/{run}/policy", "Hugging Face folder", folder=True),
            "metrics": Output("<results>/training/{run}/metrics.jsonl", "learning curve"),
            "timings": Output("<results>/training/{run}/timings.jsonl", "seconds by step, other ones at every run"),
            "credit": Output("<results>/training/{run}/credit.jsonl.gz",
                             "what credit assignment found, one JSON object an iteration"),
        },
        record="<results>/training/{run}/run.json",
        also=sources.deciding_judges,
        more_code=sources.training_code, experiment="cdpr/training", tensors=True, live=True,
    ),
    Stage(
        "evaluate_agent", "Let an agent work up the test cases of a data set and judge it.",
        "cdpr.evaluation.evaluate_agent:evaluate_agent",
        reads=("tier", "evaluation.decodings", "evaluation.seed", "evaluation.max_turn_tokens", "costs",
               "training.temperature", *DECISIONS),
        runtime=("agents", "frameworks", "evaluation.open_cases", *JUDGED),
        options={"run": RUN, "dataset": _DATASET_OR_VARIANT},
        needs={"cases": sources.benchmark_cases, "policy": sources.acting_policy},
        outputs={"evaluation": Output("<results>/evaluations/{run}/{dataset}.jsonl", "one line per case and decoding")},
        also=sources.acting_agent, more_code=sources.agents_code,
        experiment="cdpr/evaluation", tensors=True,
    ),
    Stage(
        "check_headroom", "Measure what the policy leaves to learn, and the smallest difference that can be shown.",
        "cdpr.evaluation.preflight:check_headroom",
        reads=("utility", "tier", "seeds", "evaluation.decodings", "environment"),
        needs={f"{run}_{dataset}": sources.before_training(run, dataset) for dataset in BENCHMARKS
               for run in ("warm_start", "immediate", "value_of_information", "discounted_information", "zero_test")}
        | {f"cases_{dataset}": sources.hospital_cases(dataset) for dataset in BENCHMARKS},
        outputs={"preflight": Output("<results>/preflight.json", "headrooms, obstacles, and what can be shown")},
    ),
    # What the results page shows, in its order.
    _figure("accuracy_cost", "Draw accuracy against cost, with the frontier of the reference policies.",
            behind.pictured, PageEntry(
                "Accuracy against cost",
                "Accuracy against average cost per case: above the policy before training and the trained ones on each "
                "data set, below every agent in-domain. The dotted line joins the best reference policies. It is not "
                "an upper bound.")),
    _table("main_table", "Write Table 1: every agent on every benchmark, with intervals.", behind.main_runs, PageEntry(
               "Main table", "Every agent on every benchmark. Each number leads to the runs that made it.", 3),
           file="main_results"),
    _table("open_cases", "Write the table of open cases: every agent on AgentClinic's, and on your own in FHIR.",
           behind.open_cases, PageEntry(
               "Open cases",
               "Every agent on real cases that anyone may have, in the main table's layout; no part of it.")),
    _table("effort", "Write the table of calls, tokens and dollars of every agent, and of its bad replies.",
           behind.main_runs, PageEntry(
               "What the systems took",
               "Calls, tokens and dollars of every system, and what went wrong with its replies: a row whose replies "
               "often fail shows how a model keeps to the format rather than how it diagnoses.")),
    _table("ablations", "Write Table 2: CDPR without one of its parts.", behind.ablations, PageEntry(
               "Ablations", "CDPR without one of its parts, in-domain.", 2)),
    _table("dynamic_vs_static", "Write Table 3: CDPR against a diagnosis from the whole record at once.",
           behind.dynamic_vs_static, PageEntry(
               "Dynamic against static diagnosis",
               "CDPR, which asks for one examination at a time, against a diagnosis from the whole record.", 2)),
    _figure("expert_study", "Draw the radar of the expert study, with marks of significance.",
            behind.nothing, PageEntry(
                "Expert study",
                "Means of the five dimensions per method, as a radar and with intervals; a star marks where ours is "
                "significantly above the next-best baseline. Who rated stands below it."),
            study="analyse_study.analysis"),
    _table("expert_study", "Write the table of the expert study.", behind.nothing, PageEntry(
               "Expert study",
               "Decisions of several methods at the same states, rated blindly. In the demo the raters are simulated, "
               "and no physician has seen anything."),
           study="analyse_study.analysis"),
    _figure("training_efficiency", "Draw accuracy against generated tokens.",
            behind.curves("training_efficiency"), PageEntry(
                "Training efficiency",
                "Validation accuracy, utility and cost during training, against generated tokens; one line per "
                "method, a band over its seeds."), "learning_curves"),
    _figure("training_time", "Draw accuracy against the time of training.",
            behind.curves("training_efficiency"), PageEntry(
                "Training efficiency",
                "The same against the time of training, of the processor on a CPU.", apart=True), "learning_curves"),
    _figure("sensitivity", "Draw the six panels of the paper's sensitivity analysis: M, K, H, beta, eta, n.",
            behind.swept("sensitivity"), PageEntry(
                "Sensitivity",
                "In-domain results for each value of the paper's six settings M, K, H, β, η and n, the default "
                "marked. A setting of which only one value was trained has no panel."),
            csv="the numbers"),
    _figure("learning_curves", "Draw accuracy, AEN, AEC, unavailable requests and utility by iteration.",
            behind.curves("learning_curves"), PageEntry(
                "Learning curves",
                "Validation accuracy, examinations, cost, unavailable requests and utility by training step; one line "
                "per method, a band over its seeds.")),
    _figure("learning_path", "Draw accuracy against cost during training, by iteration.",
            behind.curves("learning_path"), PageEntry(
                "Learning curves",
                "Accuracy against cost during training, on the validation cases; one marker per validation."),
            "learning_curves"),
    _figure("cost_distribution", "Draw how the cost of a workup is distributed over cases.",
            behind.main_runs, PageEntry(
                "Distribution of costs",
                "How the cost of a workup is distributed over cases, per data set and agent."), "cost_figures"),
    _table("sample_case", "Write the sample case: one test case with its prices, and what each agent did on it.",
           behind.sample_case, PageEntry(
               "A sample case",
               "One test case, chosen by a digest and not by hand: its examinations, and what each agent did."),
           cases=sources.IN_DOMAIN_CASES),
    _figure("headroom", "Draw accuracy split into evidence, reading errors and choice of examinations.",
            behind.nothing, PageEntry(
                "Can this experiment answer its question?",
                "What the policy gets right before training, when it must diagnose at once and on the evidence that it "
                "gathers; what it loses by reading that evidence wrongly; and what value of information reaches for no "
                "more money. The bracket is the smallest difference that the planned cases and seeds can show."),
            preflight="check_headroom.preflight"),
    _table("headroom", "Write the table of headrooms and of the smallest differences that can be shown.",
           behind.nothing, PageEntry(
               "Can this experiment answer its question?",
               "Measured on the policy before training: what there is to learn, and whether it could be seen. Where "
               "the largest gain is smaller than the smallest difference that can be shown, no result of this "
               "experiment means anything.", 2),
           preflight="check_headroom.preflight"),
    # Tables and figures beside the page, each with a target of its own.
    _table("comparators", "Write the table of ways to assign credit: GRPO, VinePPO, GiGPO, CDPR, all actions.",
           behind.comparators, None),
    _table("frontier", "Write the table of rules at matched cost.", behind.frontier, None),
    _table("frontier_parts", "Write what a rule's gain is made of, and the grid that chose the rules' settings.",
           behind.frontier_parts, None, cases=sources.hospital_cases(IN_DOMAIN)),
    _figure("frontier", "Draw accuracy against cost of every rule, swept over the weight of correctness.",
            behind.frontier, None),
    _table("judge_agreement", "Write the table of how far two judges agree, and of the figures that hang on the judge.",
           behind.judged_twice, None),
    _table("leak_control", "Write the table of agents on each benchmark and on its leak-controlled variant.",
           behind.leak_control, None),
    _figure("sensitivity_all", "Draw the same six panels with every point that the experiments list.",
            behind.swept("sensitivity", every=True), None, "sensitivity", csv="the numbers"),
    _figure("further_sensitivity", "Draw sweeps of what the paper leaves open: n_s, lambdas, cost unit, ...",
            behind.swept("further_sensitivity", every=True), None, "sensitivity", csv="the numbers"),
    _figure("engines", "Draw the learning curves of verl beside the torch trainer's.", behind.curves("engines"), None,
            "learning_curves", csv="how they agree"),
    _result(
        "write_claims", "Judge every claim of the paper by what was measured.",
        "cdpr.ledger.page:write_claims", _page_evidence,
        {"json": Output("<results>/claims.json", "the ledger"),
         "md": Output("<results>/claims.md", "the ledger to read"),
         "csv": Output("<results>/claims.csv", "one row per claim"),
         "time": Output("<results>/claims_of_time.md", "the claims about time, judged on this machine")},
        also=sources.data_sets_and_paper, needs={"study": "analyse_study.analysis"},
    ),
    _result(
        "write_report", "Write one HTML page with all results, each linked to the run that made it.",
        "cdpr.report.report_page:write_report", _page_evidence,
        {"html": Output("<results>/report.html", "the page")},
        follows=_page_parts, reads=("inspector.runs",), also=_page_texts,
        more_code=lambda experiment, options: sorted({e.module for e in page_entries(experiment) if e.module}),
    ),
    Stage(
        "write_timings", "Sum up what the computing costs: time and memory per stage, by every run.json.",
        "cdpr.report.timings:write_timings",
        outputs={"md": Output("<results>/timings.md", "the page")},
    ),
    Stage(
        "measure_credit_quality", "Measure how well process rewards estimate the true advantage, and at what price.",
        "cdpr.analysis.credit_quality:measure_credit_quality",
        reads=("analysis", "credit", "training.group_size", "training.temperature", *DECISIONS),
        needs={"cases": sources.IN_DOMAIN_CASES, "policy": sources.init_policy},
        outputs={"quality": Output("<results>/analysis/credit_quality.json", "one row of measures per setting")},
        runtime=JUDGED, also=sources.deciding_judges,
        more_code=sources.credit_code,
        tensors=True,
    ),
    Stage(
        "plot_credit_quality", "Draw bias, variance and rank correlation of the process reward by setting and price.",
        "cdpr.report.credit_quality:plot_credit_quality",
        reads=("tier", "data", "utility.cost_unit_usd"),
        needs={"quality": "measure_credit_quality.quality"},
        outputs=_plot("credit_quality"),
        also=sources.data_sets,
    ),
    *study_stages.STAGES,
    Stage(
        "credit_workups", "Credit the decisions of a policy on test cases, as CDPR's training would have done.",
        "cdpr.analysis.credit_workups:credit_workups",
        reads=("inspector.cases", "credit", "evaluation.decodings", "evaluation.seed",
               "training.temperature", *DECISIONS),
        runtime=JUDGED,
        options={"run": RUN, "dataset": _DATASET["dataset"]},
        needs={"cases": sources.benchmark_cases, "evaluation": "evaluate_agent.evaluation",
               "policy": sources.acting_policy, "init_policy": sources.init_policy},
        outputs={"credit": Output("<results>/analysis/credit/{run}/{dataset}.jsonl.gz",
                                  "one JSON object a case: its workups, states, candidates, continuations and R_proc")},
        also=sources.deciding_judges,
        more_code=sources.credit_code,
        tensors=True,
    ),
    Stage(
        "write_inspector", "Write the decision inspector: a site to step through workups and see why they went so.",
        "cdpr.inspector.write:write_inspector",
        reads=(*_REPORTED, "inspector"), runtime=("training.save_every", "governance", "calls"),
        evidence=behind.inspected,
        needs={f"cases_{name}": Product("map_costs", "cases", {"dataset": name}) for name in BENCHMARKS}
        | {"study": "analyse_study.means"},
        outputs={"site": Output("<results>/inspector", "the site: open its index.html", folder=True)},
        also=sources.data_sets, follows=behind.inspected_credit,
        more_code=lambda experiment, options: [*judging_code(experiment.settings), "cdpr.agents.policy"],
    ),
    Stage(
        "init_tracking", "Create the MLflow database and its experiments once, before jobs run side by side.",
        "cdpr.tracking.mlflow_index:init_tracking",
        outputs={"ready": Output("<results>/tracking.ready", "marker")},
        record="<results>/tracking.init.json",
    ),
)  # fmt: skip

STAGES: dict[str, Stage] = {stage.name: stage for stage in _ALL}
TABLES = tuple(name for name, stage in STAGES.items() if "tex" in stage.outputs)
FIGURES = tuple(name for name in STAGES if name.startswith("plot_"))
