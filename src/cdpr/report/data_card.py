"""Data cards: what a data set holds, as numbers (JSON) and as a page (Markdown). Diagnoses of few patients are counted
without their names."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from .. import escape
from ..cases import diagnoses, examinations, is_physical, iterate_records, leading_disease, modality, whole_kind
from ..costs.price import COVERAGE_COLUMNS, whole_record_usd
from ..files import path_digest, read_table, write_text
from ..ingest.attrition import AttritionReport
from ..ingest.draft import NO_EXAMINATION
from ..job import Job
from ..records import RunRecord
from ..settings import Settings
from .documents import render
from .methods import is_synthetic, source_of

# Rows of the price table of the stage `map_costs`, one per examination name, as texts by column: `COVERAGE_COLUMNS`.
Prices = Sequence[Mapping[str, str]]

# The kinds of examinations, and the splits of a data set, in the order of the card.
KINDS = ("physical", "laboratory", "microbiology", "imaging", "other")
SPLITS = ("train", "validation", "test")
# A diagnosis is named only if at least this many patients have it: a rarer one might reveal who they are.
FEWEST_PATIENTS = 5
# How many diagnoses are named, the most frequent ones.
SHOWN_DIAGNOSES = 12
# What can be done about a leak (a text that gives the diagnosis away): drop the case, mask the words, remove the text,
# or keep it.
_ACTIONS = ("dropped", "masked", "removed", "kept")
# Rules of the selection that drop cases because of a leak.
_LEAK_RULES = ("diagnosis established before", "diagnosis stated in the summary", "diagnosis of a relative")
# Kinds by the first digits of procedure codes, for examinations that the vocabulary does not know. The first entry that
# fits counts: codes 87... are microbiology, other codes 8... are laboratory.
_CODE_SECTIONS = {"87": "microbiology", "8": "laboratory", "7": "imaging"}
# The statistics of a distribution; and of those that `DataFrame.describe` calls otherwise, its names.
_STATISTICS = ("min", "q1", "median", "q3", "max", "mean")
_QUARTILES = {"25%": "q1", "50%": "median", "75%": "q3"}


class CardError(ValueError):
    """Files that do not belong together, or cases with an impossible value; the message says which."""


def write_data_card(settings: Settings, job: Job) -> None:
    """Stage ``write_data_card``: count the cases of a data set, and write its card as ``json`` and ``md``. Raises
    CardError where its files do not belong together."""
    dataset, attrition = job.options["dataset"], read_report(job.inputs["report"])
    table = read_table(job.inputs["coverage"], COVERAGE_COLUMNS, CardError)
    # The cells as they were before they were escaped for spreadsheets.
    prices = [{name: escape.unescape_csv_cell(cell) for name, cell in row.items()} for _, row in table]
    cases = count_cases(job.inputs["cases"], prices)
    digests: dict[str, str | None] = {}  # None: not recorded
    if "ingested" in job.inputs:
        digests["raw"] = RunRecord.read(job.inputs["ingested"]).input_digest("raw")
    digests |= {name: path_digest(job.inputs[name]) for name in ("cases", "report", "coverage")}
    card = data_card(settings, dataset, cases, attrition, prices, digests)
    write_text(job.out["json"], json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    write_text(job.out["md"], render("card.txt", card=card, fewest_patients=FEWEST_PATIENTS))
    job.metrics.update(cases=len(cases), patients=card["counts"]["patients"])
    print(f"{dataset}: {len(cases)} of {attrition.read} cases, {card['counts']['patients']} patients")


def count_cases(path: Path, prices: Prices) -> pd.DataFrame:
    """Read the cases of a JSONL file. Returns a frame with a row per case and the columns ``split``, ``patient``,
    ``language``, ``credentialed`` (whether the case is under a data use agreement), ``diagnosis``, ``usd`` (price of
    the whole record), ``summary`` and ``results`` (their lengths in characters), and the number of examinations of each
    of :data:`KINDS`.

    ``prices`` has a row per examination name, which gives its kind. Raises RecordError for a broken line, and CardError
    for a file without cases or without prices.
    """
    kinds = {row["exam_key"]: kind_of(row["exam_key"], row["examination"], row["hcpcs"]) for row in prices}
    rows: list[dict[str, Any]] = []
    for number, case in enumerate(iterate_records(path), 1):
        results = case.key_pertinent_results_dict
        if results and not case.exam_cost_map:
            raise CardError(f"{path}:{number}: field 'exam_cost_map' is empty; run the stage `map_costs`")
        # Names that only the source uses may be pooled in one row of the prices, and so be missing there.
        kinds |= {exam: kind_of(exam) for exam in results if exam not in kinds}
        counts = Counter(kinds[exam] for exam in results)
        rows.append({
            "split": case.split, "patient": case.subject_key, "language": case.language,
            "credentialed": case.credentialed, "diagnosis": diagnosis_name(case.diagnosis_results),
            "usd": whole_record_usd(case), "summary": len(case.case_summary),
            "results": sum(map(len, results.values())), **{kind: counts[kind] for kind in KINDS},
        })  # fmt: skip
    if not rows:
        raise CardError(f"{path}: holds no case; ingest the data set again")
    return pd.DataFrame(rows)


def data_card(
    settings: Settings, dataset: str, cases: pd.DataFrame, attrition: AttritionReport, prices: Prices,
    digests: Mapping[str, str | None],
) -> dict[str, Any]:  # fmt: skip
    """Return the data card as JSON values: source and licence, counts, splits, selection (``dropped``), leaks, what
    happened to rows of the source (``events``), distributions, diagnoses, prices, and digests of the inputs.

    ``cases`` is the frame of :func:`count_cases`, ``attrition`` the report of the stage `ingest_dataset`, ``prices``
    the price table of the stage `map_costs`, and ``digests`` the SHA-256 of the input files. Raises CardError where
    cases and report disagree, or a patient is in two splits.
    """
    by_split = cases.groupby("split").agg(patients=("patient", "nunique"), cases=("patient", "size"))
    splits = by_split.reindex([name for name in SPLITS if name in by_split.index]).reset_index().to_dict("records")
    _check_splits(dataset, cases, attrition)
    source, credentialed = source_of(settings, dataset), bool(cases.credentialed.any())
    warnings = list(attrition.warnings)
    if source.credentialed and not credentialed:
        warnings.insert(0, f"The licence asks for data.{dataset}.credentialed: true, which is not set.")
    return {
        "schema_version": 1,
        "dataset": dataset,
        "tier": settings.tier,
        "synthetic": is_synthetic(settings, dataset),
        "credentialed": credentialed,
        "source": {name: getattr(source, name) for name in ("label", "what", "licence", "conditions", "links")},
        "warnings": warnings,
        "counts": {"read": attrition.read, "kept": attrition.kept, "patients": cases.patient.nunique(),
                   "languages": cases.language.value_counts().sort_index().to_dict()},
        "splits": splits,
        "dropped": attrition.dropped,
        "leaks": leak_rows(attrition),
        "events": attrition.events,
        "distributions": distributions(cases),
        "diagnoses": frequent_diagnoses(cases, pooled=credentialed or not source.open),
        "prices": price_coverage(prices, attrition.events.get(NO_EXAMINATION, 0)),
        "digests": dict(digests),
    }  # fmt: skip


def _check_splits(dataset: str, cases: pd.DataFrame, attrition: AttritionReport) -> None:
    """Raise CardError where the cases are not as many per split as the report says, or where a patient is in two
    splits."""
    counted = cases.split.value_counts().to_dict()
    reported = {name: count for name, count in attrition.splits.items() if count}  # the frame has no empty splits
    if counted != reported or len(cases) != attrition.kept:
        raise CardError(f"{dataset}: there are {counted} cases where the report of `ingest_dataset` tells of "
                        f"{attrition.splits}; ingest and price the data set again")  # fmt: skip
    in_several = int((cases.groupby("patient").split.nunique() > 1).sum())
    if in_several:
        raise CardError(f"{dataset}: field 'split': {in_several} patients are in more than one split; ingest it again")


def diagnosis_name(text: str) -> str:
    """Return the vocabulary's name of a diagnosis; where a text names several diseases, of the first. An unknown text
    is returned unchanged."""
    term = diagnoses().find(text) or diagnoses().find(leading_disease(text))
    return term.name if term else text


def kind_of(exam_key: str, examination: str = "", hcpcs: str = "") -> str:
    """Return the kind of an examination, one of :data:`KINDS`.

    It is the vocabulary's kind of ``exam_key`` or, if that is unknown, of the ``examination`` by whose price it is
    charged. Else ``exam_key`` may be the name of a whole kind (``Imaging``) or of an imaging modality (``CT``). Else
    the first digits of the procedure code ``hcpcs`` decide. Everything else is ``other``.
    """
    if is_physical(exam_key):
        return "physical"
    term = examinations().find(exam_key) or examinations().find(examination)
    if term is not None:
        return term.kind if term.kind in KINDS else "other"
    whole = whole_kind(exam_key)
    if whole in KINDS:
        return str(whole)
    if modality(exam_key) is not None:
        return "imaging"
    return next((kind for digits, kind in _CODE_SECTIONS.items() if hcpcs.startswith(digits)), "other")


def read_report(path: Path) -> AttritionReport:
    """Read the report of the stage `ingest_dataset`. Raises CardError where it lacks a field or its numbers do not add
    up."""
    try:
        return AttritionReport.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise CardError(f"{path}: not the JSON of a report ({error}); ingest the data set again") from error


def leak_rows(attrition: AttritionReport) -> list[dict[str, Any]]:
    """Return one row per kind of leak (a text that gives the diagnosis away): the number of cases that have it, how
    many were handled by each of :data:`_ACTIONS`, and their share of the cases read."""
    # A leak whose case was kept may be named as the rule that drops cases, with "(case kept)": both are one kind of
    # leak.
    counts = [(rule, "dropped", cases) for rule, cases in attrition.dropped.items() if rule in _LEAK_RULES]
    counts += [(row.leak.removesuffix(" (case kept)"), row.action, row.cases) for row in attrition.leaks]
    table = pd.DataFrame(counts, columns=["leak", "action", "cases"])
    rows = table.pivot_table("cases", "leak", "action", aggfunc="sum", fill_value=0)
    rows = rows.reindex(columns=_ACTIONS, fill_value=0).astype(int)
    rows.insert(0, "found", rows.sum(axis=1))
    rows["share"] = (rows.found / attrition.read).round(4)
    return rows.reset_index().to_dict("records")


def distributions(cases: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the distribution over cases of each quantity as a row: minimum, quartiles, maximum and mean. ``cases`` is
    the frame of :func:`count_cases`."""
    priced_kinds = [kind for kind in KINDS if kind != "physical"]  # the physical examination costs nothing
    measured = {f"{kind} examinations": cases[kind] for kind in KINDS} | {
        "examinations but physical": cases[priced_kinds].sum(axis=1),
        "price of the whole record (USD)": cases.usd,
        "summary (characters)": cases.summary,
        "results (characters)": cases.results,
    }
    described = pd.DataFrame(measured).describe().map(lambda value: round(float(value), 2))
    rows = described.T.rename(columns=_QUARTILES)[list(_STATISTICS)]
    return rows.rename_axis("what").reset_index().to_dict("records")


