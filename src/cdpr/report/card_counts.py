"""The numbers of a data card, counted from the cases; no name that few patients have is among them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..cases import (
    CaseRecord,
    diagnoses,
    examinations,
    is_physical,
    iterate_records,
    leading_disease,
    modality,
    whole_kind,
)
from ..files import read_table
from ..ingest.attrition import AttritionReport
from ..ingest.draft import NO_EXAMINATION
from ..results.methods import synthetic
from ..results.sources import source_of
from ..settings import Settings

# Rows of the coverage table of `map_costs`.
Prices = Sequence[Mapping[str, str]]

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


@dataclass
class Tally:
    """What one reading of the cases leaves: counts by case, no text but diagnoses."""

    cases: int = 0
    credentialed: bool = False
    languages: Counter[str] = field(default_factory=Counter)
    splits: Counter[str] = field(default_factory=Counter)
    sides: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    diagnosed: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    by_kind: dict[str, list[int]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    usd: list[float] = field(default_factory=list)
    summary: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def add(self, case: CaseRecord, kinds: Mapping[str, str]) -> None:
        """Count one case; ``kinds`` are those of its examinations."""
        self.cases += 1
        self.credentialed |= case.credentialed
        self.languages[case.language] += 1
        self.splits[case.split] += 1
        self.sides[case.subject_key].add(case.split)
        self.diagnosed[diagnosis_name(case.diagnosis_results)].append(case.subject_key)
        here = Counter(kinds[exam] for exam in case.key_pertinent_results_dict)
        for kind in KINDS:
            self.by_kind[kind].append(here[kind])
        self.usd.append(whole_record_usd(case))
        self.summary.append(len(case.case_summary))
        self.results.append(sum(map(len, case.key_pertinent_results_dict.values())))


def data_card(
    settings: Settings,
    dataset: str,
    tally: Tally,
    attrition: AttritionReport,
    prices: Prices,
    digests: Mapping[str, str],
) -> dict[str, Any]:
    """The card as JSON: source and licence, counts, splits, funnel, leaks, distributions, diagnoses, price coverage.

    ``tally`` are the counted cases, ``attrition`` what `ingest_dataset` and ``prices`` what `map_costs` wrote. Raises
    CardError when cases and report disagree, or a patient stands in two splits.
    """
    _check(tally, attrition, dataset)
    source = source_of(settings, dataset)
    unmarked = f"The licence asks for data.{dataset}.credentialed: true, which is not set."
    return {
        "schema_version": SCHEMA_VERSION,
        "dataset": dataset,
        "tier": settings.tier,
        "synthetic": synthetic(settings, dataset),
        "credentialed": tally.credentialed,
        "source": {"label": source.label, "what": source.what, "licence": source.licence,
                   "conditions": list(source.conditions), "links": list(source.links)},
        "warnings": [*([unmarked] if source.credentialed and not tally.credentialed else []), *attrition.warnings],
        "counts": {"read": attrition.read, "kept": attrition.kept, "patients": len(tally.sides),
                   "languages": dict(sorted(tally.languages.items()))},
        "splits": [{"split": name, "patients": sum(name in sides for sides in tally.sides.values()),
                    "cases": tally.splits[name]} for name in SPLITS if tally.splits[name]],
        "funnel": [step.model_dump() for step in attrition.funnel],
        "leaks": leak_rows(attrition),
        "events": attrition.events,
        "distributions": distributions(tally),
        "diagnoses": frequent_diagnoses(tally.diagnosed, tally.credentialed or not source.open),
        "prices": price_coverage(prices, attrition.events.get(NO_EXAMINATION, 0)),
        "digests": dict(digests),
    }  # fmt: skip


def diagnosis_name(text: str) -> str:
    """The vocabulary's name of a diagnosis, or of the disease that it names first; else the text itself."""
    term = diagnoses().find(text) or diagnoses().find(leading_disease(text))
    return term.name if term else text


