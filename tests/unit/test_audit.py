"""The audit of the paper against itself: what it must find, what must not trouble it, and that it notices changes."""

import operator
import re
import shutil
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import pytest

from cdpr.ledger.audit import audit_paper
from cdpr.ledger.recompute import Recomputed, first, holds, span
from cdpr.results.paper import PaperFactsError, facts_folder, read_paper

PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper" / "cdpr.tex"


@pytest.fixture(scope="module")
def findings():
    return {finding.id: finding for finding in audit_paper()}


@pytest.fixture
def folder(tmp_path):
    """A copy of the facts, to be tampered with."""
    return Path(shutil.copytree(facts_folder(), tmp_path / "paper"))


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def disagreeing(findings, start: str) -> set[str]:
    return {i.removeprefix(start) for i, f in findings.items() if i.startswith(start) and not f.agrees}


def test_known_contradictions_come_out(findings):
    assert disagreeing(findings, "marks.") == {"mimic_iv.aen"}
    assert findings["marks.mimic_iv.aen"].recomputed == "best: Qwen3-4B; second: CDPR-4B"
    assert disagreeing(findings, "attainable.main:") == {"CDPR-4B:private.acc", "Baichuan-M1-32B:private.acc"}
    cdpr = findings["attainable.main:CDPR-4B:private.acc"]
    assert cdpr.recomputed == "286/952 = 30.04, 287/952 = 30.15"
    assert disagreeing(findings, "attainable.mimic_iv.") == {
        "ablation:w/o lambda_test:acc", "ablation:w/o lambda_cost:acc", "ablation:w/o lambda_na:acc",
        "dynamic:Static diagnosis:acc",
    }  # fmt: skip
    assert not findings["attainable.pooled"].agrees
    assert disagreeing(findings, "turn_cap.") == {"mimic_iv"}
    assert "Huatuo-o1-8B, Baichuan-M1-32B" in findings["turn_cap.mimic_iv"].note
    assert disagreeing(findings, "examinations.backbone.") == {"mimic_iv", "clinicalbench", "private"}
    assert findings["accuracy.everywhere.private"].recomputed.startswith("12 of 18")
    assert findings["private.better"].recomputed == "11 of 18"
    assert findings["average.weighted"].recomputed == "49.0677 > 47.2807: true"
    assert findings["medical.gemma"].recomputed == "-1.36 points"
    assert findings["utility.zero.CDPR-4B"].recomputed == "-0.3073 > 0: false"
    assert disagreeing(findings, "power.") == {
        "ablation.w/o lambda_test", "ablation.w/o lambda_cost", "ablation.w/o lambda_na", "static", "grpo.private",
    }  # fmt: skip
    for name in ("agents.medagent_cost", "agents.medagent_tests", "ablation.cost_role_alone", "efficiency.validation",
                 "cost_pattern.ratio", "cost_pattern.sets.DiagAgent-8B", "prices.ct", "cache.group",
                 "repeats.continuation.policy", "repeats.cache.scope", "repeats.credit.level"):  # fmt: skip
        assert not findings[name].agrees, name


def test_what_checks_out_is_not_blamed(findings):
    averages = [f for i, f in findings.items() if i.startswith("averages.")]
    assert len(averages) == 54 and all(f.agrees for f in averages)
    assert sum(i.startswith("attainable.main:") for i in findings) == 54
    quotes = [f for i, f in findings.items() if re.match(r"results\d|ablation\.text|static\.text", i)]
    assert len(quotes) == 29 and all(f.agrees for f in quotes)
    for name in ("static.reduction", "static.tenth", "private.points", "private.sixteenth", "average.least_cost",
                 "average.best_accuracy", "ablation.aen_doubles", "ablation.aec_doubles", "ablation.is_grpo.acc",
                 "batch", "expert.states", "expert.largest", "agents.least", "agents.most"):  # fmt: skip
        assert findings[name].agrees, name
    assert findings["static.reduction"].recomputed == "90.731%"
    assert findings["private.sixteenth"].recomputed == "15.87"


def test_findings_are_whole(findings):
    for finding in findings.values():
        assert finding.place and finding.says and finding.printed and finding.recomputed
        assert "{" not in "".join(map(str, asdict(finding).values())), finding.id


