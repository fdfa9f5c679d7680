"""An evaluation as a log of Inspect (``.eval``), for ``inspect view`` and whatever reads its logs.

Written by Inspect's own ``write_eval_log`` (https://inspect.aisi.org.uk/eval-logs.html): the optional extra
``cdpr[inspect]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..evaluation.metrics import METRICS
from .workups import Exported, ExportError, Workup, workups

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalScore
    from inspect_ai.model import ModelUsage

# A decoding is an epoch: Inspect tells samples of the same case apart by it.
EPOCHS = {"greedy": 1, "sampled": 2}
SCORER = "cdpr"
# Scores of a sample, by field of its row.
_SCORES = {"utility": "utility", "cost_usd": "cost_usd", "examinations": "n_issued", "infeasible": "n_na"}


def write_inspect_log(exported: Exported, file: Path) -> int:
    """Write the log; returns how many samples it holds, one per case and decoding.

    Raises ExportError without the extra, for credentialed cases, and as :func:`~.workups.workups`.
    """
    exported.test_cases()  # refused before anything is asked of a package that may be missing
    try:
        from inspect_ai.log import write_eval_log
    except ImportError:
        raise ExportError("writing logs of Inspect needs the extra `inspect`: pip install 'cdpr[inspect]'") from None
    if file.suffix != ".eval":
        raise ExportError(f"{file}: a log of Inspect ends in .eval")
    log = build_log(exported)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_eval_log(log, str(file), format="eval")
    return len(log.samples or [])


def build_log(exported: Exported) -> EvalLog:
    """The log in memory."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalPlan, EvalResults, EvalSpec, EvalStats
    from inspect_ai.model import GenerateConfig

    found, key = list(workups(exported)), exported.record.run_key
    samples = [_sample(exported, workup) for workup in found]
    decodings = sorted({workup.row.decoding for workup in found}, key=EPOCHS.__getitem__)
    ids = list(dict.fromkeys(workup.row.note_id for workup in found))
    settings, usage = exported.settings, [s.model_usage[exported.model_name] for s in samples if s.model_usage]
    return EvalLog(
        status="success",
        eval=EvalSpec(
            eval_id=key, run_id=key, task_id=f"{exported.dataset}-{key}", created=_time(exported, 0.0),
            task=f"cdpr/{exported.dataset}", task_version=__version__, solver=exported.entry.acts,
            task_display_name=exported.told["cases"],
            dataset=EvalDataset(name=exported.dataset, samples=len(ids), sample_ids=ids, shuffled=False),
            model=exported.model_name, model_generate_config=GenerateConfig(),
            config=EvalConfig(epochs=len(decodings)), packages={"cdpr": __version__},
            tags=[exported.told["tier"], *(["synthetic"] if exported.told["synthetic"] == "true" else [])],
            metadata={
                **exported.told,
                "messages": "told again from the agent's replies; what it said to itself or other models is not here",
                "environment": settings.environment.model_dump(mode="json"),
                "epochs": {str(EPOCHS[decoding]): decoding for decoding in decodings},
            },
        ),
        plan=EvalPlan(name="cdpr"),
        results=EvalResults(
            total_samples=len(samples), completed_samples=len(samples),
            scores=[_score(found, decoding) for decoding in decodings],
        ),
        stats=EvalStats(
            started_at=_time(exported, exported.record.wall_seconds), completed_at=_time(exported, 0.0),
            model_usage={exported.model_name: _sum(usage)} if usage else {},
        ),
        samples=samples,
    )  # fmt: skip


def _sample(exported: Exported, workup: Workup) -> EvalSample:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput
    from inspect_ai.scorer import Score

    row, case, name = workup.row, workup.case, exported.model_name
    epoch = EPOCHS[row.decoding]
    messages = [_message(said, f"{row.note_id}-{epoch}-{i}", name) for i, said in enumerate(workup.messages)]
    last = messages[-1]
    assert isinstance(last, ChatMessageAssistant)
    usage = _usage(row.prompt_tokens, row.completion_tokens) if row.calls else None
    scores = {"correct": Score(value="C" if row.correct else "I", answer=row.diagnosis)}
    scores |= {score: Score(value=float(getattr(row, field))) for score, field in _SCORES.items()}
    return EvalSample(
        id=row.note_id, epoch=epoch, uuid=f"{exported.record.run_key}-{row.note_id}-{epoch}",
        input=messages[: workup.opening], target=row.gold, messages=messages,
        output=ModelOutput(model=name, choices=[ChatCompletionChoice(message=last)], usage=usage),
        scores=scores, model_usage={name: usage} if usage else {},
        metadata={
            **row.model_dump(exclude={"note_id", "replies", "gold", "diagnosis"}),
            "exam_cost_usd": case.exam_cost_map, "exam_billing_group": case.exam_billing_group,
        },
    )  # fmt: skip


def _message(said: Mapping[str, str], identity: str, model: str) -> Any:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    match said["role"]:
        case "assistant":
            return ChatMessageAssistant(id=identity, content=said["content"], model=model, source="generate")
        case "system":
            return ChatMessageSystem(id=identity, content=said["content"])
        case _:
            return ChatMessageUser(id=identity, content=said["content"])


def _score(found: list[Workup], decoding: str) -> EvalScore:
    """Means over the cases of a decoding, by the names that tables use."""
    from inspect_ai.log import EvalMetric, EvalScore

    rows = [workup.row for workup in found if workup.row.decoding == decoding]
    metrics = {name: fmean(getattr(row, field) for row in rows) for name, field in METRICS.items()}
    return EvalScore(
        name=decoding, scorer=SCORER, scored_samples=len(rows), params={"decoding": decoding},
        metrics={name: EvalMetric(name=name, value=value) for name, value in metrics.items()},
    )  # fmt: skip


def _usage(asked: int | None, answered: int | None) -> ModelUsage | None:
    from inspect_ai.model import ModelUsage

    if asked is None or answered is None:
        return None
    return ModelUsage(input_tokens=asked, output_tokens=answered, total_tokens=asked + answered)


def _sum(usages: list[ModelUsage]) -> ModelUsage | None:
    return _usage(sum(u.input_tokens for u in usages), sum(u.output_tokens for u in usages))


def _time(exported: Exported, before: float) -> str:
    from datetime import UTC, timedelta

    return (exported.ended - timedelta(seconds=before)).astimezone(UTC).isoformat(timespec="seconds")
