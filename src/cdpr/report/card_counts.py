"""The numbers of a data card, counted from the cases, without any name that few patients have."""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..cases import (
    diagnoses,
    examinations,
    is_physical,
    iterate_records,
    leading_disease,
    modality,
    whole_kind,
)
from ..costs.price import COVERAGE_COLUMNS, whole_record_usd
from ..ingest.attrition import AttritionReport
from ..ingest.draft import NO_EXAMINATION
from ..settings import Settings
from .methods import is_synthetic
from .sources import source_of

# Rows of the coverage table of `map_costs`.
Prices = Sequence[Mapping[str, str]]
_MAPPING = ("exam_key", "how", "examination", "hcpcs", "price_usd", "source")

SCHEMA_VERSION = 1
KINDS = ("physical", "laboratory", "microbiology", "imaging", "other")
SPLITS = ("train", "validation", "test")
# A diagnosis of fewer patients might tell who they are.
FEWEST_PATIENTS = 5
SHOWN_DIAGNOSES = 12
SHOWN_MAPPINGS = 10
_ACTIONS = ("dropped", "masked", "removed", "kept")
# Rules of the funnel that are leaks too.
_LEAK_RULES = ("diagnosis established before", "diagnosis stated in the summary", "diagnosis of a relative")
# Sections of the procedure codes, for examinations that the vocabulary does not know.
_SECTIONS = (("87", "microbiology"), ("8", "laboratory"), ("7", "imaging"))


class CardError(ValueError):
    """Files that do not belong together or break a promise of the cases; the message names file and field."""


def count_cases(path: Path, prices: Prices) -> pd.DataFrame:
    """Return a row per case: split, patient, language, diagnosis, examinations of each kind, price and length; no text
    but diagnoses. Raises RecordError for a broken line, CardError for a file without cases or prices."""
    kinds = {row["exam_key"]: kind_of(row["exam_key"], row["examination"], row["hcpcs"]) for row in prices}
    rows: list[dict[str, Any]] = []
    for case in iterate_records(path):
        results = case.key_pertinent_results_dict
        if results and not case.exam_cost_map:
            raise CardError(f"{path}:{len(rows) + 1}: field 'exam_cost_map' is empty; run the stage `map_costs`")
        kinds |= {exam: kind_of(exam) for exam in results if exam not in kinds}
        of_kind = Counter(kinds[exam] for exam in results)
        rows.append({
            "split": case.split, "patient": case.subject_key, "language": case.language,
            "credentialed": case.credentialed, "diagnosis": diagnosis_name(case.diagnosis_results),
            "usd": whole_record_usd(case), "summary": len(case.case_summary),
            "results": sum(map(len, results.values())), **{kind: of_kind[kind] for kind in KINDS},
        })  # fmt: skip
    if not rows:
        raise CardError(f"{path}: holds no case; ingest the data set again")
    return pd.DataFrame(rows)


