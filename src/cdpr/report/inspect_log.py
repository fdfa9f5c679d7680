"""An evaluation as a log of Inspect (``.eval``), for ``inspect view`` and other tools that read its logs.

The log is written by Inspect's own ``write_eval_log`` (https://inspect.aisi.org.uk/eval-logs.html), the optional extra
``cdpr[inspect]``. Its conversations are rebuilt from the rows of the evaluation and the cases.
"""

import asyncio
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Self

from .. import __version__
from ..agents.build import agent_class, agent_entry
from ..cases import CaseRecord, iterate_records
from ..environment import PromptBuilder
from ..environment.opening import open_environment
from ..environment.prompt import Conversation
from ..environment.utility import utility_formula
from ..evaluation.metrics import METRICS
from ..evaluation.replay import deviations, replay
from ..evaluation.row import EvaluationRow, read_rows
from ..files import file_digest
from ..records import RunRecord
from ..settings import Settings, model_of
from .methods import synthetic
from .provenance import check_provenance, read_record
from .sources import source_of

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample, EvalScore
    from inspect_ai.model import ModelUsage

# A decoding is an epoch: Inspect tells samples of the same case apart by it.
EPOCHS = {"greedy": 1, "sampled": 2}
# Scores of a sample, by field of its row.
_SCORES = {"utility": "utility", "cost_usd": "cost_usd", "examinations": "n_issued", "infeasible": "n_na"}


class ExportError(ValueError):
    """A result that cannot be exported; the message says why and what to do."""


@dataclass(frozen=True)
class Exported:
    """An evaluation that is exported: whose, on what, its files and its ``run.json``."""

    settings: Settings
    run: str
    dataset: str
    evaluation: Path
    cases: Path
    record: RunRecord

    @classmethod
    def open(cls, settings: Settings, run: str, dataset: str, evaluation: Path, cases: Path) -> Self:
        """Raises ExportError for a missing file or other cases than those evaluated, ProvenanceError for settings."""
        record_path = evaluation.with_suffix(".run.json")
        if not evaluation.exists() or not record_path.exists():
            command = shlex.join(["snakemake", str(evaluation)])
            raise ExportError(f"{evaluation}: missing, or without its run.json; correct the name of the run, or "
                              f"evaluate it, with the same settings: {command}")  # fmt: skip
        check_provenance(settings, [evaluation])
        record = read_record(record_path)
        if not cases.exists() or record.digest_of("cases") not in (None, file_digest(cases)):
            raise ExportError(
                f"{cases}: not the cases of {evaluation} (missing, or their digests differ); evaluate again"
            )
        return cls(settings, run, dataset, evaluation, cases, record)

    @property
    def model_name(self) -> str:
        """The acting model as ``PROVIDER/ID``; what was trained here, or acts without one, is ``cdpr/RUN``."""
        model = model_of(self.settings, agent_entry(self.settings, self.run))
        if model is None:
            return f"cdpr/{self.run}"
        name = model.id or Path(str(model.folder)).name
        return name if "/" in name else f"{model.provider}/{name}"

    def time(self, before_end: float = 0.0) -> str:
        """Seconds before the end of the evaluation. The export has its times, so the same run gives the same log."""
        after = timedelta(seconds=self.record.wall_seconds - before_end)
        ended = self.record.started + after
        return ended.astimezone(UTC).isoformat(timespec="seconds")

    def test_cases(self) -> dict[str, CaseRecord]:
        """The cases by ``note_id``. Raises ExportError where one of them is credentialed, or its data set is by now."""
        cases = {case.note_id: case for case in iterate_records(self.cases, "test")}
        source = self.settings.data.source(self.dataset)
        if source.credentialed or any(case.credentialed for case in cases.values()):
            raise ExportError(
                f"{self.dataset}: its cases are credentialed, so their workups are not exported: a log holds the text "
                "of every case. Tables and figures hold none, and may be shown"
            )
        return cases


@dataclass(frozen=True)
class Workup:
    """A workup as a conversation. The first ``opening`` of its ``messages`` come before the first reply."""

    case: CaseRecord
    row: EvaluationRow
    messages: Conversation
    opening: int


def workups(exported: Exported) -> Iterator[Workup]:
    """The workups of an evaluation, in the order of its rows.

    The environment computes its answers again, and they are compared with the counts of the row, so that no log shows a
    workup that did not happen. Notes that an agent writes for itself and conversations among several models are left
    out. Raises ExportError for credentialed cases, rows without replies and answers that differ.
    """
    settings, entry, cases = exported.settings, agent_entry(exported.settings, exported.run), exported.test_cases()
    environment, whole = open_environment(settings, credentialed=False), agent_class(entry).whole_record
    # Policies read the prompt that they were trained with, other language models the paper's.
    prompt = settings.environment.prompt.model_copy(update={} if entry.own_policy else {"style": "full"})
    prompts = PromptBuilder(prompt, None, settings.policy.max_prompt_tokens)
    for row in read_rows(exported.evaluation):
        where = f"{exported.evaluation}: case {row.note_id}"
        if row.replies is None or row.note_id not in cases:
            raise ExportError(f"{where}: its row holds no replies, or is of no test case; evaluate again")
        case = cases[row.note_id]
        workup = asyncio.run(replay(environment, case, row.replies, row.forced))
        if not whole and (differences := deviations(row, workup.effort())):
            raise ExportError(
                f"{where}: its requests are not answered as in its evaluation ({', '.join(differences)}); export it "
                "under the settings of its run.json, or evaluate again"
            )
        before = workup.states[-1]
        # The compact prompt has no words for it.
        forced = row.forced and prompt.style == "full"
        prompt_messages = prompts.messages(before, forced or whole, whole)
        reply = {"role": "assistant", "content": row.replies[-1]}
        yield Workup(case, row, [*prompt_messages, reply], len(prompt_messages) - 2 * len(before.history))