def frequent_diagnoses(cases: pd.DataFrame, pooled: bool) -> dict[str, Any]:
    """Return the most frequent diagnoses with their numbers of cases (``named``), the numbers of all other diagnoses
    and of their cases (``others``), and the number of all diagnoses (``distinct``).

    ``cases`` has a row per case with its ``diagnosis`` and ``patient``. ``pooled`` protects patients: a diagnosis is
    then named only where the vocabulary has it and at least :data:`FEWEST_PATIENTS` patients have it.
    """
    ranked = cases.groupby("diagnosis", as_index=False).agg(cases=("patient", "size"), patients=("patient", "nunique"))
    ranked = ranked.sort_values(["cases", "diagnosis"], ascending=[False, True])
    may_be_named = ranked
    if pooled:
        is_known = ranked.diagnosis.map(lambda name: diagnoses().find(name) is not None)
        may_be_named = ranked[is_known & (ranked.patients >= FEWEST_PATIENTS)]
    named = may_be_named[["diagnosis", "cases"]].head(SHOWN_DIAGNOSES)
    others = {"diagnoses": len(ranked) - len(named), "cases": int(ranked.cases.sum() - named.cases.sum())}
    return {"distinct": len(ranked), "named": named.to_dict("records"), "others": others}


def price_coverage(rows: Prices, no_examination: int = 0) -> dict[str, Any]:
    """Count how examinations other than physical ones were priced. ``rows`` are the prices, one per examination name.
    Returns

    - ``found``: numbers of examinations, each counted in every case that has it. Its entry ``found`` counts all of
      them; ``code``, ``class`` and ``fallback`` those priced by a code, by the median of their class, and at the
      fallback price. Beside these it passes on ``no_examination``, how many entries were left out before pricing.
    - ``by_how``, ``by_confidence``: the rows of :func:`_shares` by the way in which the price was found (the column
      ``how``), and by the confidence of its code.

    Dollars are those of each examination alone, also where several are billed together.
    """
    table = pd.DataFrame(rows, columns=COVERAGE_COLUMNS).astype({"cases": int, "names": int})
    billed = table[~table.how.isin(["physical", "none"])]  # "none": the name is no examination
    # A price that was found neither by class nor by fallback was found by a code, in one of several ways.
    priced_by = billed.how.where(billed.how.isin(["class", "fallback"]), "code")
    counts = billed.groupby(priced_by).cases.sum().reindex(["code", "class", "fallback"], fill_value=0)
    return {
        "found": {"found": int(counts.sum()), **counts.to_dict(), "no_examination": no_examination},
        "by_how": _shares(billed, "how"),
        "by_confidence": _shares(billed, "confidence") if billed.confidence.any() else [],
    }


def _shares(billed: pd.DataFrame, column: str) -> list[dict[str, Any]]:
    """Group the rows of ``billed``, one per examination name, by their value in a ``column``, and return a row per
    value, the one with the most examinations first.

    A returned row has the value; the number of ``names``; the number of ``examinations``, each counted in every case
    that has it, and its fraction of all (``share``); and their price ``usd`` with its fraction of all (``usd_share``).
    """
    usd = billed.cases * billed.price_usd.astype(float)
    # A price without a code has an empty confidence.
    groups = billed.assign(usd=usd, examinations=billed.cases).groupby(billed[column].replace("", "none"))
    sums = groups[["names", "examinations", "usd"]].sum().sort_values("examinations", ascending=False, kind="stable")
    sums.insert(2, "share", sums.examinations / (sums.examinations.sum() or 1))  # not 0, since shares divide by it
    sums["usd_share"] = sums.usd / (sums.usd.sum() or 1.0)
    return sums.round({"share": 4, "usd": 2, "usd_share": 4}).reset_index().to_dict("records")
