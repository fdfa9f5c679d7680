"""Tables 2 and 3 and the sample case, from small evaluation files written here."""

from __future__ import annotations

import csv
import itertools
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from latex import compile_latex
from toy import CALL_COUNTS

from cdpr.cases import CaseRecord, write_records
from cdpr.escape import latex
from cdpr.evaluation.metrics import ACCURACY, AEC, IN_DOMAIN_METRICS, EvaluationError
from cdpr.evaluation.significance import detectable_difference, holm, narrowness
from cdpr.report import checks, in_domain, sample_case
from cdpr.report.methods import IN_DOMAIN, REFERENCE, list_methods, main_methods, variant_method
from cdpr.report.results import Results, describe_change
from cdpr.report.table import Table, declared_columns
from cdpr.settings import parse_settings
from cdpr.settings.datasets import controlled_name

SETTINGS = parse_settings({"seeds": [0, 1], "evaluation": {"bootstrap": 300}, "utility": {"cost_unit_usd": 10}})
CASES = 40
# Run -> (right diagnoses of 10, first of them, examinations, cost of one, unavailable requests).
RUNS = {
    "cdpr-seed0": (6, 0, 2, 15.0, 0), "cdpr-seed1": (8, 0, 2, 15.0, 0), "grpo-seed0": (5, 0, 4, 20.0, 0),
    "grpo-seed1": (6, 0, 4, 20.0, 0), "without_lambda_test-seed0": (6, 2, 5, 15.0, 0),
    "without_lambda_test-seed1": (8, 0, 5, 15.0, 0), "without_lambda_na-seed0": (5, 0, 3, 12.0, 2),
    "without_lambda_na-seed1": (7, 0, 3, 12.0, 2), "static": (7, 0, 9, 40.0, 0), "warm_start": (4, 0, 3, 20.0, 0),
}  # fmt: skip


def row(number: int, decoding: str, correct: bool, tests: int, price: float, na: int = 0) -> dict:
    return {
        "note_id": f"c{number:03d}", "decoding": decoding, "correct": correct, "gold": f"Gout {number}",
        "diagnosis": f"Gout {number}" if correct else "Flu",
        "turns": tests + 1, "n_issued": tests, "n_available": tests,
        "n_unavailable": na, "n_invalid": 0, "n_repeated": 0, "n_physical": 1, "n_tests": tests, "n_na": na,
        "cost_usd": tests * price,
        "utility": correct - 0.05 * tests - 0.002 * tests * price - 0.1 * na, "forced": False, **CALL_COUNTS,
    }  # fmt: skip


def write_rows(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


@pytest.fixture
def results(tmp_path) -> Path:
    for run, (right, first, tests, price, na) in RUNS.items():
        rows = [
            row(i, decoding, first <= i % 10 < first + right, tests, price * (1 + i % 3), na)
            for decoding, i in itertools.product(("greedy", "sampled"), range(CASES))
        ]
        write_rows(tmp_path / "results/evaluations" / run / "mimic_iv.jsonl", rows)
    return tmp_path / "results"


def texts(sheet, results: Path, stem: Path, settings=SETTINGS) -> dict[str, str]:
    """What a table writes, by ending."""
    out = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in ("csv", "md", "tex")}
    sheet(settings, results).write(out)
    return {f".{kind}": path.read_text(encoding="utf-8") for kind, path in out.items()}


def sample_texts(results: Path, stem: Path, cases: Path, settings=SETTINGS) -> dict[str, str]:
    """What the table of the sample case writes, by ending, with these cases among the results."""
    (results / "cases").mkdir(exist_ok=True)
    shutil.copy(cases, results / "cases" / "mimic_iv.jsonl")
    return texts(sample_case.sheet_sample_case, results, stem, settings)


def read_csv(text: str) -> list[dict[str, str]]:
    rows = list(csv.DictReader(text.splitlines()))
    assert all(None not in r and None not in r.values() for r in rows)  # no row is shorter or longer than the header
    return rows


