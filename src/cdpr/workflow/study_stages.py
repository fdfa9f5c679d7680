"""The stages of the expert study, where their inputs come from, and what else decides their outputs."""

from collections.abc import Mapping
from typing import Any

from ..llm.spec import modules_of
from ..settings.datasets import BENCHMARKS, IN_DOMAIN
from ..settings.queries import named_model
from ..settings.schema import MOST_METHODS
from ..study.methods import all_synthetic, left_out, study_run, study_runs
from . import sources
from .experiment import Experiment, Options, Product, Source
from .stage import ACTING, JUDGED, RUN, Need, Output, Stage

_FOLDER = "<results>/study"
CASES: dict[str, Need] = {name: Product("map_costs", "cases", {"dataset": name}) for name in BENCHMARKS}


def states(experiment: Experiment, options: Options) -> Product:
    """The states of the source that the settings name."""
    source = study_run(experiment.settings, experiment.settings.study.source)
    return Product("sample_states", "states", {"run": source})


def archived_states(experiment: Experiment, options: Options) -> Source:
    """States of `sample_states`, or of the copy of a study that was handed out (``study.kept``)."""
    folder, now = experiment.settings.study.kept, states(experiment, options)
    return f"{folder}/states/{now.options['run']}.jsonl" if folder else now


def archived(output: str, path: str) -> Need:
    def of(experiment: Experiment, options: Options) -> Source:
        """A file of `make_forms`, or of the copy of a study that was handed out (``study.kept``)."""
        folder = experiment.settings.study.kept
        return f"{folder}/{path}" if folder else Product("make_forms", output)

    return of


def _proposals(position: int) -> Need:
    def of(experiment: Experiment, options: Options) -> Source:
        runs = study_runs(experiment.settings)
        return Product("propose_actions", "proposals", {"run": runs[position]}) if position < len(runs) else None

    return of


PROPOSALS: dict[str, Need] = {f"proposals_{n + 1}": _proposals(n) for n in range(MOST_METHODS)}


ARCHIVED: dict[str, Need] = {
    "states": archived_states,
    "cards": archived("cards", "cards.json"),
    "sealed": archived("sealed", "sealed/key.json"),
}


def ratings(experiment: Experiment, options: Options) -> Source:
    """Forms that came back; simulated ones where all cases are synthetic; else none yet."""
    if experiment.settings.study.ratings:
        return experiment.settings.study.ratings
    return Product("simulate_ratings", "ratings") if all_synthetic(experiment.settings) else None


def model_ratings(experiment: Experiment, options: Options) -> Source:
    """The form that a language model filled in."""
    return Product("rate_by_model", "ratings") if experiment.settings.study.model_rater else None


# What else decides outputs


def actor(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """The acting agent, as in an evaluation."""
    return sources.acting_agent(experiment, {**options, "dataset": IN_DOMAIN})


def synthetic(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Whether all cases are synthetic, which the forms and the analysis say."""
    return {"synthetic": all_synthetic(experiment.settings)}


def compared(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    """Why methods are left out of the comparison, and whether all cases are synthetic."""
    return {"left_out": left_out(experiment.settings), **synthetic(experiment, options)}


def model_rater(experiment: Experiment, options: Options) -> Mapping[str, Any]:
    name = experiment.settings.study.model_rater
    return {"model": named_model(experiment.settings, name).request_settings()} if name else {}


def model_rater_code(experiment: Experiment, options: Options) -> list[str]:
    name = experiment.settings.study.model_rater
    return list(modules_of(named_model(experiment.settings, name))) if name else []


STAGES = (
    Stage(
        "sample_states", "Sample decision states of one policy's workups, for the expert study.",
        "cdpr.study.sampling:sample_states",
        reads=("study.states", "study.seed", *ACTING), runtime=("agents", "frameworks", *JUDGED),
        options={"run": RUN},
        needs=CASES | {"policy": sources.acting_policy},
        outputs={"states": Output(f"{_FOLDER}/states/{{run}}.jsonl", "one state a line; as private as the cases")},
        also=actor, more_code=sources.agents_code, tensors=True,
    ),
    Stage(
        "propose_actions", "Ask an agent what it would do at every state of the expert study.",
        "cdpr.study.proposals:propose_actions",
        reads=ACTING, runtime=("agents", "frameworks", *JUDGED),
        options={"run": RUN},
        needs=CASES | {"policy": sources.acting_policy, "states": states},
        outputs={"proposals": Output(f"{_FOLDER}/proposals/{{run}}.jsonl", "one proposal a line")},
        also=actor, more_code=sources.agents_code, tensors=True,
    ),
    Stage(
        "make_forms", "Blind the proposals, and write what raters fill in.",
        "cdpr.study.forms:make_forms",
        reads=("study.methods", "study.raters", "study.merge_identical", "study.seed"),
        runtime=("agents", "models", "serving", "data"),
        needs={"states": states, **PROPOSALS},
        outputs={
            "cards": Output(f"{_FOLDER}/cards.json", "what is rated by whom, and not who proposed it"),
            "forms": Output(f"{_FOLDER}/forms", "HTML and XLSX per rater; REDCap, Label Studio", folder=True),
            "sealed": Output(f"{_FOLDER}/sealed/key.json", "who proposed what; the analysis alone opens it"),
            "protocol": Output(f"{_FOLDER}/protocol.md", "sample, load and power; not for raters"),
        },
        also=compared,
    ),
    Stage(
        "simulate_ratings", "Let simulated raters, who know the synthetic hospital, fill in the forms.",
        "cdpr.study.simulated:simulate_ratings",
        reads=("study.seed", "costs"),
        needs={name: ARCHIVED[name] for name in ("states", "cards")},
        outputs={"ratings": Output(f"{_FOLDER}/simulated", "one form per simulated rater", folder=True)},
    ),
    Stage(
        "rate_by_model", "Let a language model fill in a form of the expert study.",
        "cdpr.study.model_rater:rate_by_model",
        reads=("study.model_rater", "policy"), runtime=("models", "calls", "governance"),
        needs={name: ARCHIVED[name] for name in ("states", "cards")},
        outputs={"ratings": Output(f"{_FOLDER}/model_rater/ratings.json", "the form that it filled in")},
        also=model_rater, more_code=model_rater_code,
    ),
    Stage(
        "analyse_study", "Read the forms that came back, open the key, and test.",
        "cdpr.study.analysis:analyse_study",
        reads=("study", "evaluation.bootstrap"), runtime=("study.ratings", "study.kept", "data"),
        needs={**ARCHIVED, "ratings": ratings, "model_ratings": model_ratings},
        outputs={
            "analysis": Output(f"{_FOLDER}/analysis.json", "agreement, means, tests"),
            "means": Output(f"{_FOLDER}/means.jsonl", "means by state and run, unsealed; as private as the cases"),
        },
        also=synthetic,
    ),
)  # fmt: skip
