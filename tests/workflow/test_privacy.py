"""Text of credentialed cases is in the restricted places and nowhere else: words are planted in raw files and searched
in every byte of all files."""

import csv
import gzip
import io
import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
import yaml
from project import RESULTS, ROOT, Project

from cdpr.settings import load_settings

pytestmark = pytest.mark.workflow

STEM = "zqleak"  # every planted word begins with it; the rest of the word says where it was planted
NUMBER = "739184620517"  # begins planted patient and admission numbers, which are whole numbers in MIMIC-IV
TRACE = re.compile(rb"zqleak[a-z]*|739184620517", re.IGNORECASE)
RESTRICTED = [
    rf"{RESULTS}/(records|cases|evaluations|policies|analysis|study)/.*",
    rf"{RESULTS}/training/[^/]+/(policy/.*|credit\.jsonl\.gz)",
    r"state/.*",
]
REPORTS = r".*run\.json|.*\.report\.json"  # never restricted, wherever they lie

Row = dict[str, str]


def leaks(folder: Path) -> dict[str, set[str]]:
    """Planted words by file, for all unrestricted files."""
    words_by_file = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        restricted = any(re.fullmatch(pattern, name) for pattern in RESTRICTED) and not re.fullmatch(REPORTS, name)
        if not restricted and (words := planted_words(name.encode()) | planted_words(path.read_bytes())):
            words_by_file[name] = words
    return words_by_file


def planted_words(content: bytes) -> set[str]:
    """Planted words in a file's bytes, compressed parts included."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    parts = [content]
    if content[:4] == b"%PDF":
        streams = re.findall(rb"stream\r?\n(\x78.*?)endstream", content, re.DOTALL)
        parts += [zlib.decompressobj().decompress(stream) for stream in streams]
    return {word.decode().lower() for part in parts for word in TRACE.findall(part)}


# Planting


def change_table(path: Path, change) -> None:
    """Rewrite a CSV table, compressed or not, row by row (``change`` works on the row and its number)."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    for number, row in enumerate(rows):
        change(row, number)
    out = io.StringIO(newline="")
    table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    path.write_bytes(gzip.compress(out.getvalue().encode(), 1) if path.suffix == ".gz" else out.getvalue().encode())


def add(word: str, *columns: str, every: int = 1):
    """A change that adds a planted word to the columns of every so-manieth row."""

    def change(row: Row, number: int) -> None:
        for column in columns if number % every == 0 else ():
            row[column] = f"{row[column]} {STEM}{word}".strip()

    return change


def renumber(row: Row, _: int) -> None:
    """Planted patient, admission and note numbers."""
    for column in {"subject_id", "hadm_id"} & set(row):
        row[column] = row[column] and NUMBER + row[column][-6:]
    if "note_id" in row:
        row["note_id"] = f"{STEM}note-{row['note_id']}"


def in_note(row: Row, number: int) -> None:
    text = row["text"]
    for heading, word in {"Chief Complaint": "complaint", "History of Present Illness": "hpi",
                          "Past Medical History": "pmh", "Brief Hospital Course": "course"}.items():  # fmt: skip
        text = text.replace(f"{heading}:\n", f"{heading}:\n{STEM}{word} ")
    text = text.replace("\nGENERAL:", f"\n{STEM.upper()}HEADING SIGN: {STEM}body and pale.\nGENERAL:", 1)
    if number % 3 == 0:  # a diagnosis that no table of names knows; the others stay what the judge can judge
        text = re.sub(r"(Discharge Diagnosis:\n)(.*)", rf"\1{STEM.capitalize()}diagnosis", text)
    row["text"] = text


def values(row: Row, number: int) -> None:
    if number % 7 == 0:
        row["value"], row["valuenum"] = f"{STEM}value", ""
    add("comment", "comments", every=5)(row, number)


def in_radiology(row: Row, _: int) -> None:
    row["text"] = row["text"].replace("FINDINGS: \n \n", f"FINDINGS: \n \n{STEM}findings. ")


def in_detail(row: Row, number: int) -> None:
    if row["field_name"] == "exam_name":
        add("examname", "field_value", every=3)(row, number)