def check_latex(text: str, folder: Path) -> None:
    """Every row has as many cells as its table, braces close, characters print; pdflatex compiles where it is."""
    plain = text.replace("longtable", "tabular")
    tables = re.findall(r"\\begin\{tabular\}\{((?:[lcr]|p\{[^}]*\})+)\}\n(.*?)\\end\{tabular\}", plain, re.DOTALL)
    assert len(tables) == plain.count(r"\begin{tabular}") and tables
    for columns, body in tables:
        width = len(re.sub(r"p\{[^}]*\}", "p", columns))
        for line in (line for line in body.splitlines() if line.endswith(r"\\")):
            spans = [int(span) for span in re.findall(r"\\multicolumn\{(\d+)\}", line)]
            assert len(re.findall(r"(?<!\\)&", line)) + 1 + sum(spans) - len(spans) == width, line
    assert text.isascii() and not re.search(r"[\x00-\x09\x0b-\x1f]", text)
    plain = re.sub(r"\\[\\{}]", "", text)
    assert plain.count("{") == plain.count("}") and plain.count("$") % 2 == plain.count(r"\$") % 2
    labels = re.findall(r"\\label\{(.*?)\}", text)
    assert len(set(labels)) == len(labels) == len(tables)
    compile_latex(text, folder)


def test_ablations_stand_below_cdpr_with_changes_tests_and_power(results, tmp_path):
    made = texts(in_domain.sheet_ablations, results, tmp_path / "t")
    check_latex(made[".tex"], tmp_path)
    table = made[".md"].split("## ")[1]
    assert table.index("CDPR (ours)") < table.index("w/o R_proc") < table.index("w/o λ_test") < table.index("w/o λ_na")
    assert "synthetic hospital" in table and "24+32 / 2×40" in table and "| 0, 1 |" in table
    assert table.count("**70.00 [") == 2  # a tie shares the mark
    assert "w/o λ_cost — *missing: evaluations/without_lambda_cost-seed0/mimic_iv.jsonl" in table
    assert "w/o R_proc trains what GRPO trains" in table

    rows = {(r["variant"], r["decoding"]): r for r in read_csv(made[".csv"])}
    assert len(rows) == 2 * 5
    gap = rows["without_lambda_cost", "greedy"]
    assert gap["status"].startswith("missing") and (gap["accuracy"], gap["change_aec"]) == ("", "")
    assert gap["paper_acc"] == "52.10"
    proc = rows["without_process_reward", "greedy"]
    assert proc["job"] == "grpo" and (proc["k"], proc["n"], proc["seeds"]) == ("20+24", "40", "2")
    assert float(proc["change_accuracy"]) == pytest.approx(0.55 - 0.7)
    # Differences of -.1 and -.2: with Student's factor of two seeds that is not told from none.
    assert float(proc["change_accuracy_low"]) < -0.15 < 0 < float(proc["change_accuracy_high"])
    # seed 0: 4 cases only CDPR got right, seed 1: 8; exact two-sided tests of a fair coin, family of three ablations
    assert (proc["only_this"], proc["only_cdpr"]) == ("0+0", "4+8")
    tests = {"without_process_reward": [2 / 2**4, 2 / 2**8], "without_lambda_test": [1.0, 1.0],
             "without_lambda_na": [2 / 2**4, 2 / 2**4]}  # fmt: skip
    whole = holm([p for family in tests.values() for p in family])
    assert [float(p) for p in proc["mcnemar_p"].split("+")] == pytest.approx(tests["without_process_reward"])
    assert [float(p) for p in proc["mcnemar_p_holm"].split("+")] == pytest.approx(whole[:2], abs=1e-5)
    assert float(proc["discordant"]) == pytest.approx(6 / 40)
    assert proc["detectable"] == "inf"  # six discordant cases of forty could show nothing
    shifted = rows["without_lambda_test", "greedy"]
    assert (shifted["only_this"], shifted["only_cdpr"], float(shifted["discordant"])) == ("8+0", "8+0", 0.2)
    assert float(shifted["detectable"]) == pytest.approx(detectable_difference(40, 0.2), abs=1e-6)


