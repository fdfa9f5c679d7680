"""One line of an evaluation file: the outcome of one episode, and how the episode is rebuilt from its replies."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt, ValidationInfo, field_validator

from ..cases import CaseRecord
from ..environment import DiagnosticEnvironment, Effort, State, Trajectory, Turn
from ..files import read_json_lines
from ..pseudonym import pseudonym
from ..settings import Settings

Decoding = Literal["greedy", "sampled"]
# The counts of the effort of an episode, which is what it requested and what that cost. A row has each as ``n_<name>``.
COUNTS = tuple(field.name for field in fields(Effort) if field.name != "cost_usd")


class Judging(BaseModel, frozen=True, extra="forbid", strict=True):
    """What language models did in judging an episode and matching its requests. A row has it only where the settings
    name a model for one of the two, or a second judge.

    ``by`` says what decided the verdict: ``table`` (of names), ``model``, or ``invalid`` (the table, because the
    model's answer was no verdict); None without a diagnosis. ``several``: the diagnosis listed several diseases, and
    the first of them was judged. ``second`` is the second judge's verdict, None without one. ``second_invalid``: the
    second judge's answer was no verdict, and the table judged in its place. ``n_matched`` counts requests that a model
    matched, ``n_unmatched`` those that it did not match because its answer was unreadable.
    """

    by: Literal["table", "model", "invalid"] | None = None
    several: bool = False
    second: bool | None = None
    second_invalid: bool = False
    n_matched: NonNegativeInt = 0
    n_unmatched: NonNegativeInt = 0


class EvaluationRow(BaseModel, frozen=True, extra="forbid", strict=True, allow_inf_nan=False):
    """The outcome of one episode: one case under one decoding.

    ``note_id``, ``diagnosis`` and ``gold`` (the true disease) are pseudonyms for credentialed cases, which are under a
    data use agreement; they are equal where the texts are equal (:mod:`cdpr.pseudonym`). ``turns`` counts all replies,
    with the diagnosis.
    ``n_issued`` to ``n_physical`` are the counts of :class:`~cdpr.environment.Effort`. ``n_tests`` (N_tests) and
    ``n_na`` (N_na) are what the utility charges. ``cost_usd`` is in US dollars. ``forced`` says that the last reply had
    to be a diagnosis. ``obtained`` lists the examinations whose results the agent read, in order. It is None for
    credentialed cases, since a rare list could identify a patient, and for an agent that sees the whole record.
    ``replies`` are the texts of all replies, None for credentialed cases.

    ``calls`` counts the calls of the agent's model, 0 for an agent without one. ``prompt_tokens`` and
    ``completion_tokens`` are sums over the calls, None where the server does not report them. ``silent`` calls returned
    no word: ``too_long`` of them because the conversation exceeded the model's context, ``refused`` because the model
    or a filter refused, ``failed`` for an unknown reason. ``unmarked`` calls returned a text in which the beginning of
    the answer was not found. ``cut`` calls had a prompt that lost a part, because of ``policy.max_prompt_tokens`` or
    the server. ``cut_results`` counts results that were shortened to ``max_observation_chars``. ``models`` are the
    names under which servers answered. A line leaves out ``judging`` where tables alone judge and match and there is no
    second judge, and ``models`` where no server answered.
    """

    note_id: str
    decoding: Decoding
    correct: bool
    diagnosis: str
    gold: str
    turns: NonNegativeInt
    n_issued: NonNegativeInt
    n_available: NonNegativeInt
    n_unavailable: NonNegativeInt
    n_invalid: NonNegativeInt
    n_repeated: NonNegativeInt
    n_physical: NonNegativeInt
    n_tests: NonNegativeInt
    n_na: NonNegativeInt
    cost_usd: NonNegativeFloat
    utility: float
    forced: bool
    calls: NonNegativeInt
    prompt_tokens: NonNegativeInt | None
    completion_tokens: NonNegativeInt | None
    unmarked: NonNegativeInt
    silent: NonNegativeInt
    too_long: NonNegativeInt
    refused: NonNegativeInt = 0
    failed: NonNegativeInt = 0
    cut: NonNegativeInt = 0
    cut_results: NonNegativeInt = 0
    obtained: tuple[str, ...] | None = None
    judging: Judging | None = None
    models: tuple[str, ...] | None = None
    replies: tuple[str, ...] | None = None

    @field_validator("n_na")
    @classmethod
    def _check_sum(cls, n_na: int, info: ValidationInfo) -> int:
        """Check that ``n_na`` is the number of unavailable requests plus that of invalid replies; returns it. Raises
        ValueError where it is not."""
        unavailable, invalid = info.data.get("n_unavailable", 0), info.data.get("n_invalid", 0)
        if n_na != unavailable + invalid:
            raise ValueError(f"{n_na} is not n_unavailable {unavailable} + n_invalid {invalid}")
        return n_na

    def line(self) -> str:
        """Return the row as one line of JSON, with the line end. ``judging`` and ``models`` are left out where they are
        None."""
        left_out = {name for name in ("judging", "models") if getattr(self, name) is None}
        return json.dumps(self.model_dump(exclude=left_out), ensure_ascii=False) + "\n"


def public_text(settings: Settings, case: CaseRecord, text: str) -> str:
    """Return a text of a case as evaluation files are allowed to hold it: unchanged, or as a pseudonym where the case
    is credentialed (under a data use agreement)."""
    return pseudonym(settings.paths.state, text) if case.credentialed else text


class EvaluationError(ValueError):
    """An evaluation that cannot be used; the message names file, line and field."""


def read_rows(path: Path) -> Iterator[EvaluationRow]:
    """Yield the rows of an evaluation file. Raises EvaluationError for a line that is no row."""
    return (row for _, row in read_json_lines(path, EvaluationRow, EvaluationError))


# Finished episodes, rebuilt from the replies in rows and the results in cases


async def replay(
    environment: DiagnosticEnvironment, case: CaseRecord, replies: Sequence[str], forced: bool = False
) -> Trajectory:
    """Rebuild the finished episode of a case from the texts of its ``replies`` (at least one); returns its trajectory.
    ``forced`` says that the last reply had to be a diagnosis. A last reply without a diagnosis is invalid, as in the
    evaluation. Raises ModelFailure where a model that judges or matches gives no answer."""
    state = await state_after(environment, case, replies[:-1])
    return environment.finish(state, await environment.respond(state, Turn(replies[-1])), forced)


async def state_after(environment: DiagnosticEnvironment, case: CaseRecord, replies: Sequence[str]) -> State:
    """Rebuild the state of a case after the texts ``replies``; the environment answers each reply again."""
    state = environment.initial(case)
    for reply in replies:
        state = state.after(await environment.respond(state, Turn(reply)))
    return state


def deviations(row: EvaluationRow, effort: Effort) -> list[str]:
    """Compare the effort of a replayed episode with the row of the evaluated one. Returns a phrase such as ``issued 3,
    now 2`` for each count that differs, and for the cost in US dollars; empty where all are equal."""
    recorded = {name: getattr(row, f"n_{name}") for name in COUNTS} | {"cost_usd": row.cost_usd}
    replayed = {name: getattr(effort, name) for name in COUNTS} | {"cost_usd": round(effort.cost_usd, 6)}
    return [f"{name} {recorded[name]}, now {replayed[name]}" for name in recorded if recorded[name] != replayed[name]]
