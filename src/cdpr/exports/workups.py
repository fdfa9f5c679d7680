"""Finished workups as conversations, told again from rows and cases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from ..agents.build import agent_class, agent_entry
from ..cases import CaseRecord, iterate_records
from ..environment import PromptBuilder
from ..environment.opening import open_environment
from ..environment.prompt import Conversation
from ..environment.utility import utility_formula
from ..evaluation.replay import deviations, replay
from ..evaluation.row import EvaluationRow, read_rows
from ..files import file_digest
from ..records import RunRecord
from ..results.methods import synthetic
from ..results.provenance import check_provenance, find_record, read_record
from ..results.sources import source_of
from ..settings import AgentEntry, ModelEntry, Settings, model_of


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
    def open(cls, settings: Settings, run: str, dataset: str, evaluation: Path, cases: Path) -> Exported:
        """Raises ExportError where a file is missing or the cases are others than those evaluated, ProvenanceError
        where the settings are."""
        place = find_record(evaluation)
        if not evaluation.exists() or place is None:
            raise ExportError(f"{evaluation}: missing, or without its run.json; evaluate first: snakemake {evaluation}")
        check_provenance(settings, [evaluation])
        record = read_record(place)
        if not cases.exists() or record.digest_of("cases") not in (None, file_digest(cases)):
            raise ExportError(
                f"{cases}: not the cases of {evaluation} (missing, or their digests differ); evaluate again"
            )
        return cls(settings, run, dataset, evaluation, cases, record)

    @property
    def entry(self) -> AgentEntry:
        """What the registry says of the run."""
        return agent_entry(self.settings, self.run)

    @property
    def model(self) -> ModelEntry | None:
        """The language model of the registry behind the run; None for policies and agents without one."""
        return model_of(self.settings, self.entry)

    @property
    def model_name(self) -> str:
        """The acting model as ``PROVIDER/ID``; what was trained here, or acts without one, is ``cdpr/RUN``."""
        model = self.model
        if model is None:
            return f"cdpr/{self.run}"
        name = model.id or Path(str(model.folder)).name
        return name if "/" in name else f"{model.provider}/{name}"

    @property
    def told(self) -> dict[str, str]:
        """What must stand beside its figures: scale, prices, and whether patients stand behind the cases."""
        source = source_of(self.settings, self.dataset)
        return {
            "tier": self.record.tier or self.settings.tier,
            "run": self.run,
            "run_key": self.record.run_key,
            "acts": self.entry.acts,
            "cases": source.label,
            "cases_are": source.what,
            "synthetic": str(synthetic(self.settings, self.dataset)).lower(),
            "licence": source.licence,
            "price_map": self.settings.costs.price_map,
            "utility": utility_formula(self.settings.utility),
            "aen": "examinations requested per case, physical examination left out",
            "aec": "US dollars of examinations per case, each billing group charged once",
        }  # fmt: skip

    @property
    def ended(self) -> datetime:
        """When the evaluation had ended: exports bear its time, so that the same run gives the same export."""
        try:
            return datetime.fromisoformat(self.record.started) + timedelta(seconds=self.record.wall_seconds)
        except ValueError:
            raise ExportError(f"{self.evaluation}: its run.json does not say when it began; evaluate again") from None

    def test_cases(self) -> dict[str, CaseRecord]:
        """The cases by ``note_id``. Raises ExportError where one of them is credentialed: their text goes nowhere."""
        cases = {case.note_id: case for case in iterate_records(self.cases, "test")}
        if any(case.credentialed for case in cases.values()):
            raise ExportError(
                f"{self.dataset}: its cases are credentialed, so their workups are not exported: a log holds the text "
                "of every case. Tables, figures and --every-eval-ever hold none, and may be shown"
            )
        return cases


@dataclass(frozen=True)
class Workup:
    """A workup as it can be shown: the ``opening`` messages of all its ``messages`` were there before the first
    reply."""

    case: CaseRecord
    row: EvaluationRow
    messages: Conversation
    opening: int


def workups(exported: Exported) -> Iterator[Workup]:
    """The workups of an evaluation, in the order of its rows.

    Answers are found anew by the environment and held against the counts of the row, so that no log tells of a workup
    that was not. Notes that an agent writes for itself, and conversations among several models, are not told. Raises
    ExportError for credentialed cases, rows without replies and answers that differ.
    """
    settings, entry, cases = exported.settings, exported.entry, exported.test_cases()
    environment, whole = open_environment(settings, credentialed=False), agent_class(entry).whole_record
    # Policies read as they were trained; whoever else acts by a language model reads the paper's prompt.
    prompt = settings.environment.prompt.model_copy(update={} if entry.own_policy else {"style": "full"})
    prompts = PromptBuilder(prompt, None, settings.policy.max_prompt_tokens)
    for row in read_rows(exported.evaluation):
        place = f"{exported.evaluation}: case {row.note_id}"
        if row.replies is None or row.note_id not in cases:
            raise ExportError(f"{place}: its row holds no replies, or is of no test case; evaluate again")
        case = cases[row.note_id]
        workup = asyncio.run(replay(environment, case, row.replies, row.forced))
        if not whole:
            _hold_to(deviations(row, workup.effort()), place)
        before = workup.states[-1]
        # The compact prompt has no words for it.
        forced = row.forced and prompt.style == "full"
        asked = prompts.static_messages(case) if whole else prompts.messages(before, forced)
        reply = {"role": "assistant", "content": row.replies[-1]}
        yield Workup(case, row, [*asked, reply], len(asked) - 2 * len(before.history))


def _hold_to(odd: list[str], place: str) -> None:
    if odd:
        raise ExportError(
            f"{place}: its requests are answered otherwise than when it was evaluated ({', '.join(odd)}); export it "
            "under the settings of its run.json, or evaluate again"
        )