def test_the_papers_figures_stand_apart(results, tmp_path):
    for write, figure in (
        (in_domain.sheet_ablations, "53.07"), (in_domain.sheet_dynamic_vs_static, "395.40"),
    ):  # fmt: skip
        ours, printed = texts(write, results, tmp_path / "t")[".md"].split("## As printed in the paper")
        assert figure in printed and figure not in ours and "not comparable with the synthetic tier" in printed


def test_paired_runs_share_their_seeds(results):
    methods = [variant_method(SETTINGS, name) for name in ("cdpr", "grpo")]
    found = Results(SETTINGS, results, methods)
    cdpr, grpo = methods
    one = found.change(replace(grpo, runs=("grpo-seed1",)), cdpr, IN_DOMAIN, "greedy")
    assert one["accuracy_by_seed"] == pytest.approx([0.6 - 0.8])
    assert one["runs"] == (("grpo-seed1", IN_DOMAIN), ("cdpr-seed1", IN_DOMAIN))  # those compared, and no others
    apart = found.change(replace(grpo, runs=("grpo-seed0",)), replace(cdpr, runs=("cdpr-seed1",)), IN_DOMAIN, "greedy")
    assert "share no seed" in apart["reason"]
    static = next(m for m in main_methods(SETTINGS) if m.name == "static")
    assert found.change(cdpr, static, IN_DOMAIN, "greedy")["accuracy_by_seed"] == pytest.approx([-0.1, 0.1])
    lost = found.change(replace(static, runs=("gone",)), cdpr, IN_DOMAIN, "greedy")
    assert lost["missing"] == "evaluations/gone/mimic_iv.jsonl" and "accuracy" not in lost


def test_reduction_is_a_paired_ratio(results, tmp_path):
    settings = SETTINGS.model_copy(update={"evaluation": SETTINGS.evaluation.model_copy(update={"bootstrap": 4000})})
    compared = list_methods(settings, "dynamic_vs_static")

    def reduction(costs: dict[str, np.ndarray] | None = None) -> dict:
        at = Results(settings, results, compared)
        for run, values in (costs or {}).items():
            (method,) = (m for m in compared if run in m.runs)
            rows = at.rows(replace(method, runs=(run,)), IN_DOMAIN, "greedy").assign(cost_usd=values)
            monkeyed[run] = rows
        if costs:
            whole = at.rows
            at.rows = lambda method, *place: pd.concat(
                [monkeyed[run] if run in costs else whole(replace(method, runs=(run,)), *place) for run in method.runs]
            )
        return in_domain.cost_reduction(at, "greedy")

    monkeyed: dict[str, pd.DataFrame] = {}
    # Costs of both are proportional case by case, so every resample gives the same ratio: 30 of 360.
    ends = ("aec_reduction", "aec_reduction_low", "aec_reduction_high")
    assert [reduction()[end] for end in ends] == pytest.approx([1 - 30 / 360] * 3)
    rng = np.random.default_rng(0)
    noisy = {run: rng.gamma(2, 20, CASES) for run in ("cdpr-seed0", "cdpr-seed1")}
    some = reduction(noisy)
    static = Results(settings, results, compared).rows(compared[0], IN_DOMAIN, "greedy")
    costs, whole = np.mean([*noisy.values()], axis=0), static.cost_usd.to_numpy()
    picks = rng.integers(0, CASES, (4000, CASES))
    each = np.array([values.mean() for values in noisy.values()])
    seeds = narrowness(2) * (each[rng.integers(0, 2, (4000, 2))].mean(1) - each.mean())
    low, high = np.quantile(1 - (costs[picks].mean(1) + seeds) / whole[picks].mean(1), [0.025, 0.975])
    assert some["aec_reduction"] == pytest.approx(1 - costs.mean() / whole.mean())
    assert [some[end] for end in ends[1:]] == pytest.approx((low, high), abs=0.004)
    assert reduction({"static": np.zeros(CASES)}) == {
        "aec_reduction_text": "not defined: static diagnosis costs nothing"
    }

    made = texts(in_domain.sheet_dynamic_vs_static, results, tmp_path / "t")
    check_latex(made[".tex"], tmp_path)
    table = made[".md"].split("## ")[1]
    assert "| **59.25 [" in table and "| 91.7 [91.7, 91.7] |" in table and "<ins>" not in table
    rows = {(r["method"], r["decoding"]): r for r in read_csv(made[".csv"])}
    assert float(rows["cdpr", "greedy"]["aec_reduction"]) == pytest.approx(1 - 30 / 360, abs=1e-6)
    assert (rows["static", "greedy"]["aec_reduction"], rows["cdpr", "greedy"]["paper_aec"]) == ("", "36.65")
    (results / "evaluations/static/mimic_iv.jsonl").unlink()
    holed = texts(in_domain.sheet_dynamic_vs_static, results, tmp_path / "t")
    assert holed[".md"].count("missing: evaluations/static/mimic_iv.jsonl") == 6
    assert len(read_csv(holed[".csv"])) == 4


