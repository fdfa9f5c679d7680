"""Write ``results/inspector/``: the pages of the inspector and their data, a script per data set and per run on it.

The data of a run are its episodes as JSON values, decision by decision: action, cost, and the agent's reply; the
process reward of the decision and the oracle's opinion where there are any. Their keys are the names of the fields of
:class:`~cdpr.evaluation.row.EvaluationRow`, :class:`~cdpr.credit.scores.CandidateValue` and
:class:`~cdpr.evaluation.decision_credit.Ending`. An ``action`` is a pair [kind, text], and ``said`` the diagnosis. The
functions below explain the others.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from ...agents.build import agent_class, agent_entry
from ...cases import CaseRecord, is_physical, iterate_records
from ...credit.scores import StateCredit
from ...credit.states import ActionKey
from ...credit.states import action_of as credited_action
from ...environment import FinalDiagnosis, RequestTest, Step, Trajectory
from ...environment.opening import open_environment
from ...escape import script
from ...evaluation.decision_credit import CreditedCase, Ending, chosen_cases, read_credit
from ...evaluation.row import EvaluationRow, deviations, public_text, read_rows, replay
from ...files import write_text
from ...hospital.posterior import canonical_name
from ...job import Job
from ...pseudonym import pseudonym
from ...settings import Settings
from ...study.records import state_digest
from ..methods import DATASETS, is_synthetic, notices, source_of, tier_mark, why_unfit
from ..provenance import check_provenance
from . import site
from .oracle import Opinion, Oracle

Fields = dict[str, Any]
_SITE = ("index.html", "inspector.js", "inspector.css")  # files that are copied as they are
# Settings of ``credit`` that a reader needs to compute the numbers again.
_CREDIT = ("threshold", "candidates", "continuations", "horizon", "samples", "baseline", "clip", "max_states")
# What is shown of a row of evaluations.
_OF_ROW = {"decoding", "correct", "forced", "cost_usd", "utility", "n_tests", "n_na", "turns"}


class InspectorError(ValueError):
    """Results that do not belong together; the message says which, and what to do."""


def credit_file(results: Path, run: str, dataset: str) -> Path:
    """Return the path of the file with the credit (process rewards and the continuations behind them) of a run's
    episodes. It exists only for policies of our own."""
    return results / "analysis" / "credit" / run / f"{dataset}.jsonl.gz"


def write_inspector(settings: Settings, job: Job) -> None:
    """Stage ``write_inspector``: write the inspector to the folder ``site``. Raises InspectorError and ProvenanceError
    where results do not belong together."""
    folder, results = job.out["site"], job.inputs["results"]
    folder.mkdir(parents=True, exist_ok=True)
    for name in _SITE:
        (folder / name).write_bytes(resources.files(site).joinpath(name).read_bytes())
    study = job.inputs["study"].read_text(encoding="utf-8") if "study" in job.inputs else ""
    means = [json.loads(line) for line in study.splitlines()]
    rated = {line["state"] for line in means}
    datasets: list[Fields] = []
    views: list[Fields] = []
    for dataset, label in DATASETS.items():
        cases_path = job.inputs[f"cases_{dataset}"]
        if written := _write_dataset(settings, cases_path, results, folder, dataset, rated):
            views += written
            datasets.append({"name": dataset, "label": label, "about": source_of(settings, dataset).what,
                             "oracle": is_synthetic(settings, dataset)})  # fmt: skip
    credit = {name: getattr(settings.credit, name) for name in _CREDIT} | {"entropy_base": "e"}
    credentialed = {view["dataset"] for view in views if view["credentialed"]}
    write_data(folder, "data/index", {
        "mark": tier_mark(settings), "runs": settings.inspector.runs, "datasets": datasets, "views": views,
        "utility": settings.utility.model_dump(), "notices": notices(settings), "credit": credit,
        "study": _study_fields(settings, means, set() if settings.inspector.credentialed else credentialed),
    })  # fmt: skip
    job.metrics.update({name: sum(view[name] for view in views) for name in ("workups", "decisions")})
    print(f"{job.metrics['decisions']:.0f} decisions of {len(views)} evaluations: open index.html")


def _study_fields(settings: Settings, means: Iterable[Fields], hidden: Collection[str]) -> list[Fields]:
    """Return the mean scores of the expert study as JSON values, one per rated state and run. On ``hidden`` data sets
    the actions are pseudonyms."""
    lines = [{name: value for name, value in line.items() if name != "kind"} for line in means]
    for line in lines:
        if line["dataset"] in hidden:
            line["action"] = pseudonym(settings.paths.state, line["action"])
    return lines


def _write_dataset(
    settings: Settings, path: Path, results: Path, folder: Path, dataset: str, rated: Collection[str]
) -> list[Fields]:
    """Write the cases of a data set, and the episodes of every run on them, below the inspector's ``folder``. ``path``
    is the file of the cases, ``results`` the results folder, and ``rated`` are the digests of the states on which the
    raters of the expert study scored decisions.

    Returns an entry per run for the inspector's index. A run that was not evaluated is left out, with a message.
    """
    # The runs that can diagnose cases of this data set.
    runs = [run for run in settings.inspector.runs if not why_unfit(settings, run, dataset)]
    evaluations = {run: results / "evaluations" / run / f"{dataset}.jsonl" for run in runs}
    check_provenance(settings, evaluations.values())
    view = DatasetView(settings, dataset, path, rated)
    # First a script for the episodes of each run, then one for the cases themselves.
    entries = []
    for run, evaluation in evaluations.items():
        if not evaluation.exists():
            print(f"missing: {evaluation}")
            continue
        credit_path = credit_file(results, run, dataset)
        credit = {case.case: case for case in read_credit(credit_path)} if credit_path.exists() else {}
        whole_record = agent_class(agent_entry(settings, run)).whole_record
        episodes = asyncio.run(view.episodes(read_rows(evaluation), credit, whole_record))
        name = f"data/{run}.{dataset}"
        write_data(folder, name, episodes)
        decisions = sum(len(episode["steps"]) for episode in episodes)
        entries.append({"run": run, "dataset": dataset, "data": name, "workups": len(episodes),
                        "credited": len(credit), "decisions": decisions,
                        "credentialed": view.credentialed})  # fmt: skip
    write_data(folder, f"data/{dataset}", view.case_fields())
    return entries


def write_data(folder: Path, name: str, content: Any) -> None:
    """Write a value as JSON in the script ``<name>.js`` in a folder, floats with six decimals. When the page loads the
    script, it passes name and value to the page's function ``inspector.take``. (A page that is opened from a disk can
    load scripts beside it, but not fetch JSON.)"""
    rounded = json.loads(json.dumps(content), parse_float=lambda text: round(float(text), 6))
    write_text(folder / f"{name}.js", f"inspector.take({json.dumps(name)},{script(rounded)});\n")


# A data set, and the episodes of a run on it


class DatasetView:
    """One data set as the site shows it, read from the file ``path`` of its cases.

    - ``cases``: the test cases by id; ``chosen``: the ids of those whose decisions get credit and the oracle's opinion.
    - ``oracle``: judges decisions on the chosen cases (None: the model behind the cases is not known).
    - ``rated``: digests of the states on which the raters of the expert study scored decisions.
    """

    def __init__(self, settings: Settings, dataset: str, path: Path, rated: Collection[str]):
        """Read the cases, choose those that are judged, and open the environment that answers the requests again."""
        self.settings, self.rated = settings, rated
        self.cases = {case.note_id: case for case in iterate_records(path, "test")}
        self.chosen = {case.note_id for case in chosen_cases(settings, path)}
        self.credentialed = any(case.credentialed for case in self.cases.values())
        self.environment = open_environment(settings, credentialed=self.credentialed)
        self.oracle = Oracle(settings, dataset) if is_synthetic(settings, dataset) else None

    def case_fields(self) -> dict[str, Fields]:
        """Return the cases as JSON values, by the names that the site shows. Where the site must not show the texts of
        a case, its id and diagnosis are pseudonyms, and beside them is only whether it was ``chosen``."""
        by_name: dict[str, Any] = {}
        for case in self.cases.values():
            fields: Fields = {"gold": show_text(self.settings, case, case.diagnosis_results)}
            if case.note_id in self.chosen:
                fields["chosen"] = True
            if is_readable(self.settings, case):
                exam_name, results = exam_names(case), case.key_pertinent_results_dict
                fields["summary"] = case.case_summary
                fields["results"] = {exam_name(exam): text for exam, text in results.items()}
                if case.credentialed:  # the pseudonym that other results show
                    fields["digest"] = public_text(self.settings, case, case.note_id)
            by_name[show_text(self.settings, case, case.note_id)] = fields
        return by_name

    async def episodes(
        self, rows: Iterable[EvaluationRow], credit: Mapping[str, CreditedCase], whole_record: bool
    ) -> list[Fields]:
        """Return the episodes of an evaluation's rows as JSON values. ``credit`` has process rewards with the
        continuations behind them, by id of the case; ``whole_record`` says that the agent sees the whole record at
        once, and so takes no decisions. Raises InspectorError where a case is missing, or where the environment does
        not answer the requests in an episode as it did in the evaluation."""
        # Rows may name cases by pseudonyms.
        cases = {public_text(self.settings, case, name): case for name, case in self.cases.items()}
        episodes = []
        for row in rows:
            if row.note_id not in cases:
                raise InspectorError(f"case {row.note_id} was evaluated and is not among the cases; evaluate again")
            case = cases[row.note_id]
            episodes.append(await self._episode(case, row, credit.get(case.note_id), whole_record))
        return episodes

    async def _episode(
        self, case: CaseRecord, row: EvaluationRow, credit: CreditedCase | None, whole_record: bool
    ) -> Fields:
        """Return one episode with its decisions as a JSON value. The decisions are replayed from the agent's replies,
        which are in the row or in the credit. Without replies, or for an agent that takes no decisions, the list of
        decisions is empty."""
        if credit and row.decoding not in credit.decodings:
            credit = None
        # The credit of a case covers one episode per decoding; `index` is the number of this one.
        index = credit.decodings.index(row.decoding) if credit else 0
        replies = credit.replies[index] if credit else row.replies
        fields = row.model_dump(include=_OF_ROW) | {
            "case": show_text(self.settings, case, case.note_id), "said": row.diagnosis, "steps": []}  # fmt: skip
        if replies is None or whole_record:
            return fields
        episode = await replay(self.environment, case, replies, row.forced)
        if different := deviations(row, episode.effort()):
            raise InspectorError(
                f"case {fields['case']}: its requests are answered otherwise than when it was evaluated "
                f"({', '.join(different)}); evaluate again"
            )
        decisions = _Decisions(self, episode, credit, index)
        said = show_text(self.settings, case, episode.diagnosis or "")
        return fields | {"said": said, "steps": list(decisions.steps())}


class _Decisions:
    """The decisions of one episode, which is number ``index`` of the episodes in ``credit`` (None: it has no
    credit)."""

    def __init__(self, view: DatasetView, episode: Trajectory, credit: CreditedCase | None, index: int):
        self.view, self.episode, self.credit, self.index = view, episode, credit, index
        self.settings, self.case = view.settings, episode.case
        self.exam_name = exam_names(self.case)
        # By the index t of each decision that has credit, its state, and the continuations of the state's candidates.
        # Forced decisions have no credit. A visit of a state is a pair (episode, decision).
        self.states: dict[int, tuple[StateCredit, tuple[tuple[Ending, ...], ...]]] = {}
        for state, endings in zip(credit.states, credit.endings, strict=True) if credit else ():
            self.states |= {t: (state, endings) for visited, t in state.visits if visited == index}

    def steps(self) -> Iterator[Fields]:
        """Yield every decision as a JSON value, in order. ``charge`` is what it was charged in USD, ``spent`` the
        sum so far, ``rated`` the digest of a state that the expert study rated."""
        readable = is_readable(self.settings, self.case)
        spent = 0.0
        for t, step in enumerate(self.episode.steps):
            charge = step.observation.charge_usd
            spent += charge
            fields: Fields = {"action": self._show(action_of(step)), "charge": charge, "spent": spent}
            if readable:
                fields["reply"] = step.turn.text
            if self.view.rated:
                digest = state_digest(self.settings, self.case, self.episode.states[t])
                if digest in self.view.rated:
                    fields["rated"] = digest
            opinion = self._opinion(t) if readable else None  # it has texts of the case
            if opinion:
                fields["oracle"] = self._opinion_fields(opinion)
            if t in self.states:
                fields["credit"] = self._credit_fields(t, opinion)
            yield fields

    def _show(self, action: ActionKey) -> list[str]:
        """Return an action as [kind, text], the text as the page is allowed to show it. It is a diagnosis where the
        kind is ``end``, else an examination."""
        kind, text = action
        return [kind, show_text(self.settings, self.case, text if kind == "end" else self.exam_name(text))]

    def _opinion(self, t: int) -> Opinion | None:
        """Return the oracle's opinion on decision ``t``; None for a decision that was forced, and on a case that was
        not chosen."""
        forced = self.episode.forced and t == len(self.episode.steps) - 1
        if self.view.oracle is None or forced or self.case.note_id not in self.view.chosen:
            return None
        candidates = self.states[t][0].candidates if t in self.states else ()
        others = [candidate.action for candidate in candidates]  # the actions to which credit compared the one taken
        return self.view.oracle.opinion(self.episode.states[t], action_of(self.episode.steps[t]), others)

    def _opinion_fields(self, opinion: Opinion) -> Fields:
        """Return an opinion as a JSON value. ``value`` is that of the best action, ``taken`` that of the action which
        the agent took, the first in ``opinion.values``."""
        taken, *_ = opinion.values.values()
        return {"posterior": opinion.posterior, "best": self._show(opinion.best), "value": opinion.best_value,
                "lost": opinion.lost, "taken": taken, "disagrees": opinion.disagrees}  # fmt: skip

    def _credit_fields(self, t: int, opinion: Opinion | None) -> Fields:
        """Return the credit of decision ``t`` as a JSON value: its process reward (``process``), why training would
        select its state (``why``), and the sampled actions (``candidates``) with their continuations (``endings``).

        Of an action, ``taken`` says whether the agent took it, ``share`` is p_hat, and ``true`` the oracle's value.
        """
        assert self.credit is not None
        state, endings = self.states[t]
        taken = credited_action(self.episode.steps[t], self.settings.credit.diagnoses)
        shares = {sampled.action: sampled.p for sampled in state.actions}  # of the actions that the policy sampled
        candidates: list[Fields] = []
        for value, continuations in zip(state.candidates, endings, strict=True):
            candidate = vars(value) | {
                "action": self._show(value.action), "taken": value.action == taken,
                "share": shares.pop(value.action, 0.0), "endings": [self._ending_fields(end) for end in continuations],
            }  # fmt: skip
            if opinion:
                candidate["true"] = opinion.values[value.action]
            candidates.append(candidate)
        # The actions left in `shares` were sampled but not compared, so they have no value.
        candidates += [{"action": self._show(action), "share": share} for action, share in shares.items()]
        return {"entropy": state.entropy, "why": self.credit.selected[self.index][t],
                "process": self.credit.process[self.index][t], "candidates": candidates}  # fmt: skip

    def _ending_fields(self, end: Ending) -> Fields:
        """Return a continuation of an episode as a JSON value. Its ``cut`` says that it reached the horizon H, the most
        requests that a continuation can make, so that its diagnosis was forced."""
        credit = self.settings.credit
        # A continuation may be the end (suffix) of an evaluated episode. The settings can keep one beyond the horizon.
        kept_whole = end.source == "suffix" and credit.cache.long_suffixes == "keep"
        requests = sum(kind != "end" for kind, _ in end.path)
        is_cut = not kept_whole and requests >= credit.horizon
        return vars(end) | {"path": [self._show(action) for action in end.path], "cut": is_cut}


# What the site is allowed to show


def is_readable(settings: Settings, case: CaseRecord) -> bool:
    """Tell whether the site is allowed to show the texts of a case: those of credentialed cases only where the
    settings say so."""
    return settings.inspector.credentialed or not case.credentialed


def show_text(settings: Settings, case: CaseRecord, text: str) -> str:
    """Return a text of a case as the site is allowed to show it: the text itself, or its pseudonym."""
    return text if not text or is_readable(settings, case) else public_text(settings, case, text)


def exam_names(case: CaseRecord) -> Callable[[str], str]:
    """Return a function that gives the name which the site shows for an examination: the vocabulary's, such as
    ``Complete Blood Count`` for ``FBC``. Unknown and physical examinations keep their own names. So do examinations of
    the record that the vocabulary would give the same name."""
    in_record = Counter(map(canonical_name, case.key_pertinent_results_dict))

    def exam_name(text: str) -> str:
        """Return the name that the site shows for the examination ``text``."""
        name = None if is_physical(text) else canonical_name(text)
        return name if name and in_record[name] < 2 else text

    return exam_name


def action_of(step: Step) -> ActionKey:
    """Return the action of a step as a pair (kind, text). A diagnosis is (``end``, its words); a request is (kind of
    the answer, the examination that it matched, or else its own words)."""
    if isinstance(step.action, FinalDiagnosis):
        return "end", step.action.text
    kind, name = step.evidence
    if isinstance(step.action, RequestTest) and not step.observation.exam_key:
        name = step.action.name  # it matched no examination
    return kind, name