def in_clinicalbench(path: Path) -> None:
    cases = json.loads(path.read_text())
    for number, case in enumerate(cases):
        case["clinical_case_uid"] = f"{STEM}uid-{number}"
        case["id"] = f"{STEM}id-{number}"
        summary = case["clinical_case_summary"]
        for heading in ("Chief Complaint", "History of Present Illness", "Past Medical History", "Abdomen"):
            summary = summary.replace(f"{heading}: ", f"{heading}: {STEM}summary ")
        case["clinical_case_summary"] = summary
        for block in ("laboratory_examination", "imageological_examination"):
            if isinstance(case[block], dict):
                case[block] = {f"{name} {STEM}panel": {k: f"{v} {STEM}result" for k, v in content.items()}
                               for name, content in case[block].items()}  # fmt: skip
        case["pathological_examination"] = f"{STEM}pathology seen."
        for field in ("preliminary_diagnosis", "diagnostic_basis", "treatment_plan"):
            case[field] += f" {STEM}plan"
        if number % 3 == 0:
            case["principal_diagnosis"] = f"{STEM}principal"
    path.write_text(json.dumps(cases, indent=1))


CASE_TEXTS = ("chief_complaint", "present_illness", "past_history", "personal_history", "family_history",
              "allergy_history")  # fmt: skip


def in_private(folder: Path) -> None:
    def number_case(row: Row, _: int) -> None:
        row["case_id"] = f"{STEM}case-{row['case_id']}"
        if "patient_id" in row:
            row["patient_id"] = f"{STEM}person-{row['patient_id']}"

    change_table(folder / "cases.csv", number_case)
    change_table(folder / "cases.csv", add("history", *CASE_TEXTS))
    change_table(folder / "cases.csv", add("disease", "discharge_diagnosis", every=3))
    change_table(folder / "results.csv", number_case)
    change_table(folder / "results.csv", add("examination", "examination", every=9))
    change_table(folder / "results.csv", add("item", "item", "value", every=11))
    change_table(folder / "results.csv", add("report", "report", every=2))


def plant(raw: Path) -> None:
    """Plant words in the raw files of all three data sets."""
    for path in (raw / "mimic_iv").rglob("*.csv.gz"):
        change_table(path, renumber)
    note, hosp = raw / "mimic_iv" / "note", raw / "mimic_iv" / "hosp"
    change_table(note / "discharge.csv.gz", in_note)
    change_table(note / "radiology.csv.gz", in_radiology)
    change_table(note / "radiology_detail.csv.gz", in_detail)
    change_table(hosp / "labevents.csv.gz", values)
    change_table(hosp / "d_labitems.csv.gz", add("label", "label", every=6))
    change_table(hosp / "microbiologyevents.csv.gz", add("culture", "comments", "org_name", every=3))
    for path in (raw / "clinicalbench").glob("*.json"):
        in_clinicalbench(path)
    in_private(raw / "private")


# Runs

DATASETS = ("mimic_iv", "clinicalbench", "private")
VARIANTS = load_settings(ROOT / "config.yaml", ROOT / "config/ci.yaml").experiments.variants
# Every stage runs, but three policies are trained and not twelve: a further row brings no further kind of file.
TRAINED = {"grpo", "utility_grpo", "cdpr", "without_process_reward"}  # the last one is GRPO
SHORTER = {
    "warm_start": {"epochs": 3},
    "training": {"steps": 2, "save_every": 1, "validate_every": 1},
    "study": {"methods": ["cdpr", "grpo", "warm_start"]},
    "analysis": {"cases": 1, "truth": 4},
    "inspector": {"runs": ["cdpr-seed0", "immediate"]},
    "experiments": {
        "swept": ["beta"],  # at 0 it is GRPO
        "variants": {name: {"feeds": []} for name in VARIANTS if name not in TRAINED},
    },
}