def test_a_reading_speaks_of_the_figures_that_are_shown(results, tmp_path):
    cdpr, grpo = (variant_method(SETTINGS, name) for name in ("cdpr", "grpo"))
    change = Results(SETTINGS, results, [cdpr, grpo]).change(cdpr, grpo, IN_DOMAIN, "greedy")
    change |= {"label": "A", "second": "B"}
    assert describe_change(change, [AEC]) == "A against B is better on AEC."
    assert describe_change(change, [ACCURACY, AEC]) == "A against B is better on AEC; open on Acc."
    for write, shown in ((in_domain.sheet_dynamic_vs_static, "Acc. AEC Utility"),
                         (in_domain.sheet_ablations, "Acc. AEN AEC N_na Utility")):  # fmt: skip
        text = texts(write, results, tmp_path / "t")[".md"]
        said = set(re.findall(r"(?<=[ ,])(Acc|AEN|AEC|N_na|Utility)(?=[,;.])", " ".join(
            part for part in re.findall(r"(?m)^- .* against .*$", text) if "McNemar" not in part)))  # fmt: skip
        assert said == {name.rstrip(".") for name in shown.split()}


def test_one_alone_is_the_best_of_nothing(results, tmp_path):
    methods = [variant_method(SETTINGS, name) for name in ("cdpr", "grpo", "without_lambda_cost")]

    def marked(methods) -> list[list[str]]:
        at = Results(SETTINGS, results, methods)
        columns = declared_columns(["method", {"metrics": "in_domain", "marked": 2}])
        table = Table(columns, [at.summary(method, IN_DOMAIN, "greedy") for method in methods])
        assert table.rows[-1]["reason"].startswith("missing: evaluations/without_lambda_cost")
        return [[table.cell(row, column).mark for column in columns] for row in table.rows]

    aec = 1 + IN_DOMAIN_METRICS.index(AEC)
    assert [row[aec] for row in marked(methods)] == ["best", "second", ""]  # CDPR, GRPO
    knowing = replace(methods[1], group=REFERENCE)
    for rivals in ((methods[0], methods[2]), (methods[0], knowing, methods[2])):  # the last was not measured
        assert not any(itertools.chain(*marked(rivals)))
    for path in results.glob("evaluations/*"):
        if not path.name.startswith("cdpr"):
            shutil.rmtree(path)
    for write in (in_domain.sheet_ablations, in_domain.sheet_dynamic_vs_static):
        made = texts(write, results, tmp_path / "t")
        ours = made[".md"].split("## As printed")[0]
        assert "70.00 [" in ours and "**" not in ours.replace("***", "") and r"\textbf{70" not in made[".tex"]


