"""What reading MIMIC-IV costs: seconds and memory at growing sizes, and what the whole data set would take.

Files in the published schema are written (mimic_files.py) and ingested as `cdpr ingest` does, each size in a process of
its own. Rows are lab rows; the other tables come in proportion. Memory is that of the process and all its workers,
shared pages counted once. The whole is extrapolated along the line through the two largest sizes. On the smallest size
the obvious pandas program, with the same reader of notes, is the yardstick. The files have just been written, so the
disk is hardly measured. Writes flat keys to results/benchmarks/ingest.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from _figures import save

FULL_ROWS = 118_000_000  # labevents of MIMIC-IV 2.2
SIZES = (1_000_000, 4_000_000, 16_000_000)
DAY = 24.0  # hours before admission


def ingest(folder: Path, out: Path) -> int:
    """Read the files as the stage does, nothing cut; the number of records."""
    from cdpr.cases import write_records
    from cdpr.ingest import ingest
    from cdpr.settings import parse_settings

    source = {"path": str(folder), "credentialed": False, "hours_before_admission": DAY, "hours_after_admission": 0.0}
    settings = parse_settings({"data": {"mimic_iv": source, "train_cases": 10_000_000}})
    records, _ = ingest("mimic_iv", settings, folder)
    return write_records(out, records)


def with_pandas(folder: Path, out: Path) -> int:
    """The obvious program: all tables in memory, merged; the number of records."""
    import pandas as pd

    from cdpr.ingest.notes import parse_discharge_note

    notes = pd.read_csv(folder / "note/discharge.csv.gz")
    admissions = pd.read_csv(folder / "hosp/admissions.csv.gz", parse_dates=["admittime"])
    patients = pd.read_csv(folder / "hosp/patients.csv.gz")
    stays = notes.merge(admissions, on=["subject_id", "hadm_id"]).merge(patients, on="subject_id")
    times = stays[["subject_id", "hadm_id", "admittime"]]

    def first(table: pd.DataFrame, key: str) -> pd.DataFrame:
        """Rows in the day before admission, the first of each key."""
        named = table[table["hadm_id"].notna()].merge(times, on=["subject_id", "hadm_id"])
        nameless = table[table["hadm_id"].isna()].drop(columns="hadm_id").merge(times, on="subject_id")
        linked = pd.concat([named, nameless])
        inside = linked["charttime"].between(linked["admittime"] - pd.Timedelta(hours=DAY), linked["admittime"])
        return linked[inside].sort_values("charttime").drop_duplicates(["hadm_id", key])

    labs = pd.read_csv(folder / "hosp/labevents.csv.gz", parse_dates=["charttime"])
    labs = first(labs, "itemid").merge(pd.read_csv(folder / "hosp/d_labitems.csv.gz"), on="itemid")
    labs["result"] = labs["value"].fillna(labs["comments"]).astype(str) + " " + labs["valueuom"].fillna("")
    cultures = pd.read_csv(folder / "hosp/microbiologyevents.csv.gz", parse_dates=["charttime", "chartdate"])
    cultures["charttime"] = cultures["charttime"].fillna(cultures["chartdate"])
    cultures = first(cultures, "test_name")
    cultures["result"] = cultures["org_name"].fillna(cultures["comments"])
    details = pd.read_csv(folder / "note/radiology_detail.csv.gz")
    names = details[details["field_name"] == "exam_name"][["note_id", "field_value"]]
    reports = pd.read_csv(folder / "note/radiology.csv.gz", parse_dates=["charttime"]).merge(names, on="note_id")
    reports = first(reports, "field_value")

    results: dict[int, dict[str, str]] = {}
    for table, key, text in (
        (labs, "label", "result"),
        (cultures, "test_name", "result"),
        (reports, "field_value", "text"),
    ):
        for hadm, group in table.groupby("hadm_id"):
            results.setdefault(hadm, {}).update(zip(group[key], group[text], strict=True))
    records = []
    for stay in stays.itertuples():
        note = parse_discharge_note(stay.text)
        if note.primary_diagnosis and note.physical and stay.hadm_id in results:
            history = {
                "age": stay.anchor_age + stay.admittime.year - stay.anchor_year,
                "sex": stay.gender,
                **note.history,
            }
            records.append({"note_id": stay.note_id, "history": history, "diagnosis": note.primary_diagnosis,
                            "results": note.physical | results[stay.hadm_id]})  # fmt: skip
    out.write_text("".join(json.dumps(record, default=str) + "\n" for record in records))
    return len(records)


def write(folder: Path, rows: int) -> int:
    """Write the files; the number of rows of all tables."""
    from mimic_files import write_files

    return sum(write_files(folder, rows).values())


def apart(work: str, folder: Path, rows: int) -> dict[str, float]:
    """One piece of work in a process of its own: its count, seconds, and the peak memory of it and its workers."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--work", work, "--folder", str(folder), "--sizes", str(rows)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    sampled = 0
    while process.poll() is None:
        sampled = max(sampled, _memory(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{work} of {rows} rows failed with exit code {process.returncode}; its message stands above")
    found = json.loads(process.communicate()[0].splitlines()[-1])
    # What the samples missed, the process itself knows, though not of its workers.
    return found | {"peak_gb": max(sampled / 2**30, found["peak_gb"])}


def _memory(pid: int) -> int:
    """Bytes of a process and its descendants; pages that several of them share count once where the system tells."""
    total = 0
    try:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            memory = one.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
    except psutil.Error:  # ended meanwhile
        pass
    return total


def work(kind: str, folder: Path, rows: int) -> None:
    """Do one piece of work and print what it took."""
    start = time.perf_counter()
    if kind == "write":
        count = write(folder, rows)
    else:
        count = (ingest if kind == "ingest" else with_pandas)(folder, folder / f"{kind}.jsonl")
    unit = 2**30 if sys.platform == "darwin" else 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    print(json.dumps({"records": count, "seconds": time.perf_counter() - start, "peak_gb": peak}))


def measure(sizes: list[int], root: Path, keep: bool) -> dict[str, float]:
    """Figures of all sizes from the smallest on; what is written for one is removed before the next."""
    report: dict[str, float] = {}
    for rows in sizes:
        folder = root / f"mimic_{rows}"
        found_there = folder.exists()
        if not found_there:
            partial = root / f"mimic_{rows}.partial"
            written = apart("write", partial, rows)
            partial.rename(folder)
            print(f"{rows} lab rows: {written['records']} rows written in {written['seconds']:.0f} s", file=sys.stderr)
        found = apart("ingest", folder, rows)
        report |= {f"{name}_{rows}": value for name, value in found.items()}
        print(f"{rows} lab rows: {found}", file=sys.stderr)
        if rows == sizes[0]:
            pandas = apart("pandas", folder, rows)
            report |= {f"pandas_{name}": value for name, value in pandas.items()}
            report["ingest_over_pandas"] = found["seconds"] / pandas["seconds"]
        if not (keep or found_there):
            shutil.rmtree(folder)
    return report


def extrapolate(report: dict[str, float], sizes: list[int]) -> dict[str, float]:
    """The whole data set on the line through the two largest sizes, or in proportion to the only one."""
    last = sizes[-1]
    seconds, peak = report[f"seconds_{last}"], report[f"peak_gb_{last}"]
    found = {"rows_per_second": last / seconds, "peak_gb": peak}
    if len(sizes) == 1:
        times = FULL_ROWS / last
        return found | {"full_size_minutes": times * seconds / 60, "full_size_peak_gb": times * peak}
    before = sizes[-2]
    beyond = (FULL_ROWS - last) / (last - before)
    whole = seconds + beyond * (seconds - report[f"seconds_{before}"])
    return found | {
        "full_size_minutes": whole / 60,
        "full_size_peak_gb": peak + beyond * max(0.0, peak - report[f"peak_gb_{before}"]),
        "growth": seconds / report[f"seconds_{before}"] / (last / before),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/ingest.json"))
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="lab rows")
    parser.add_argument(
        "--folder", type=Path, help="where the files go (16 million lab rows: 0.6 GB); else a temporary one"
    )
    parser.add_argument("--keep", action="store_true", help="leave the files in --folder for the next time")
    parser.add_argument("--work", choices=("write", "ingest", "pandas"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        return work(arguments.work, arguments.folder, arguments.sizes[0])
    if arguments.keep and not arguments.folder:
        parser.error("--keep needs --folder")
    sizes = sorted(set(arguments.sizes))
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.folder or Path(temporary)
        root.mkdir(parents=True, exist_ok=True)
        report = measure(sizes, root, arguments.keep)
    report |= extrapolate(report, sizes)
    save(arguments.out, report | {"memory_gb": round(psutil.virtual_memory().total / 2**30)})


if __name__ == "__main__":
    main()