def test_a_changed_figure_is_noticed(findings, folder):
    before = {i for i, f in findings.items() if not f.agrees}
    change(folder / "main_results.csv", "average,47.42", "average,47.44")
    change(folder / "main_results.csv", "mimic_iv,32.53,2.84", "mimic_iv,32.55,2.84")
    change(folder / "text.csv", "states,300,rated states,Expert Evaluation\n", "states,310,rated states,X\n")
    change(folder / "dynamic_vs_static.csv", "395.40", "365.40")
    change(folder / "audit.yaml", "beta, eta, n]", "beta, eta]")
    after = {f.id for f in audit_paper(folder) if not f.agrees}
    assert after - before == {
        "averages.CDPR-4B acc", "results1.main:CDPR-4B:average.acc", "attainable.main:Qwen3-8B:mimic_iv.acc",
        "repeats.states", "sensitivity.number", "static.reduction", "static.text.dynamic:Static diagnosis:aec",
    }  # fmt: skip


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("id: prices,", "id: rates,", r"audit\.yaml: only here or only in ledger/checks\.py: prices, rates"),
        ("id: batch,", "id: batch, whatever: 1,", r"audit\.yaml: no list of statements: (.|\n)*whatever"),
        (
            "main:GPT-5.4:average.acc",
            "main:GPT-9:average.acc",
            r"results1: KeyError: 'main:GPT-9:average.acc'",
        ),
        ("within: '0.5'", "within: half", r"statement private.points: ValueError: .*half"),
        ("id: prices,", "id: repeats,", r"only here or only in ledger/checks\.py: prices"),
        ("holds: ['text:n_s',", "whole: ['text:n_s',", r"audit\.yaml: no list of statements: (.|\n)*whole"),
        ("follows: [product,", "follows: [power,", r"statement batch: KeyError: 'power'"),
        ("each: [aen, aec]", "each: [aen, aen]", r"the same id twice: ablation\.rise\.aen"),
    ],
)
def test_malformed_statements_name_themselves(folder, old, new, message):
    change(folder / "audit.yaml", old, new)
    with pytest.raises(PaperFactsError, match=message):
        audit_paper(folder)


def test_malformed_facts_name_file_and_line(folder):
    change(folder / "ablation.csv", "47.33", "47,33")
    with pytest.raises(PaperFactsError, match=r"ablation\.csv:3: expected 9 fields"):
        audit_paper(folder)
    change(folder / "ablation.csv", "47,33", "about 47")
    with pytest.raises(PaperFactsError, match=r"ablation\.csv:3: ValueError"):
        audit_paper(folder)
    (folder / "audit.yaml").write_text("- [")
    with pytest.raises(PaperFactsError, match=r"audit\.yaml: no list of statements"):
        audit_paper(folder)


def test_calculations_are_exact_and_know_their_rounding():
    facts = read_paper()
    ours, without = facts["ablation:CDPR:aen"], facts["ablation:w/o lambda_test:aen"]
    assert ours.half == Fraction(1, 200) and ours.text == "2.10"
    assert facts["dynamic:CDPR:aec"] / facts["dynamic:Static diagnosis:aec"] == Fraction(3665, 39540)
    assert span(operator.sub, ours, without) == (Fraction("-2.01"), Fraction("-1.99"))
    assert span(lambda k: k * 2, facts["text:K"]) == (8, 8)  # settings are exact
    told = holds(ours + Fraction("0.05"), "<", 3, "≤", facts["text:K"])
    assert (told.text, told.agrees) == ("2.15 < 3 ≤ 4: true", True)
    assert holds(ours, ">", without) == Recomputed("2.10 > 4.10: false", False)
    with pytest.raises(KeyError):
        holds(ours, "==", without)


def test_the_first_of_a_column_is_found_either_way():
    column = read_paper().column("aen", table="ablation")
    assert first(column, "CDPR", "least").agrees and not first(column, "CDPR", "greatest").agrees
    assert first(column, "w/o R_proc", "least") == Recomputed(
        "3 of 5 (2.55)", False, "Before it: CDPR (2.1), w/o lambda_cost (2.2).", printed="1 of 5"
    )


def test_attainable_accuracies_by_trying_all(folder, findings):
    for method, cases in (("CDPR-4B:mimic_iv", 750), ("GPT-5.4:private", 952), ("CDPR-4B:private", 952)):
        finding = findings[f"attainable.main:{method}.acc"]
        assert finding.agrees == any(f"{100 * k / cases:.2f}" == finding.printed for k in range(cases + 1))


needs_paper = pytest.mark.skipif(not PAPER.is_file(), reason=f"{PAPER.name} is not at hand")


@needs_paper
def test_table_and_marks_are_the_paper_s():
    text = PAPER.read_text(encoding="utf-8")
    table = text[text.index(r"\label{tab:main_results}") : text.index(r"\end{table*}", text.index("tab:main_results"))]
    facts, seen = read_paper(), 0
    for line in (row for row in table.splitlines() if row.count("&") == 12):
        name, *cells = line.rstrip("\\ ").split("&")
        method = re.sub(r"~?\\cite\{.*?\}|\(Ours\)", "", name).strip()
        if method not in facts.groups["main"]:
            continue
        for i, cell in enumerate(cells):
            place = ("mimic_iv", "clinicalbench", "private", "average")[i // 3]
            address = f"main:{method}:{place}.{('acc', 'aen', 'aec')[i % 3]}"
            assert facts.numbers[address].text == re.findall(r"\d+\.\d+", cell)[-1]
            mark = "best" if "textbf" in cell else "second" if "underline" in cell else ""
            assert facts.marks[address] == mark
            seen += 1
    assert seen == 18 * 12


@needs_paper
def test_the_checks_use_our_own_words(findings):
    paper = " ".join(re.findall(r"[a-z0-9]+", PAPER.read_text(encoding="utf-8").lower()))
    for finding in findings.values():
        words = re.findall(r"[a-z0-9]+", finding.says.lower())
        for start in range(len(words) - 8):
            assert " ".join(words[start : start + 9]) not in paper, finding.says