class Marked(Project):
    """A project whose three data sets are credentialed and hold planted words; its temporary files are watched too."""

    def __init__(self, folder: Path, raw: Path):
        folder.mkdir()
        super().__init__(folder)
        for name, place in (("HOME", "home"), ("TMPDIR", "tmp")):
            (folder / place).mkdir()
            self.environment[name] = str(folder / place)
        self.raw = raw
        self.snakemake("make_hospital")
        (folder / RESULTS / "raw").rename(raw)
        plant(raw)
        settings = yaml.safe_load((folder / "config" / "ci.yaml").read_text())
        for dataset in DATASETS:
            settings["data"][dataset] = {"path": str(raw / dataset), "credentialed": True}
        for section, values in SHORTER.items():
            settings[section] |= values
        (folder / "config" / "marked.yaml").write_text(yaml.safe_dump(settings))
        for dataset in DATASETS:
            settings["data"][dataset]["credentialed"] = False
        (folder / "config" / "unmarked.yaml").write_text(yaml.safe_dump(settings))

    def run_logged(self, command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command and append its output to a file that the test searches."""
        result = subprocess.run(command, cwd=self.folder, env=self.environment | environment, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        with (self.folder / "output.txt").open("a") as log:
            log.write(result.stdout)
        return result

    def reproduce(self) -> subprocess.CompletedProcess[str]:
        return self.run_logged(self.command("reproduce_paper", "credit_quality", "inspector", overlay="marked"))

    def cdpr(self, *arguments: str, overlay: str = "marked") -> subprocess.CompletedProcess[str]:
        """Run a command by hand."""
        settings = ["--settings", "config.yaml", f"config/{overlay}.yaml"]
        return self.run_logged([sys.executable, "-m", "cdpr.pipeline.cli", *arguments, *settings])

    def ingest(self, dataset: str) -> subprocess.CompletedProcess[str]:
        """Read a data set by hand."""
        outputs = [f"{name}={RESULTS}/records/x.{name}.json" for name in ("records", "report", "findings")]
        files = ["--input", f"raw={self.raw / dataset}", "--output", *outputs]
        return self.cdpr("ingest_dataset", "--dataset", dataset, "--key", "0" * 16, *files)


@pytest.fixture(scope="module")
def marked_project(tmp_path_factory) -> Marked:
    """A project with marked raw files that has not run."""
    place = tmp_path_factory.mktemp("marked")
    return Marked(place / "project", place / "raw")


@pytest.fixture(scope="module")
def project(marked_project) -> Marked:
    """The project after a whole run."""
    marked_project.before = set(marked_project.folder.rglob("*"))
    result = marked_project.reproduce()
    assert result.returncode == 0, result.stdout[-4000:]
    return marked_project


def test_planted_words_reach_the_cases(project):
    """Otherwise the other tests would prove nothing."""
    there = {name: planted_words((project.folder / RESULTS / f"cases/{name}.jsonl").read_bytes()) for name in DATASETS}
    expected = {
        "mimic_iv": "complaint hpi pmh heading body diagnosis value comment findings examname label culture note",
        "clinicalbench": "id uid summary panel result pathology principal",
        "private": "case person history disease examination item report",
    }
    for name, words in expected.items():
        assert {STEM + word for word in words.split()} - there[name] == set()
    assert NUMBER in there["mimic_iv"]
    assert STEM + "course" not in there["mimic_iv"] and STEM + "plan" not in there["clinicalbench"]


def test_only_restricted_places_hold_text(project):
    assert leaks(project.folder) == {}


def test_results_and_state_are_for_their_owner_alone(project):
    files = {path for folder in (RESULTS, "state") for path in (project.folder / folder).rglob("*") if path.is_file()}
    # What was there before the data were marked is out of reach in a folder that is closed now.
    written = [project.folder / RESULTS, project.folder / "state/ci", *(files - project.before)]
    shared = [path for path in written if path.stat().st_mode & 0o077]
    assert shared == []


@pytest.mark.parametrize("overlay", ["marked", "unmarked"])
def test_no_command_shows_or_exports_text_of_what_was_marked_at_the_run(project, overlay):
    """Whatever the settings say now."""
    for command in ("recordings export answers.zip", "spend", "systems", "verify", f"why {RESULTS}/report.html",
                    "plan_training"):  # fmt: skip
        done = project.cdpr(*command.split(), overlay=overlay)
        assert done.returncode in (0, 1, 2) and "Traceback" not in done.stdout, done.stdout
    assert leaks(project.folder) == {}


# Damage: an error message would naturally quote the unreadable word


def _text(path: Path, change) -> None:
    raw = path.read_bytes()
    text = change((gzip.decompress(raw) if path.suffix == ".gz" else raw).decode())
    path.write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())


ODD = f'{STEM}damage\'s "{STEM}damage" value'  # with any kind of quotes in a message


def _set(column: str, value: str = ODD):
    def change(row: Row, number: int) -> None:
        if number == 2:
            row[column] = value

    return lambda path: change_table(path, change)


def _repeat(column: str):
    values: list[str] = []

    def change(row: Row, _: int) -> None:
        values.append(row[column])
        row[column] = values[0]

    return lambda path: change_table(path, change)


def _without_header(path: Path) -> None:
    _text(path, lambda text: text.split("\n", 1)[1])


def _more_fields(path: Path) -> None:
    _text(path, lambda text: text + f"1,{STEM}damage" * 30 + "\n")


def _open_quote(path: Path) -> None:
    _text(path, lambda text: text + f'1,2,3,"{STEM}damage first line\n{STEM}damage second line\n' * 3)


def _not_utf8(path: Path) -> None:
    raw = path.read_bytes()
    content = gzip.decompress(raw) if path.suffix == ".gz" else raw
    content = content.replace(b"\n", f"\n{STEM}damage".encode() + b"\xff", 1)
    path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)


def _not_json(path: Path) -> None:
    _text(path, lambda text: text.replace('"id":', f"{STEM}damage", 1))


def _first_case(change):
    def damage(path: Path) -> None:
        cases = json.loads(path.read_text())
        change(cases)
        path.write_text(json.dumps(cases))

    return damage


DAMAGES = {
    "private age": ("private", "cases.csv", _set("age")),
    "private sex": ("private", "cases.csv", _set("sex")),
    "private number twice": ("private", "cases.csv", _repeat("case_id")),
    "private without header": ("private", "cases.csv", _without_header),
    "private more fields": ("private", "results.csv", _more_fields),
    "private open quote": ("private", "results.csv", _open_quote),
    "private not utf-8": ("private", "results.csv", _not_utf8),
    "private sequence": ("private", "results.csv", _set("sequence")),
    "private category": ("private", "results.csv", _set("category")),
    "private bound": ("private", "results.csv", _set("reference_low")),
    "clinicalbench not json": ("clinicalbench", "clinicalbench.json", _not_json),
    "clinicalbench number twice": ("clinicalbench", "clinicalbench.json",
                                   _first_case(lambda cases: cases.append(cases[0]))),
    "clinicalbench text for case": ("clinicalbench", "clinicalbench.json",
                                    _first_case(lambda cases: cases.insert(0, f"{STEM}damage"))),
    "clinicalbench diagnosis": ("clinicalbench", "clinicalbench.json",
                                _first_case(lambda cases: cases[0].update(principal_diagnosis=[f"{STEM}damage"]))),
    "mimic admission time": ("mimic_iv", "hosp/admissions.csv.gz", _set("admittime")),
    "mimic age": ("mimic_iv", "hosp/patients.csv.gz", _set("anchor_age")),
    "mimic without header": ("mimic_iv", "hosp/patients.csv.gz", _without_header),
    "mimic more fields": ("mimic_iv", "note/discharge.csv.gz", _more_fields),
    "mimic open quote": ("mimic_iv", "note/discharge.csv.gz", _open_quote),
    "mimic not utf-8": ("mimic_iv", "note/discharge.csv.gz", _not_utf8),
    "mimic laboratory time": ("mimic_iv", "hosp/labevents.csv.gz", _set("charttime")),
}  # fmt: skip


@pytest.fixture
def damaged_file(marked_project, request):
    """Data set and path of a file that is damaged while the test runs."""
    dataset, name, damage = DAMAGES[request.param]
    path = marked_project.raw / dataset / name
    before = path.read_bytes()
    damage(path)
    yield dataset, path
    path.write_bytes(before)


@pytest.mark.parametrize("damaged_file", DAMAGES, indirect=True)
def test_errors_about_damaged_files_quote_nothing(marked_project, damaged_file):
    dataset, path = damaged_file
    result = marked_project.ingest(dataset)
    assert planted_words(result.stdout.encode()) == set(), result.stdout
    assert "Traceback" not in result.stdout, result.stdout
    assert result.returncode == 0 or path.name in result.stdout


@pytest.mark.parametrize("damaged_file", ["private age"], indirect=True)
def test_a_failed_run_shows_a_log_without_text(project, damaged_file):
    result = project.reproduce()
    assert result.returncode != 0 and "field 'age'" in result.stdout
    assert leaks(project.folder) == {}
