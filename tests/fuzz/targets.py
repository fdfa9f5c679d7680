"""Small undamaged inputs of every importer and reader, and how each is read. Those of running jobs: `incoming.py`."""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "unit"))

import test_fee_schedules as fees
import test_ingest_benchmarks as benchmarks
import test_ingest_fhir as fhir
from incoming import INCOMING, Explained
from mimic_tables import write_mimic
from target import Outcome, Target

from cdpr.costs import load_catalogue, with_overrides
from cdpr.costs.fee_schedules import read_clfs, read_gpci, read_opps, read_pfs
from cdpr.files import TableError
from cdpr.ingest import IngestError, ingest
from cdpr.settings import SettingsError, load_settings, parse_settings

REFUSALS = (IngestError, TableError, SettingsError, Explained)
LOCALITY = "02102-01"


def _importer(dataset: str, **source) -> Callable[[Path], Outcome]:
    source_settings = {"path": "real", **source}
    small = {"train_cases": 1, "validation_cases": 0, "test_cases": 1}
    settings = parse_settings({"data": {dataset: source_settings, **small}})

    def read(folder: Path) -> Outcome:
        with tempfile.TemporaryDirectory() as state:
            records, attrition = ingest(dataset, settings, folder / "raw", Path(state))
        report = attrition.report()  # which raises where cases do not add up
        for what in ("laboratory rows", "microbiology rows", "radiology reports"):
            parts = sum(n for key, n in attrition.events.items() if key.startswith(f"{what} "))
            assert attrition.events.get(what, parts) == parts, f"{what}: {parts} reported of {attrition.events[what]}"
        results = sum(len(record.key_pertinent_results_dict) for record in records)
        text = report.model_dump_json(exclude={"read", "kept", "splits"})
        texts = (text for one in records for text in (one.case_summary, *one.key_pertinent_results_dict.values()))
        letters = sum(len("".join(text.split())) for text in texts)
        # Not the numbers of cases, which tell of nothing that was lost.
        tables = [line for line in attrition.text().splitlines() if " rows read" in line]
        return Outcome((report.read, len(records), results), text + str(tables), letters)

    return read


def _raw(write: Callable[[Path], object]) -> Callable[[Path], object]:
    def put(folder: Path) -> None:
        (folder / "raw").mkdir(parents=True)
        write(folder / "raw")

    return put


def _lines(folder: Path, cases: list[dict]) -> None:
    (folder / "cases.jsonl").write_text("\n".join(map(json.dumps, cases)))


def _schedule(name: str, content: bytes, reader: Callable[[Path], object]) -> Target:
    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)

    def read(folder: Path) -> Outcome:
        schedule = reader(folder / name)
        excluded = schedule.left_out.total() + len(schedule.rejected)
        assert len(schedule.rates) + excluded >= schedule.rows, (
            f"{schedule.rows} rows, {len(schedule.rates)} rates, {excluded} excluded"
        )
        assert all(0 < usd < 1e7 for usd in schedule.rates.values())
        return Outcome(
            (len(schedule.rates),), f"{schedule.rows} {schedule.left_out} {schedule.rejected} {schedule.notes}"
        )

    return Target(name.partition(".")[0], write, read, "xlsx" if name.endswith("xlsx") else "csv")


def _many(rows: list[list[str]], code: int, times: int = 15) -> list[list[str]]:
    """The rows under further codes, so that one bad row is not most of them."""
    return [[*row[:code], f"{9 - k % 9}{k:02}{row[code][3:]}", *row[code + 1 :]] for k in range(times) for row in rows]


_GPCI = fees.as_csv([
    ["CY 2026 GPCIs"], [], ["Medicare Administrative Contractor (MAC)", "State", "Locality Number", "Locality Name",
    "2026 PW GPCI (with 1.0 Floor)", "2026 PE GPCI", "2026 MP GPCI"],
    *([f"{n:05}", "AK", f"{k:02}", "NORTH, COLD", "1.1", "0.9", "0.8"] for n in (2102, 3102) for k in range(1, 12)),
])  # fmt: skip
_OVERRIDES = b"examination,price_usd,billing_group\n" + b"".join(f"Odd Test {k},{k}.50,\n".encode() for k in range(20))


def _gpci(folder: Path) -> Outcome:
    value = read_gpci(folder / "gpci.csv", LOCALITY)
    return Outcome((), str(value))


def _overrides(folder: Path) -> Outcome:
    # Rows without a price are skipped by design; the number of others is printed.
    value = len(with_overrides(load_catalogue(), folder / "overrides.csv").overrides)
    return Outcome((value,), f"{value} prices")


def _file(name: str, content: bytes) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)

    return write


def _settings(folder: Path) -> Outcome:
    load_settings(folder / "config.yaml")
    return Outcome((), "")


_YAML = b"tier: demo\ndata:\n  train_cases: 5\n  leaks: {impression: drop}\ncosts: {fallback_usd: 7.5}\nseeds: [0, 1]\n"
_CASES = [benchmarks.bench(id=k, clinical_case_uid=f"u{k}") for k in range(4)]
_BULK = [fhir.observation("Lipase", 300), fhir.observation("Chest X-ray", "Clear.", "imaging"), *fhir.basis()]
TARGETS = {target.name: target for target in (
    Target("mimic_iv", _raw(write_mimic), _importer("mimic_iv", hours_after_admission=24)),
    Target("clinicalbench", _raw(lambda folder: (folder / "cases.json").write_text(json.dumps(_CASES))),
           _importer("clinicalbench", language="both"), "json"),
    Target("private_tables", _raw(benchmarks.write_private), _importer("private")),
    Target("agentclinic", _raw(lambda folder: _lines(folder, [
        benchmarks.osce(), benchmarks.osce(Correct_Diagnosis="Influenza")])), _importer("agentclinic"), "json"),
    Target("fhir_bundle", _raw(lambda folder: fhir.write(folder, _BULK)), _importer("fhir"), "json"),
    Target("fhir_bulk", _raw(lambda folder: (folder / "all.ndjson").write_text("\n".join(map(json.dumps, _BULK)))),
           _importer("fhir"), "json"),
    _schedule("clfs.csv", fees.clfs_bytes(rows=_many(fees.CLFS_ROWS, 1)), read_clfs),
    _schedule("pprrvu.csv", fees.pfs_bytes(rows=_many(fees.PFS_ROWS, 0)), read_pfs),
    Target("gpci", _file("gpci.csv", _GPCI), _gpci),
    _schedule("addendum_b.xlsx", fees.workbook(fees.OPPS_ROWS), read_opps),
    Target("overrides", _file("overrides.csv", _OVERRIDES), _overrides),
    Target("settings", _file("config.yaml", _YAML), _settings),
    *INCOMING,
)}  # fmt: skip
