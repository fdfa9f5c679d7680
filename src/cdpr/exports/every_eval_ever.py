"""An evaluation in the exchange format of Every Eval Ever, version 0.2.2 of its schema
(https://github.com/evaleval/every_eval_ever): means with intervals, and no text of any case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .. import __version__
from ..evaluation.metrics import Estimate, Summary, read_evaluation, summarise
from ..files import write_text
from ..results.sources import source_of
from .workups import Exported

SCHEMA_VERSION = "0.2.2"

# Name, unit, whether lower is better, and the bounds of a metric that has them.
_METRICS: dict[str, tuple[str, str, bool, tuple[float, float] | None]] = {
    "accuracy": ("Accuracy", "proportion", False, (0.0, 1.0)),
    "utility": ("Utility", "points", False, None),
    "aen": ("Average number of examinations", "examinations", True, None),
    "aec": ("Average examination cost", "US dollars", True, None),
    "n_na": ("Infeasible requests", "requests", True, None),
    "forced": ("Forced diagnoses", "proportion", True, (0.0, 1.0)),
}


def write_every_eval_ever(exported: Exported, file: Path, organization: str) -> int:
    """Write the record of a run on a data set; returns how many results it holds. Raises EvaluationError for rows that
    cannot be used."""
    record = build_record(exported, organization)
    write_text(file, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    return len(record["evaluation_results"])


def build_record(exported: Exported, organization: str) -> dict[str, Any]:
    """The record as JSON; ``organization`` answers for it. Its values of additional details are strings, as the schema
    asks."""
    settings, time = exported.settings, f"{exported.ended.timestamp():.0f}"
    results = []
    for decoding, evaluation in read_evaluation(exported.evaluation).items():
        summary = summarise([evaluation], settings.evaluation.bootstrap, settings.evaluation.seed)
        results += [_result(exported, name, decoding, summary) for name in _METRICS]
    model, own = exported.model, exported.model is None
    about = {"name": exported.run, "id": exported.model_name}
    if model is not None:
        about |= {"name": model.label or model.id or exported.run, "inference_platform": model.provider}
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"cdpr_{exported.dataset}/{exported.model_name.replace('/', '_')}/{time}",
        "evaluation_timestamp": time,
        "retrieved_timestamp": time,
        "source_metadata": {
            "source_name": "cdpr",
            "source_type": "evaluation_run",
            "source_organization_name": organization,
            "evaluator_relationship": "first_party" if own else "third_party",
        },
        "eval_library": {"name": "cdpr", "version": __version__},
        "model_info": {**about, "additional_details": exported.told},
        "evaluation_results": results,
    }


def _result(exported: Exported, name: str, decoding: str, summary: Summary) -> dict[str, Any]:
    label, unit, lower, bounds = _METRICS[name]
    estimate: Estimate = summary.estimates[name]
    config: dict[str, Any] = {
        "evaluation_description": f"Sequential diagnosis of {exported.told['cases']}, examinations ordered at a price.",
        "metric_id": name if name == "accuracy" else f"cdpr.{name}",
        "metric_name": label,
        "metric_unit": unit,
        "lower_is_better": lower,
    }
    if bounds:
        config |= {"score_type": "continuous", "min_score": bounds[0], "max_score": bounds[1]}
    told = exported.settings.environment
    return {
        "evaluation_result_id": f"{exported.dataset}/{decoding}/{name}",
        "evaluation_name": f"cdpr/{exported.dataset}",
        "source_data": _source(exported, summary.cases),
        "metric_config": config,
        "score_details": {
            "score": estimate.mean,
            "uncertainty": {
                "confidence_interval": {
                    "lower": estimate.low, "upper": estimate.high, "confidence_level": 0.95,
                    "method": "Wilson" if name == "accuracy" else "bootstrap over cases",
                },
                "num_samples": summary.cases,
                "num_bootstrap_samples": exported.settings.evaluation.bootstrap,
            },
        },
        "generation_config": {
            "generation_args": _sampling(exported, decoding),
            "additional_details": {"decoding": decoding, "max_turns": str(told.max_turns),
                                   "budget_usd": str(told.budget_usd or "none")},
        },
    }  # fmt: skip


def _sampling(exported: Exported, decoding: str) -> dict[str, Any]:
    settings, model = exported.settings, exported.model
    asked = model.sampling.model_dump(include={"temperature", "top_p", "top_k"}, exclude_none=True) if model else {}
    room = settings.policy.max_turn_tokens if model is None else settings.evaluation.max_turn_tokens
    more = model.sampling.max_tokens if model else None
    temperature = 0.0 if decoding == "greedy" else settings.training.temperature
    return {"temperature": temperature, **asked, "max_tokens": max(room, more or 0)}


def _source(exported: Exported, cases: int) -> dict[str, Any]:
    """Where the cases come from: their page, or that they are made up here."""
    source = source_of(exported.settings, exported.dataset)
    details = {"synthetic": exported.told["synthetic"], "what": source.what, "licence": source.licence,
               "test_cases": str(cases)}  # fmt: skip
    where: dict[str, Any] = {"source_type": "url", "url": list(source.links)} if source.links else {
        "source_type": "other", "source_id": exported.record.digest_of("cases") or ""}  # fmt: skip
    return {"dataset_name": source.label, **where, "additional_details": details}