def data_card(
    settings: Settings, dataset: str, cases: pd.DataFrame, attrition: AttritionReport, prices: Prices,
    digests: Mapping[str, str | None],
) -> dict[str, Any]:  # fmt: skip
    """Make the card as JSON: source and licence, counts, splits, funnel, leaks, distributions, diagnoses, price
    coverage.

    ``cases`` are those of :func:`count_cases`, ``attrition`` what `ingest_dataset` and ``prices`` what `map_costs`
    wrote. Raises CardError when cases and report disagree, or a patient is in two splits.
    """
    splits = [{"split": name, "patients": part.patient.nunique(), "cases": len(part)}
              for name in SPLITS if len(part := cases[cases.split == name])]  # fmt: skip
    counted = {row["split"]: row["cases"] for row in splits}
    if len(cases) != attrition.kept or counted != {name: n for name, n in attrition.splits.items() if n}:
        raise CardError(f"{dataset}: there are {counted} cases where the report of `ingest_dataset` tells of "
                        f"{attrition.splits}; ingest and price the data set again")  # fmt: skip
    if torn := int((cases.groupby("patient").split.nunique() > 1).sum()):
        raise CardError(f"{dataset}: field 'split': {torn} patients are in more than one split; ingest it again")
    source, credentialed = source_of(settings, dataset), bool(cases.credentialed.any())
    unmarked = f"The licence asks for data.{dataset}.credentialed: true, which is not set."
    return {
        "schema_version": SCHEMA_VERSION,
        "dataset": dataset,
        "tier": settings.tier,
        "synthetic": is_synthetic(settings, dataset),
        "credentialed": credentialed,
        "source": {"label": source.label, "what": source.what, "licence": source.licence,
                   "conditions": list(source.conditions), "links": list(source.links)},
        "warnings": [*([unmarked] if source.credentialed and not credentialed else []), *attrition.warnings],
        "counts": {"read": attrition.read, "kept": attrition.kept, "patients": cases.patient.nunique(),
                   "languages": cases.language.value_counts().sort_index().to_dict()},
        "splits": splits,
        "funnel": [step.model_dump() for step in attrition.funnel],
        "leaks": leak_rows(attrition),
        "events": attrition.events,
        "distributions": distributions(cases),
        "diagnoses": frequent_diagnoses(cases.groupby("diagnosis").patient.agg(list).to_dict(),
                                        credentialed or not source.open),
        "prices": price_coverage(prices, attrition.events.get(NO_EXAMINATION, 0)),
        "digests": dict(digests),
    }  # fmt: skip


def mark(card: Mapping[str, Any]) -> str:
    """Say where the cases come from, for the corner of everything that shows them."""
    return f"tier: {card['tier']}" + (" — synthetic hospital" if card["synthetic"] else "")


def others(card: Mapping[str, Any]) -> str:
    """Say how many diagnoses a card counts but does not name: ``12 others in 34 cases``; empty where it names all."""
    rest = card["diagnoses"]["others"]
    return f"{rest['diagnoses']:,} others in {rest['cases']:,} cases" if rest["cases"] else ""


def diagnosis_name(text: str) -> str:
    """Return the vocabulary's name of a diagnosis, or of the disease that it names first; else the text itself."""
    term = diagnoses().find(text) or diagnoses().find(leading_disease(text))
    return term.name if term else text


def kind_of(exam_key: str, examination: str = "", hcpcs: str = "") -> str:
    """Return the kind of an examination, one of :data:`KINDS`.

    It is the kind in the vocabulary, of the key or else of ``examination``, whose price the key has. A key that the
    vocabulary lacks may name a whole kind ("Imaging") or a modality; else the section of its HCPCS code decides.
    Procedures and unknown examinations are ``other``.
    """
    if is_physical(exam_key):
        return "physical"
    term = examinations().find(exam_key) or examinations().find(examination)
    if term is not None:
        return term.kind if term.kind in KINDS else "other"
    if (kind := whole_kind(exam_key)) in KINDS:
        return str(kind)
    if modality(exam_key) is not None:
        return "imaging"
    return next((kind for start, kind in _SECTIONS if hcpcs.startswith(start)), "other")


def read_report(path: Path) -> AttritionReport:
    """Read the report of `ingest_dataset`. Raises CardError when it lacks a field or its funnel does not add up."""
    try:
        return AttritionReport.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise CardError(f"{path}: not the JSON of a report ({error}); ingest the data set again") from error