def whole_record_usd(case: CaseRecord) -> float:
    """US dollars for every examination of the record, each billing group charged once."""
    charges = {
        ("group", group) if (group := case.exam_billing_group.get(exam)) else ("examination", exam): usd
        for exam, usd in case.exam_cost_map.items()
    }
    return sum(charges.values())


def kind_of(exam_key: str, examination: str = "", hcpcs: str = "") -> str:
    """One of :data:`KINDS`: by the vocabulary (of the key, or of the examination that priced it), else by the section
    of its code; ``other`` are procedures and what neither knows."""
    if is_physical(exam_key):
        return "physical"
    term = examinations().find(exam_key) or examinations().find(examination)
    if term is not None:
        return term.kind if term.kind in KINDS else "other"
    if (gathered := whole_kind(exam_key)) in KINDS:
        return str(gathered)
    if modality(exam_key) is not None:
        return "imaging"
    return next((kind for start, kind in _SECTIONS if hcpcs.startswith(start)), "other")


def count_cases(path: Path, prices: Prices) -> Tally:
    """Read the cases once. Raises RecordError for a broken line, CardError for a file without cases or prices."""
    kinds = {row["exam_key"]: kind_of(row["exam_key"], row["examination"], row["hcpcs"]) for row in prices}
    tally = Tally()
    for case in iterate_records(path):
        kinds |= {exam: kind_of(exam) for exam in case.key_pertinent_results_dict if exam not in kinds}
        if case.key_pertinent_results_dict and not case.exam_cost_map:
            raise CardError(f"{path}:{tally.cases + 1}: field 'exam_cost_map' is empty; run the stage `map_costs`")
        tally.add(case, kinds)
    if not tally.cases:
        raise CardError(f"{path}: holds no case; ingest the data set again")
    return tally


def read_report(path: Path) -> AttritionReport:
    """The report of `ingest_dataset`. Raises CardError when it lacks a field or its funnel does not add up."""
    try:
        return AttritionReport.model_validate_json(path.read_bytes())
    except ValueError as error:
        raise CardError(f"{path}: not the JSON of a report ({error}); ingest the data set again") from error


def read_coverage(path: Path) -> list[dict[str, str]]:
    """Rows of the coverage table, by column name; further columns may stand beside the known ones."""
    columns = ("exam_key", "cases", "examination", "hcpcs", "price_usd", "how")
    return [row for _, row in read_table(path, columns, CardError)]


def leak_rows(attrition: AttritionReport) -> list[dict[str, Any]]:
    """One row per kind of leak: cases in which it was found and what was done, and their share of the cases read."""
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


def distributions(tally: Tally) -> list[dict[str, Any]]:
    """Minimum, quartiles, maximum and mean per case of each quantity."""
    billed = np.sum([tally.by_kind[kind] for kind in KINDS if kind != "physical"], axis=0)
    measured = {f"{kind} examinations": tally.by_kind[kind] for kind in KINDS} | {
        "examinations but physical": billed,
        "price of the whole record (USD)": tally.usd,
        "summary (characters)": tally.summary,
        "results (characters)": tally.results,
    }
    names = ("min", "q1", "median", "q3", "max", "mean")
    rows = []
    for what, values in measured.items():
        points = [*np.quantile(values, [0, 0.25, 0.5, 0.75, 1]), np.mean(values)]
        rows.append({"what": what, **{name: round(float(at), 2) for name, at in zip(names, points, strict=True)}})
    return rows


def frequent_diagnoses(diagnosed: Mapping[str, Sequence[str]], pooled: bool) -> dict[str, Any]:
    """The most frequent diagnoses with their cases, and how many others there are in how many cases.

    ``diagnosed`` gives the patient of every case by diagnosis; ``pooled`` names only those that the vocabulary has and
    :data:`FEWEST_PATIENTS` patients or more have.
    """

    def may_be_named(name: str) -> bool:
        return not pooled or (diagnoses().find(name) is not None and len(set(diagnosed[name])) >= FEWEST_PATIENTS)

    ranked = sorted(diagnosed, key=lambda name: (-len(diagnosed[name]), name))
    names = list(filter(may_be_named, ranked))[:SHOWN_DIAGNOSES]
    others = [len(diagnosed[name]) for name in ranked if name not in names]
    return {
        "distinct": len(ranked),
        "named": [{"diagnosis": name, "cases": len(diagnosed[name])} for name in names],
        "others": {"diagnoses": len(others), "cases": sum(others)},
    }


