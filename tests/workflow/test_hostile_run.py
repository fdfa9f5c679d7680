"""A whole run on cases, and with labels, that are made to do harm in some format: every file that it makes is parsed,
and none of these names is more in it than text."""

import csv
import html.parser
import json
import re

import pytest
import yaml
from markdown_it import MarkdownIt
from project import RESULTS, Project
from test_hostile_names import FORMULA, check_latex
from test_privacy import DATASETS, SHORTER, VARIANTS, change_table

pytestmark = pytest.mark.workflow

MARK = "zqname"  # in every planted name; labels have another one
NAMED = re.compile("zq(name|label)")
LABEL = "GRPO | a\\b `c` $x_{ & <b onclick=alert(1)>zqlabel</b> [d](javascript:e) %f #g \\input{passwd}"
NAMES = (
    f'=HYPERLINK("http://x.example","{MARK}")', f"+{MARK}|' /C calc'!A0", f"-{MARK}*2", f"@{MARK}(1)", f"\t={MARK}",
    f"[{MARK}](javascript:alert(1))", f"![{MARK}](https://x.example/p.png)", f"<script>alert('{MARK}')</script>",
    f"<img src=x onerror=alert('{MARK}')>", f"</td></table>{MARK}", f"`{MARK}` and ``more``", f"{MARK} | b",
    f"\\input{{{MARK}}}", f"$x^{{{MARK}", f"100% & #1_{{{MARK}}}^2 ~", f"**{MARK}** _it_", f"{{{{ 7 * 7 }}}} {MARK}",
    f"\u202e{MARK}\u200b\x1b[31m", f"{MARK} " + "x" * 100,
)  # fmt: skip


def name(number: int) -> str:
    return NAMES[number % len(NAMES)]


