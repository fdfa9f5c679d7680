"""Names from outside in every form of a result: no formula, link, tag, code, command or mathematics is made of them."""

from __future__ import annotations

import csv
import io
import itertools
import re
import shutil
import subprocess
import warnings

import pytest
from markdown_it import MarkdownIt
from test_data_card import changed, write_inputs

from cdpr import escape
from cdpr.cases import write_records
from cdpr.costs.price import map_costs
from cdpr.files import read_table, write_csv
from cdpr.ingest.attrition import Attrition
from cdpr.job import Job
from cdpr.report import style
from cdpr.report.data_card import write_data_card
from cdpr.report.sample_case import case_rows, examination_rows
from cdpr.report.table import Column, Sheet, Table, to_csv, to_latex, to_markdown
from cdpr.settings import parse_settings

HOSTILE = (
    '=HYPERLINK("http://x.example","CT")',
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(1)",
    "\t=1",
    "'=1",
    "[CT](javascript:alert(1))",
    "![CT](https://x.example/p.png)",
    "[CT][1]",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<!-- x -->",
    "<javascript:alert(1)>",
    "`code` and ``more``",
    "a | b",
    r"a \| b",
    "\\",
    r"\input{/etc/passwd}",
    "100% & #1_{x}^2 ~",
    "$x^{",
    "$\\frac{1}$",
    "CT\n| x | y |",
    "**bold** _it_",
    "{{ 7 * 7 }}",
    "~~struck~~ and ~",
    "_it_ 2*3*4 **",
    "snake_case_name",
    "&lt;b&gt; &amp; &#60;",
    "https://x.example/a and www.x.example",
    "[CT]: https://x.example",
    "* star",
    "# head",
    "1. one",
    "CT\u00a0scan\u200b",
    "x" * 3000,
    "\u202eevil\x1b[31m\x07",
    "</td></tr>",
)
FORMULA = re.compile(r"[=@\t\r]|[+\-](?!\d+(\.\d+)?$)")


def markdown_cells(text):
    """The cells of all tables of a page. No token may be more than text, emphasis or a part of a table."""
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)
    kinds = {token.type for token in tokens} | {c.type for token in tokens for c in token.children or ()}
    assert not kinds & {"link_open", "image", "html_inline", "html_block", "code_inline", "fence", "code_block"}, kinds
    rows, row = [], None
    for before, token in itertools.pairwise(tokens):
        if token.type == "tr_open":
            row = []
        elif token.type == "tr_close":
            rows.append(row)
        elif token.type == "inline" and before.type in ("td_open", "th_open"):
            row.append("".join(child.content for child in token.children))
    return rows


def csv_cells(text):
    return [cell for row in csv.reader(io.StringIO(text)) for cell in row]


def as_shown(name):
    """A name on one line, without what commands a terminal or turns letters round."""
    return " ".join(re.split(r"[ \t\n]+", re.sub("[\x1b\x07\u202e]", "\ufffd", name.strip())))


def check_latex(text, folder):
    """No name is a command, a comment, mathematics, a column or an argument; pdflatex prints it where it is."""
    plain = re.sub(r"\\label\{.*?\}|\\(?:text\w+|ldots)\{\}|\\[&%$#_{}]", "", text)
    assert not re.search(r"\\(input|frac|def)\b|[%^#_\t\x1b]", plain.partition("\n")[2]) and text.isascii()
    assert "passwd" in text and not re.search(r"\\\\\s*[\[*]", text)
    if shutil.which("pdflatex"):
        page = "\\documentclass[a0paper]{article}\\usepackage{booktabs}\\begin{document}\\tiny %s\\end{document}"
        (folder / "t.tex").write_text(page % re.sub(r"x{3000}", "x", text))
        command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"]
        made = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        assert made.returncode == 0, made.stdout[-2000:].decode(errors="replace")


@pytest.fixture
def hostile_case(case):
    """A case whose examinations, results, groups and diagnosis have such names."""
    return changed(
        case, split="test", diagnosis_results=HOSTILE[6], final_diagnosis=HOSTILE[9],
        key_pertinent_results_dict=dict(zip(HOSTILE, reversed(HOSTILE), strict=True)),
        exam_cost_map=dict.fromkeys(HOSTILE, 1.0), exam_billing_group={HOSTILE[0]: HOSTILE[1]},
    )  # fmt: skip