def diverge(results: Path, run: str, step: int) -> None:
    line = {"step": step, "seconds": 1.0, "tokens": 1, "diverged": True}
    write_rows(results / "training" / run / "metrics.jsonl", [line])


def test_leak_control_and_the_sample_case_say_which_runs_diverged(results, tmp_path):
    for run in ("cdpr-seed0", "cdpr-seed1"):
        whole = results / "evaluations" / run / "mimic_iv.jsonl"
        shutil.copy(whole, whole.with_name(f"{controlled_name('mimic_iv')}.jsonl"))
    write_records(tmp_path / "a.jsonl", [record(i) for i in range(CASES)])

    def made() -> tuple[dict[str, str], dict[str, str]]:
        leak = texts(checks.sheet_leak_control, results, tmp_path / "l")
        return leak, sample_texts(results, tmp_path / "s", tmp_path / "a.jsonl")

    assert not any("diverged" in text for forms in made() for text in forms.values())
    sound = read_csv(made()[1][".csv"])
    diverge(results, "cdpr-seed1", 9)
    leak, sample = made()
    assert all("cdpr-seed1 " in forms[kind] and "at step 9" in forms[kind]
               for forms in (leak, sample) for kind in (".md", ".tex", ".csv"))  # fmt: skip
    rows = {(r["method"], r["dataset"]): r["status"] for r in read_csv(leak[".csv"]) if r["decoding"] == "greedy"}
    assert rows["cdpr", "mimic_iv"] == "measured; cdpr-seed1 diverged at step 9"
    assert not any("diverged" in status for key, status in rows.items() if key != ("cdpr", "mimic_iv"))
    added = [r for r in read_csv(sample[".csv"]) if r not in sound]
    assert [(r["part"], r["name"], r["seed"], r["status"]) for r in added] == [
        ("agent", "cdpr", "1", "cdpr-seed1 diverged at step 9")
    ]


HOSTILE = "5 µg/m² ≥ 38 °C | a & b_c {x} $y$ \\input{z} 10⁹/L 検\u0007"


def record(number: int, **changes) -> CaseRecord:
    exams = {f"Heart {HOSTILE} (Physical Examination)": "ok\n\nfine", "Urate": HOSTILE * 3, "Sodium": "140",
             "Potassium": "4"}  # fmt: skip
    prices = dict(zip(exams, (0.0, 9.0, 10.5, 10.5), strict=True))
    fields = {
        "note_id": f"c{number:03d}", "case_summary": f"- Chief Complaint: toe {HOSTILE}\n- Allergy History: None.",
        "key_pertinent_results_dict": exams, "final_diagnosis": f"Gout {number}", "diagnosis_results": f"Gout {number}",
        "exam_cost_map": prices, "exam_billing_group": {"Sodium": "BMP_PANEL", "Potassium": "BMP_PANEL"},
        "dataset": "mimic_iv", "split": "test", "subject_key": f"p{number}", "credentialed": False,
    }  # fmt: skip
    return CaseRecord(**fields | changes)