def write_inspect_log(exported: Exported, file: Path) -> int:
    """Write the log; returns how many samples it holds, one per case and decoding.

    Raises ExportError without the extra, for credentialed cases, and as :func:`workups`.
    """
    exported.test_cases()  # refuses credentialed cases, also where the package is missing
    try:
        from inspect_ai.log import write_eval_log
    except ImportError:
        raise ExportError(
            "writing logs of Inspect needs inspect_ai, in an environment of its own: docs/how-to/export.md"
        ) from None
    if file.suffix != ".eval":
        raise ExportError(f"{file}: a log of Inspect ends in .eval")
    log = build_log(exported)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_eval_log(log, str(file), format="eval")
    return len(log.samples or [])


def build_log(exported: Exported) -> "EvalLog":
    """The log in memory."""
    from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalResults, EvalSpec, EvalStats

    all_workups, settings, key = list(workups(exported)), exported.settings, exported.record.run_key
    rows = [workup.row for workup in all_workups]
    samples = [_sample(exported, workup) for workup in all_workups]
    ids, decodings = list(dict.fromkeys(row.note_id for row in rows)), sorted({row.decoding for row in rows})
    source, made_up = source_of(settings, exported.dataset), synthetic(settings, exported.dataset)
    return EvalLog(
        status="success",
        eval=EvalSpec(
            eval_id=key, run_id=key, task_id=f"{exported.dataset}-{key}", created=exported.time(),
            task=f"cdpr/{exported.dataset}", task_version=__version__, model=exported.model_name,
            dataset=EvalDataset(name=exported.dataset, samples=len(ids), sample_ids=ids, shuffled=False),
            config=EvalConfig(epochs=len(decodings)), packages={"cdpr": __version__},
            metadata={
                "tier": exported.record.tier or settings.tier, "run": exported.run,
                "cases": source.what, "licence": source.licence, "synthetic": str(made_up).lower(),
                "price_map": settings.costs.price_map, "utility": utility_formula(settings.utility),
                "messages": "rebuilt from the replies; notes and conversations with other models are left out",
                "environment": settings.environment.model_dump(mode="json"),
                "epochs": {str(EPOCHS[decoding]): decoding for decoding in decodings},
            },
        ),
        results=EvalResults(
            total_samples=len(samples), completed_samples=len(samples),
            scores=[_score(rows, decoding) for decoding in decodings],
        ),
        stats=EvalStats(
            started_at=exported.time(exported.record.wall_seconds), completed_at=exported.time(),
            model_usage=_usage(exported, rows),
        ),
        samples=samples,
    )  # fmt: skip


def _sample(exported: Exported, workup: Workup) -> "EvalSample":
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatCompletionChoice, ModelOutput
    from inspect_ai.scorer import Score

    row, case, name = workup.row, workup.case, exported.model_name
    epoch = EPOCHS[row.decoding]
    messages = [_message(message, f"{row.note_id}-{epoch}-{i}", name) for i, message in enumerate(workup.messages)]
    last, usage = messages[-1], _usage(exported, [row])
    scores = {"correct": Score(value="C" if row.correct else "I", answer=row.diagnosis)}
    scores |= {score: Score(value=float(getattr(row, field))) for score, field in _SCORES.items()}
    return EvalSample(
        id=row.note_id, epoch=epoch, uuid=f"{exported.record.run_key}-{row.note_id}-{epoch}",
        input=messages[: workup.opening], target=row.gold, messages=messages,
        output=ModelOutput(model=name, choices=[ChatCompletionChoice(message=last)], usage=usage.get(name)),
        scores=scores, model_usage=usage,
        metadata={
            **row.model_dump(exclude={"note_id", "replies", "gold", "diagnosis"}),
            "exam_cost_usd": case.exam_cost_map, "exam_billing_group": case.exam_billing_group,
        },
    )  # fmt: skip


def _message(message: Mapping[str, str], identity: str, model: str) -> Any:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    if message["role"] == "assistant":
        return ChatMessageAssistant(id=identity, content=message["content"], model=model, source="generate")
    kind = ChatMessageSystem if message["role"] == "system" else ChatMessageUser
    return kind(id=identity, content=message["content"])


def _score(rows: Sequence[EvaluationRow], decoding: str) -> "EvalScore":
    """Means over the cases of a decoding, by the names that tables use."""
    from inspect_ai.log import EvalMetric, EvalScore

    rows = [row for row in rows if row.decoding == decoding]
    metrics = {name: fmean(getattr(row, metric.field) for row in rows) for name, metric in METRICS.items()}
    return EvalScore(
        name=decoding, scorer="cdpr", scored_samples=len(rows), params={"decoding": decoding},
        metrics={name: EvalMetric(name=name, value=value) for name, value in metrics.items()},
    )  # fmt: skip


def _usage(exported: Exported, rows: Sequence[EvaluationRow]) -> "dict[str, ModelUsage]":
    """The tokens of rows by model; empty where none were reported."""
    from inspect_ai.model import ModelUsage

    counts = [(row.prompt_tokens, row.completion_tokens) for row in rows if row.calls]
    reported = [(prompt, completion) for prompt, completion in counts if prompt is not None and completion is not None]
    if not reported:
        return {}
    prompts, completions = map(sum, zip(*reported, strict=True))
    usage = ModelUsage(input_tokens=prompts, output_tokens=completions, total_tokens=prompts + completions)
    return {exported.model_name: usage}