def leak_rows(attrition: AttritionReport) -> list[dict[str, Any]]:
    """Return one row per kind of leak: the cases that have it, what was done with them, and their share of the cases
    read."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for step in attrition.funnel:
        if step.rule in _LEAK_RULES:
            counts[step.rule]["dropped"] += step.dropped
    for row in attrition.leaks:
        counts[row.leak.removesuffix(" (case kept)")][row.action] += row.cases
    return [
        {"leak": leak, "found": sum(done.values()), **{action: done[action] for action in _ACTIONS},
         "share": round(sum(done.values()) / attrition.read, 4)}
        for leak, done in sorted(counts.items())
    ]  # fmt: skip


def distributions(cases: pd.DataFrame) -> list[dict[str, Any]]:
    """Describe each quantity per case: minimum, quartiles, maximum and mean."""
    measured = {f"{kind} examinations": cases[kind] for kind in KINDS} | {
        "examinations but physical": cases[[kind for kind in KINDS if kind != "physical"]].sum(axis=1),
        "price of the whole record (USD)": cases.usd,
        "summary (characters)": cases.summary,
        "results (characters)": cases.results,
    }
    names = {"min": "min", "q1": "25%", "median": "50%", "q3": "75%", "max": "max", "mean": "mean"}
    described = pd.DataFrame(measured).describe()
    return [{"what": what, **{name: round(float(numbers[row]), 2) for name, row in names.items()}}
            for what, numbers in described.items()]  # fmt: skip


def frequent_diagnoses(diagnosed: Mapping[str, Sequence[str]], pooled: bool) -> dict[str, Any]:
    """Return the most frequent diagnoses with their cases, and the number of other diagnoses and of their cases.

    ``diagnosed`` gives the patient of every case by diagnosis; ``pooled`` names only those that the vocabulary has and
    :data:`FEWEST_PATIENTS` patients or more have.
    """
    ranked = sorted(diagnosed, key=lambda name: (-len(diagnosed[name]), name))
    names = [name for name in ranked if not pooled or len(set(diagnosed[name])) >= FEWEST_PATIENTS]
    names = [name for name in names if not pooled or diagnoses().find(name) is not None][:SHOWN_DIAGNOSES]
    others = [len(diagnosed[name]) for name in ranked if name not in names]
    return {
        "distinct": len(ranked),
        "named": [{"diagnosis": name, "cases": len(diagnosed[name])} for name in names],
        "others": {"diagnoses": len(others), "cases": sum(others)},
    }


def price_coverage(rows: Prices, no_examination: int = 0) -> dict[str, Any]:
    """Count how examinations (without physical ones) were priced: names, occurrences and dollars with their shares, by
    the way of finding the name and by the confidence of its code. US dollars are those of the single examinations,
    before the rule of billing groups. ``no_examination`` entries were left out before. Some mappings, drawn at random,
    are for the reader's own eye."""
    table = pd.DataFrame(rows, columns=COVERAGE_COLUMNS).astype({"cases": int, "names": int})
    billed = table[~table.how.isin(["physical", "none"])]
    by = billed.groupby(billed.how.where(billed.how.isin(["class", "fallback"]), "code")).cases.sum()
    mapped = billed[(billed.names == 1) & (billed.exam_key != billed.examination)]
    # The same draw for the same names.
    sample = random.Random(len(mapped)).sample(range(len(mapped)), min(SHOWN_MAPPINGS, len(mapped)))
    printed = billed[billed.paper_usd != ""]
    return {
        "found": {"found": int(by.sum()), **{how: int(by.get(how, 0)) for how in ("code", "class", "fallback")},
                  "no_examination": no_examination},
        "mappings": mapped.iloc[sample][[*_MAPPING]].to_dict("records"),
        "by_how": _shares(billed, "how"),
        "by_confidence": _shares(billed, "confidence") if billed.confidence.any() else [],
        "paper": {
            "names": len(printed),
            "examinations": int(printed.cases.sum()),
            "usd": round(float((printed.cases * printed.catalogue_usd.astype(float)).sum()), 2),
            "paper_usd": round(float((printed.cases * printed.paper_usd.astype(float)).sum()), 2),
        } if len(printed) else None,
    }  # fmt: skip


def _shares(billed: pd.DataFrame, column: str) -> list[dict[str, Any]]:
    dollars = billed.cases * billed.price_usd.astype(float)
    by = billed.assign(usd=dollars).groupby(billed[column].replace("", "none"))[["names", "cases", "usd"]].sum()
    all_cases, all_usd = max(1, by.cases.sum()), by.usd.sum() or 1.0
    return [
        {column: row.Index, "names": row.names, "examinations": row.cases, "share": round(row.cases / all_cases, 4),
         "usd": round(row.usd, 2), "usd_share": round(row.usd / all_usd, 4)}
        for row in by.sort_values("cases", ascending=False, kind="stable").itertuples()
    ]  # fmt: skip