def price_coverage(rows: Prices, no_examination: int = 0) -> dict[str, Any]:
    """What examinations (but physical) were priced by: names, occurrences and dollars with their shares, by the way
    the name was found and by the confidence of its code, where the table tells. US dollars are those of the single
    examinations, before the rule of billing groups. ``no_examination`` entries were left out before. Some mappings,
    drawn at random, are for the reader's own eye."""
    billed = [row for row in rows if row["how"] not in ("physical", "none")]
    printed = [row for row in billed if row.get("paper_usd")]
    return {
        "found": _coverage(billed, no_examination),
        "mappings": _mappings(billed),
        "by_how": _shares(billed, "how"),
        "by_confidence": _shares(billed, "confidence") if any(row.get("confidence") for row in billed) else [],
        "paper": {
            "names": len(printed),
            "examinations": sum(int(row["cases"]) for row in printed),
            "usd": round(sum(int(row["cases"]) * float(row["catalogue_usd"]) for row in printed), 2),
            "paper_usd": round(sum(int(row["cases"]) * float(row["paper_usd"]) for row in printed), 2),
        } if printed else None,
    }  # fmt: skip


def _coverage(rows: Prices, no_examination: int) -> dict[str, int]:
    """Examinations found, and how many of them a code priced, a class, and the fallback."""
    by = Counter[str]()
    for row in rows:
        by[row["how"] if row["how"] in ("class", "fallback") else "code"] += int(row["cases"])
    return {"found": by.total(), **{how: by[how] for how in ("code", "class", "fallback")},
            "no_examination": no_examination}  # fmt: skip


def _mappings(rows: Prices) -> list[dict[str, str]]:
    """Names and what they were priced by, the same draw for the same names."""
    mapped = [row for row in rows if int(row.get("names") or 1) == 1 and row["exam_key"] != row["examination"]]
    drawn = random.Random(len(mapped)).sample(mapped, min(SHOWN_MAPPINGS, len(mapped)))
    columns = ("exam_key", "how", "examination", "hcpcs", "price_usd", "source")
    return [{column: row.get(column, "") for column in columns} for row in drawn]


def _shares(rows: Prices, column: str) -> list[dict[str, Any]]:
    names, counts, dollars = Counter(), Counter(), Counter()
    for row in rows:
        value, cases = row.get(column) or "none", int(row["cases"])
        names[value] += int(row.get("names") or 1)
        counts[value] += cases
        dollars[value] += cases * float(row["price_usd"])
    every, all_usd = max(1, sum(counts.values())), sum(dollars.values()) or 1.0
    return [
        {column: value, "names": names[value], "examinations": counts[value], "share": round(counts[value] / every, 4),
         "usd": round(dollars[value], 2), "usd_share": round(dollars[value] / all_usd, 4)}
        for value in sorted(counts, key=lambda value: (-counts[value], value))
    ]  # fmt: skip


def _check(tally: Tally, attrition: AttritionReport, dataset: str) -> None:
    """Raise CardError unless cases and report tell the same and every patient stands in one split."""
    counted = {name: tally.splits[name] for name in SPLITS}
    if tally.cases != attrition.kept or counted != {name: attrition.splits.get(name, 0) for name in SPLITS}:
        raise CardError(f"{dataset}: there are {counted} cases where the report of `ingest_dataset` tells of "
                        f"{attrition.splits}; ingest and price the data set again")  # fmt: skip
    torn = sum(len(sides) > 1 for sides in tally.sides.values())
    if torn:
        raise CardError(f"{dataset}: field 'split': {torn} patients stand in more than one split; ingest it again")