def in_cases(row, number):
    row["discharge_diagnosis"] = name(number // 2) if number % 2 else row["discharge_diagnosis"]
    row["chief_complaint"] = f"{name(number)} {row['chief_complaint']}"


def in_results(row, number):
    for column, every in (("examination", 7), ("item", 5), ("value", 4), ("report", 3)):
        if row[column] and number % every == 0:
            row[column] = name(number // every)


def in_notes(row, number):
    if number % 3 == 0:
        row["text"] = re.sub(r"(Discharge Diagnosis:\n).*", lambda m: m[1] + name(number // 3), row["text"])
    row["text"] = row["text"].replace("Chief Complaint:\n", f"Chief Complaint:\n{name(number)} ")


def in_labels(row, number):
    if number % 5 == 0:
        row["label"] = name(number // 5)


def in_comments(row, number):
    if number % 4 == 0:
        row["comments"] = name(number // 4)


def in_clinicalbench(path):
    cases = json.loads(path.read_text())
    for number, case in enumerate(cases):
        if isinstance(case["laboratory_examination"], dict):
            case["laboratory_examination"] = {f"{name(number + n)}": content for n, content in
                                              enumerate(case["laboratory_examination"].values())}  # fmt: skip
        if number % 3 == 0:
            case["principal_diagnosis"] = name(number // 3)
    path.write_text(json.dumps(cases))


def write_medqa(path, diagnoses):
    """Write an open data set with a case for each diagnosis: its card names diagnoses that no vocabulary has."""
    cases = [{"OSCE_Examination": {
        "Patient_Actor": {"Demographics": f"{30 + number}-year-old male", "Symptoms": {"Primary_Symptom": "Fever"}},
        "Physical_Examination_Findings": {"Vital_Signs": {"Temperature": "38.5 C"}},
        "Test_Results": {"Chest_X-ray": {"Findings": "Normal"}},
        "Correct_Diagnosis": diagnosis}} for number, diagnosis in enumerate(diagnoses)]  # fmt: skip
    path.write_text("".join(f"{json.dumps(case)}\n" for case in cases))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project after such a run."""
    project = Project(tmp_path_factory.mktemp("hostile"))
    project.snakemake("make_hospital")
    raw = project.folder / "raw"
    (project.folder / RESULTS / "raw").rename(raw)
    change_table(raw / "private/cases.csv", in_cases)
    change_table(raw / "private/results.csv", in_results)
    change_table(raw / "mimic_iv/note/discharge.csv.gz", in_notes)
    change_table(raw / "mimic_iv/hosp/d_labitems.csv.gz", in_labels)
    change_table(raw / "mimic_iv/hosp/labevents.csv.gz", in_comments)
    for path in (raw / "clinicalbench").glob("*.json"):
        in_clinicalbench(path)
    settings = yaml.safe_load((project.folder / "config/ci.yaml").read_text())
    settings["data"] |= {dataset: {"path": str(raw / dataset), "credentialed": False} for dataset in DATASETS}
    # A card names at most twelve diagnoses, so the names are shared among two cards.
    for dataset, diagnoses in {"agentclinic": NAMES[::2], "agentclinic_extended": NAMES[1::2]}.items():
        write_medqa(raw / f"{dataset}.jsonl", diagnoses)
        settings["data"][dataset] = {"path": str(raw / f"{dataset}.jsonl")}
    for section, values in SHORTER.items():
        settings[section] |= values
    variants = {variant: {"feeds": []} for variant in VARIANTS if variant not in ("grpo", "utility_grpo", "cdpr")}
    settings["experiments"] |= {"swept": [], "variants": variants | {"grpo": {"label": LABEL}}}
    settings["study"]["methods"] = ["cdpr", "grpo", "warm_start"]
    (project.folder / "config/hostile.yaml").write_text(yaml.safe_dump(settings))
    result = project.run("reproduce_paper", "inspector", overlay="hostile")
    assert result.returncode == 0, result.stdout[-4000:]
    (project.folder / "output.txt").write_text(result.stdout)
    return project


@pytest.fixture(scope="module")
def results(project):
    return project.folder / RESULTS


def files(results, ending):
    paths = [path for path in sorted(results.rglob(f"*{ending}")) if path.is_file()]
    assert paths
    return paths


def test_no_cell_of_a_table_is_a_formula(results):
    texts = {path: path.read_bytes().decode("utf-8") for path in files(results, ".csv")}
    for path, text in texts.items():
        assert not [cell for row in csv.reader(text.splitlines(True)) for cell in row if FORMULA.match(cell)], path
    named = {path.parent.name for path, text in texts.items() if MARK in text}
    escaped = {path.parent.name for path, text in texts.items() if re.search("(^|[,\"])'[-=+@]", text, re.MULTILINE)}
    assert named >= {"records", "cases", "costs"} and escaped >= {"records", "cases", "costs"}


def test_no_name_is_markup_in_markdown(results):
    folders = set()
    for path in files(results, ".md"):
        text = path.read_text(encoding="utf-8")
        folders |= {path.parent.name} if NAMED.search(text) else set()
        tokens = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).parse(text)
        tokens += [child for token in tokens for child in token.children or ()]
        kinds = {token.type for token in tokens if token.content not in ("<ins>", "</ins>")}
        assert not kinds & {"link_open", "image", "html_inline", "html_block", "fence", "code_block", "s_open"}, path
        assert not [token.content for token in tokens if token.type == "code_inline" and NAMED.search(token.content)], (
            path
        )
    assert folders >= {"cards", "ci", "tables"}


def test_latex_prints_every_name(results, tmp_path):
    named = [path for path in files(results, ".tex") if "zqlabel" in path.read_text()]
    assert named
    for path in named:
        check_latex(path.read_text(), tmp_path)


class Page(html.parser.HTMLParser):
    """Elements, and attributes by element, of a page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.script = set(), [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.script += data if self.lasttag == "script" else ""


def test_no_name_is_an_element_or_an_attribute_of_a_page_and_pages_need_no_network(results):
    for path in files(results, ".html"):
        text = path.read_text(encoding="utf-8")
        page = Page(text)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), path
        assert not page.elements & {"iframe", "object", "embed", "base", "b", "script src"}, path
        for tag, attribute, value in page.attributes:
            assert not attribute.startswith("on"), (path, tag, attribute, value)
            assert not NAMED.search(value) or attribute in ("alt", "aria-label"), (path, tag, attribute, value)
            if attribute in ("src", "action", "data") or (attribute == "href" and tag == "link"):
                assert not re.match(r"(?i)[a-z]+:(?!image/png)|//", value) or value.startswith("data:"), (path, value)
        assert "<" not in "".join(re.findall(rf"[^\n]*{MARK}[^\n]*", page.script)), path
    pages = {path.parent.name for path in files(results, ".html") if MARK in path.read_text(encoding="utf-8")}
    assert pages >= {"ci", "forms"}
    scripts = [path.read_text(encoding="utf-8") for path in files(results / "inspector", ".js") if "data" in path.parts]
    assert any(MARK in text for text in scripts) and not any("<" in text for text in scripts)


def test_every_name_has_glyphs_and_nothing_commands_the_terminal(results):
    output = [results.parents[1] / "output.txt", *files(results / "logs", ".log")]
    texts = [path.read_text(encoding="utf-8") for path in output]
    assert not [text for text in texts if re.search("Glyph|\x1b|\u202e", text)]