def test_a_table_in_all_its_forms(tmp_path):
    columns = [Column("name", "Name", align="l"), Column("value", "Value")]
    rows = [{"name": name, "value": -1.5} for name in HOSTILE] + [{"name": "x", "name_text": name} for name in HOSTILE]
    rows += [{"name": "x", "reason": name} for name in HOSTILE] + [{"name": "x", "heading": name} for name in HOSTILE]
    table = Table(columns, rows, by="heading", heading="Part")
    cells = csv_cells(to_csv(rows, ["name", "value"], 2))
    assert not [cell for cell in cells if FORMULA.match(cell)] and "-1.50" in cells
    shown = markdown_cells(to_markdown(table))
    assert len(shown) == 1 + len(rows) + len(HOSTILE) and {len(row) for row in shown} == {2}
    names, count = [as_shown(name) for name in HOSTILE], len(HOSTILE)
    assert [row[0] for row in shown[1 : 1 + 2 * count]] == 2 * names
    assert [row[0] for row in shown[1 + 3 * count :: 2]] == names
    check_latex(to_latex(table), tmp_path)


def test_a_table_for_people_is_read_back_as_it_was_and_one_for_programs_is_left_alone(tmp_path):
    rows = [{"name": name} for name in HOSTILE if "\n" not in name]
    path = write_csv(tmp_path / "people.csv", ["name"], rows)
    written = [row["name"] for _, row in read_table(path, ["name"])]
    assert not any(map(FORMULA.match, written)) and [escape.unescape_csv_cell(cell) for cell in written] == [
        r["name"] for r in rows
    ]
    path = write_csv(tmp_path / "programs.csv", ["name"], rows, for_people=False)
    assert [row["name"] for _, row in read_table(path, ["name"])] == [row["name"] for row in rows]
    assert [escape.csv_cell(cell) for cell in ("-1.5", "+2", -1.5, None)] == ["-1.5", "+2", -1.5, None]


def test_what_ingestion_and_pricing_write(tmp_path, hostile_case):
    attrition = Attrition("private", read=1, kept=1)
    for name in HOSTILE:
        attrition.leak(name, "removed", name, name)
    path = write_csv(tmp_path / "findings.csv", list(next(iter(attrition.rows()))), attrition.rows())
    assert not [cell for cell in csv_cells(path.read_text()) if FORMULA.match(cell)]
    write_records(tmp_path / "records.jsonl", [hostile_case])
    out = {name: tmp_path / f"{name}.csv" for name in ("coverage", "review")} | {"cases": tmp_path / "cases.jsonl"}
    map_costs(parse_settings({}), Job("m", "k", {"records": tmp_path / "records.jsonl"}, out,
                                      options={"dataset": "private"}))  # fmt: skip
    for name in ("coverage", "review"):
        assert not [cell for cell in csv_cells(out[name].read_text()) if FORMULA.match(cell)]


def test_a_data_card(tmp_path, hostile_case):
    names = [name for name in HOSTILE if name.strip()]
    cases = [
        changed(hostile_case, note_id=f"n{n}-{k}", subject_key=f"s{n}-{k}", diagnosis_results=name,
                key_pertinent_results_dict={"Lipase": "1"}, exam_cost_map={"Lipase": 6.89}, exam_billing_group={})
        for n, name in enumerate(names) for k in range(1 + 2 * (name in HOSTILE[5:12]))
    ]  # fmt: skip
    job = write_inputs(tmp_path, cases)
    write_data_card(parse_settings({}), job)
    rows = markdown_cells(job.out["md"].read_text())
    assert {cell for row in rows for cell in row} & {*names}, "names are in it"


def test_a_sample_case(hostile_case):
    settings = parse_settings({})
    for name, rows in {"case": case_rows(hostile_case, 1), "examinations": examination_rows(hostile_case)}.items():
        sheet = Sheet(settings, "sample_case", source="", seed=0)
        sheet.add(name, rows)
        (table,) = sheet.tables
        assert {len(row) for row in markdown_cells(to_markdown(table))} == {len(table.columns)}


def test_a_name_in_a_figure_is_no_mathematics(tmp_path):
    out = {kind: tmp_path / f"f.{kind}" for kind in ("png", "pdf")}
    names = [name[:60] for name in HOSTILE]
    with warnings.catch_warnings(), style.drawing(30, 30, out) as figure:
        warnings.simplefilter("error")  # such as a missing glyph
        panel = figure.add_subplot(title="\n".join(names))
        panel.set_yticks(range(len(names)), [escape.figure(name) for name in names])
        for place, name in enumerate(names):
            panel.plot([0, 1], [place, place], label=name)
            panel.annotate(name, (0, place))
        figure.legend()
    assert out["png"].stat().st_size > 1000
