"""Whether the tables of a MIMIC-IV folder are whole and fit together, and what became of the rows of each.

A table that was cut at the end of a line reads like a whole one, and one whose times are written otherwise gives no
event at all. Both are noticed by what the tables say of one another: the publisher's checksums, identifiers that lead
nowhere, patients behind the last one of a table, times that cannot be read.
"""

import re

from ..files import file_digest
from .attrition import Attrition
from .flat_files import IngestError
from .tables import Tables

CHECKSUMS = "SHA256SUMS.txt"
AS_PUBLISHED = "export them as 2150-01-31 08:00:00"
_NEEDED = ("note/discharge", "hosp/admissions", "hosp/patients")  # no case without a row of each
_FEW = 20  # rows or cases, below which shares say nothing
_LOST = 0.01  # share of times that may be unreadable before a warning
_BEHIND = 0.02  # share of cases that may lie behind the last patient of an event table
_SELDOM = 0.2  # share of cases with a laboratory result; of the published demo 0.8
_LISTED = re.compile(r"([0-9a-fA-F]{64})[ \t]+\*?(\S.*)")


def check_sums(tables: Tables) -> None:
    """Hold the tables against the publisher's list, where one lies in the folder or beside them. Raises IngestError for
    one that differs."""
    for folder in {tables.folder, *(path.parent for path in tables.paths.values())}:
        listed = folder / CHECKSUMS
        lines = listed.read_text(encoding="utf-8", errors="replace").splitlines() if listed.is_file() else []
        sums = {folder / line[2].strip(): line[1].lower() for line in map(_LISTED.fullmatch, lines) if line}
        for path in tables.paths.values():
            if path in sums and file_digest(path) != sums[path]:
                remedy = f"download it again, or take {CHECKSUMS} away if you changed it yourself"
                raise IngestError(path, f"not the bytes that {CHECKSUMS} lists: cut short, or changed", remedy)


def count_rows(tables: Tables, attrition: Attrition) -> None:
    """Note how many rows the small tables have. Raises IngestError for a table without rows that no case can do
    without."""
    for name in (*_NEEDED, "hosp/d_labitems", "note/radiology_detail"):
        (rows,) = next(tables.rows(f"SELECT count(*) FROM {name.split('/')[-1]}"))
        if not rows and name in _NEEDED:
            raise IngestError(tables.paths[name], "a header and no row", "copy or download it again")
        if not rows:
            attrition.warn(f"{name} has a header and no row")
        attrition.tables[name] = rows


def check_times(
    tables: Tables, name: str, column: str, counts: tuple[int, int, str | None, int], attrition: Attrition
) -> None:
    """Judge the times of a column by ``counts``: how many there are, how many cannot be read, one of these, and how
    many of the others are midnight. Raises IngestError where most are lost, or tell the day alone."""
    filled, unread, sample, midnight = counts
    message = f"{unread:,} of {filled:,} times cannot be read; they look like {shape(sample or '')}"
    if unread * 2 > filled:
        raise IngestError(tables.paths[name], message, AS_PUBLISHED, field=column)
    if unread > filled * _LOST:
        attrition.warn(f"{name}, {column}: {message}")
    if filled - unread >= _FEW and midnight > 0.9 * (filled - unread):
        problem = f"{midnight:,} of {filled - unread:,} times have no time of day, which the window of a case needs"
        raise IngestError(tables.paths[name], problem, AS_PUBLISHED, field=column)


def shape(text: str) -> str:
    """How a time is written, without what it says: digits as 9, letters as A."""
    plain = re.sub(r"[A-Za-z]", "A", re.sub(r"\d", "9", text.strip()))
    return re.sub(r"[^9A/:.,+ -]", "?", plain)[:40]


def check_references(tables: Tables, attrition: Attrition) -> None:
    """Warn of identifiers that lead nowhere, and of an event table that ends long before the patients do."""
    for name, holder, what, numbers, known in (
        ("hosp/patients", "hosp/admissions", "patients", "subject_id AS id FROM stays", "subject_id FROM persons"),
        ("hosp/admissions", "note/discharge", "admissions", "hadm_id AS id FROM note_ids", "hadm_id FROM stays"),
        ("hosp/d_labitems", "hosp/labevents", "items", "item AS id FROM lab",
         "itemid FROM d_labitems WHERE itemid IS NOT NULL"),
    ):  # fmt: skip
        references, lost = next(tables.rows(
            f"SELECT count(id), count(id) FILTER (id NOT IN (SELECT {known})) FROM (SELECT DISTINCT {numbers})"
        ))  # fmt: skip
        if lost > _LOST * references and references >= _FEW:
            attrition.warn(f"{name} lacks {lost:,} of the {references:,} {what} that {holder} names; is it whole?")
    (cases,) = next(tables.rows("SELECT count(*) FROM cases"))
    if cases < _FEW:
        return
    for name, table in (("hosp/labevents", "lab"), ("hosp/microbiologyevents", "micro"), ("note/radiology", "report")):
        (behind,) = next(tables.rows(
            f"SELECT count(*) FROM cases WHERE try_cast(subject_id AS BIGINT) > (SELECT max(last) FROM {table})"
        ))  # fmt: skip
        if behind > _BEHIND * cases:
            last = f"the last {behind:,} of {cases:,} cases, which have none of its rows"
            attrition.warn(f"{name} ends before {last}; was it cut?")
    (tested,) = next(tables.rows("SELECT count(DISTINCT case_id) FROM lab WHERE first IS NOT NULL"))
    if tested < _SELDOM * cases:
        few = f"only {tested:,} of {cases:,} cases have a laboratory result in their window"
        attrition.warn(f"{few} (in the published demo four of five); do times and identifiers fit, and the window?")


def count_left_out(attrition: Attrition) -> None:
    """Count the cultures and reports of cases whose note was left out: nobody has looked at them."""
    for what in (what for what in attrition.tables.values() if isinstance(what, str)):
        if left := attrition.events[what] - attrition.parts(what).total():
            attrition.count(f"{what} of cases whose note was left out", left)