def test_a_digest_chooses_the_case_and_every_run_is_told(results, tmp_path):
    cases = [record(i) for i in range(CASES)] + [record(900 + i, split="train") for i in range(20)]
    write_records(tmp_path / "a.jsonl", cases)
    write_records(tmp_path / "b.jsonl", cases[::-1])
    samples = [sample_case.choose_case(SETTINGS, tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    assert samples[0] == samples[1] and samples[0][1] == CASES and samples[0][0].split == "test"
    seeds = [parse_settings({"evaluation": {"seed": seed}}) for seed in range(8)]
    assert len({sample_case.choose_case(s, tmp_path / "a.jsonl")[0].note_id for s in seeds}) > 3

    chosen = samples[0][0].note_id
    path = results / "evaluations/warm_start/mimic_iv.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if chosen not in line))
    made = sample_texts(results, tmp_path / "t", tmp_path / "a.jsonl", SETTINGS)
    check_latex(made[".tex"], tmp_path)
    assert r"$\mu$g/m$^2$ $\geq$ 38 $^{\circ}$C \textbar{} a \& b\_c" in made[".tex"] and "(U+691C)" in made[".tex"]
    assert "smallest digest of evaluation.seed (0) and the note's id" in made[".md"] and "synthetic" in made[".md"]
    rows = read_csv(made[".csv"])
    assert [r["text"] for r in rows if r["name"] == "Note"] == [chosen]
    exams = {r["name"]: r for r in rows if r["part"] == "examination"}
    assert len(exams) == 4 and (exams["Sodium"]["price_usd"], exams["Sodium"]["billing_group"]) == (
        "10.50",
        "BMP_PANEL",
    )
    assert next(r["text"] for r in rows if r["name"] == "Whole record") == "4 examinations, USD 19.50"
    agents = {(r["name"], r["seed"]): r for r in rows if r["part"] == "agent"}
    assert len(agents) == sum(len(m.runs) for m in main_methods(SETTINGS))
    number = int(chosen[1:])
    for seed, right in (("0", 6), ("1", 8)):
        told = agents["cdpr", seed]
        assert told["correct"] == str(number % 10 < right).lower() and told["n_issued"] == "2"
        assert float(told["cost_usd"]) == 30.0 * (1 + number % 3)
    assert agents["warm_start", ""]["text"] == "not evaluated on this case"
    assert agents["zero_test", ""]["text"] == "missing: evaluations/zero_test/mimic_iv.jsonl"

    write_records(tmp_path / "c.jsonl", [record(i, diagnosis_results="Flu") for i in range(CASES)])
    with pytest.raises(EvaluationError, match=r"field 'gold'.*evaluate it again"):
        sample_texts(results, tmp_path / "t", tmp_path / "c.jsonl")
    write_records(tmp_path / "d.jsonl", [record(1, split="train")])
    with pytest.raises(ValueError, match="no case of split 'test'"):
        sample_case.choose_case(SETTINGS, tmp_path / "d.jsonl")


@pytest.mark.parametrize("credentialed", [True, False])
def test_nothing_of_a_case_that_not_everyone_may_see(credentialed, results, tmp_path):
    secret = {"note_id": "zqnote", "case_summary": "zqsummary", "key_pertinent_results_dict": {"zqexam": "zqresult"},
              "final_diagnosis": "zqfinal", "diagnosis_results": "zqgold", "exam_cost_map": {"zqexam": 77.31},
              "exam_billing_group": {}, "credentialed": credentialed}  # fmt: skip
    cases = [record(i) for i in range(3)] + [record(9, **secret)]
    write_records(tmp_path / "a.jsonl", cases if credentialed else cases[-1:])
    settings = parse_settings({"data": {"mimic_iv": {"path": None if credentialed else "mine", "credentialed": False}}})
    made = sample_texts(results, tmp_path / "t", tmp_path / "a.jsonl", settings)
    check_latex(made[".tex"], tmp_path)
    reason = "not shown: cases are credentialed" if credentialed else "not shown: under their licence"
    for text in made.values():
        assert reason in text and not re.search("zq|77|toe|Urate|c00|Gout", text)
    assert [r["name"] for r in read_csv(made[".csv"])] == ["Sample case"]


def test_units_and_accents_have_a_latex_form():
    assert latex("µμ°²³⁹≥≤αβη½é") == (
        r"$\mu$$\mu$$^{\circ}$$^2$$^3$$^9$$\geq$$\leq$$\alpha$$\beta$$\eta$$\frac{1}{2}$\'{e}"
    )
    assert latex("検\x07ś") == r"(U+691C)(U+0007)\'{s}"
    assert latex("ế") == "(U+1EBF)"  # with one of its two accents it would be another letter
