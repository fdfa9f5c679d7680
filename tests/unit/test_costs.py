"""Prices: the shipped catalogue against the fee schedules, billing groups, fallback, errors."""

import itertools
import shutil
import zipfile
from importlib import resources
from pathlib import Path

import pytest

from cdpr.cases import CaseRecord, examinations
from cdpr.costs import CatalogueError, charge, load_catalogue, price_case, price_cases
from cdpr.costs.fee_schedules import FeeScheduleError, rate_of, read_clfs, read_opps, read_pfs
from cdpr.settings.schema import Costs

CMS = Path(__file__).parents[3] / "shared" / "data" / "cms"


def case(*exam_keys: str) -> CaseRecord:
    return CaseRecord(
        note_id="n", case_summary="- Chief Complaint: cough", final_diagnosis="d", diagnosis_results="d",
        key_pertinent_results_dict=dict.fromkeys(exam_keys, "result"),
        dataset="private", split="test", subject_key="s", credentialed=False,
    )  # fmt: skip


def priced(*exam_keys: str, **settings) -> CaseRecord:
    return price_case(case(*exam_keys), Costs(**settings), load_catalogue())


@pytest.mark.skipif(not CMS.exists(), reason="the CMS files are not beside the repository (../shared/data/cms)")
def test_every_shipped_rate_is_the_one_of_the_fee_schedule():
    schedules = {
        "CLFS 2025 Q2": read_clfs(CMS / "clfs" / "CLFS_2025_Q2V1.csv"),
        "PFS 2025 RVU25D": read_pfs(CMS / "pfs" / "PPRRVU2025_Oct.csv"),
        "OPPS 2023": read_opps(next((CMS / "opps").glob("*.xlsx"))),
    }
    for price in load_catalogue().prices.values():
        assert rate_of(price.hcpcs, schedules[price.source]) == price.usd, price
    clfs, pfs = schedules["CLFS 2025 Q2"], schedules["PFS 2025 RVU25D"]
    golden = {"80053": 10.56, "85027": 6.47, "85025": 7.77, "80048": 8.46, "80069": 8.68, "83605": 11.57,
              "87086": 8.07, "84484": 12.47, "83690": 6.89, "85379": 10.18, "81001": 3.17, "80076": 8.17,
              "81025": 8.61, "85610": 4.29, "85730": 6.01}  # fmt: skip
    assert golden.items() <= clfs.items()
    imaging = {"74177": 297.26, "71046": 32.67, "93000": 13.91, "70450": 105.13, "76700": 111.92, "93306": 187.93,
               "71275": 261.36}  # the last one capped  # fmt: skip
    assert imaging.items() <= pfs.items()
    assert schedules["OPPS 2023"]["74177"] == 368.43
    assert not {"80053", "85027"} & set(pfs), "laboratory tests are never priced from the PFS"


def test_every_examination_of_the_vocabulary_has_a_price_of_its_own():
    prices = load_catalogue().prices
    named = {term.name for term in examinations().terms.values() if term.kind != "physical"}
    assert named <= set(prices)
    for name in prices:
        term = examinations().find(name)
        assert term is None or term.name == name, f"{name} is an alias of {term.name}"
    assert all(price.usd > 0 and price.hcpcs and price.source for price in prices.values())
    assert all(p.source.startswith("CLFS") for p in prices.values()
               if p.group and p.group.endswith("PANEL"))  # fmt: skip


def test_a_billing_group_is_charged_once_whatever_the_order():
    keys = (
        "Comprehensive Metabolic Panel",
        "Sodium",
        "Kidney Function Tests",
        "Chest X-ray",
        "Skin (Physical Examination)",
    )
    record = priced(*keys)
    totals = set()
    for order in itertools.permutations(keys):
        spent = [charge(record, order[:i], key) for i, key in enumerate(order)]
        totals.add(round(sum(spent), 2))
        assert sum(price > 0 for price in spent) == 2
    assert totals == {round(10.56 + 32.67, 2)}
    assert charge(record, ["Chest X-ray"], "Chest X-ray") == 0


@pytest.mark.parametrize(("rule", "usd"), [("max", 10.56), ("sum", 27.70), ("first", 8.46)])
def test_group_price_rules_count_analytes_of_one_panel_once(rule, usd):
    record = priced("Sodium", "Potassium", "Comprehensive Metabolic Panel", "Kidney Function Tests", group_price=rule)
    assert set(record.exam_cost_map.values()) == {usd}
    assert set(record.exam_billing_group.values()) == {"BMP_PANEL"}


def test_paper_prices_take_precedence_and_the_fallback_catches_the_rest():
    keys = (
        "URINE CULTURE",
        "CT of abdomen and pelvis",
        "Light Green Top Hold",
        "Glucose (Urine)",
        "HEENT (Physical Examination)",
    )
    assert list(priced(*keys).exam_cost_map.values()) == [8.07, 297.26, 5.0, 5.0, 0.0]
    paper = priced(*keys, price_map="paper_prices", fallback_usd=6.0)
    assert list(paper.exam_cost_map.values()) == [8.5, 29.73, 6.0, 6.0, 0.0]


def test_coverage_counts_cases_and_says_how_each_was_found():
    _, rows = price_cases([case("CBC", "Sodium"), case("CBC", "Odd Test")], Costs(), load_catalogue())
    told = {row.exam_key: (row.cases, row.how, row.examination) for row in rows}
    assert told == {
        "CBC": (2, "alias", "Complete Blood Count"),
        "Odd Test": (1, "fallback", ""),
        "Sodium": (1, "analyte", "Basic Metabolic Panel"),
    }


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        ("catalogue.csv", ",6.47,", ",six,", r"catalogue\.csv:2: field 'rate_usd': 'six'"),
        ("catalogue.csv", "rate_usd", "rate", r"catalogue\.csv:1: no column 'rate_usd'"),
        ("billing_groups.csv", "Basic Metabolic Panel", "Nowhere", r"billing_groups\.csv:2: field 'parent': 'Nowhere'"),
        ("paper_prices.csv", "8.46", "-1", r"paper_prices\.csv:2: field 'price_usd'"),
    ],
)
def test_a_broken_table_is_an_error_with_file_line_and_field(tmp_path, table, old, new, said):
    for name in ("catalogue.csv", "billing_groups.csv", "paper_prices.csv"):
        shutil.copy(str(resources.files("cdpr.costs").joinpath(name)), tmp_path / name)
    text = (tmp_path / table).read_text()
    (tmp_path / table).write_text(text.replace(old, new, 1))
    with pytest.raises(CatalogueError, match=said):
        load_catalogue(tmp_path)


def test_fee_schedules_are_found_by_header_and_never_give_a_price_that_is_none(tmp_path):
    clfs = tmp_path / "clfs.csv"
    clfs.write_bytes(
        b"Title,,\r\nnotice \xa0,,\r\nYEAR,HCPCS,MOD,EFF_DATE,INDICATOR,RATE,SHORTDESC\r\n"
        b"2025,90001,,20250101,N,00010.56,x\r\n2025,90001,QW,20250101,N,00011.00,x\r\n2025,90002,,20250101,L,00000.00,x\r\n"
    )
    assert read_clfs(clfs) == {"90001": 10.56}
    rows = ["90003,,x,A,,1.00,3.00,,,,0.10,4.10,,1,,,,,,,,,,,32,,,,2.00,2.00,0.05",  # capped at 1 + 2 + 0.05
            "90004,,x,X,,0,0,,,,0,0.00,,1,,,,,,,,,,,32,,,,0,0,0",
            "90005,26,x,A,,1,0,,,,0,1.00,,1,,,,,,,,,,,32,,,,0,0,0",
            "90006,,x,A,,1,0,,,,0,1.00,,1,,,,,,,,,,,32,,,,0,0,0"]  # fmt: skip
    pfs = tmp_path / "pfs.csv"
    pfs.write_text("\n".join(["title", "HCPCS,MOD,DESCRIPTION", *rows]))
    assert read_pfs(pfs, conversion_factor=10) == {"90003": 30.5, "90006": 10.0}
    opps = tmp_path / "opps.xlsx"
    head = "".join(f'<c r="{c}2" t="inlineStr"><is><t>{t}</t></is></c>' for c, t in
                   (("A", "HCPCS Code"), ("B", " SI"), ("C", "Payment Rate ")))  # fmt: skip
    with zipfile.ZipFile(opps, "w") as book:
        book.writestr("xl/worksheets/sheet1.xml",
                      '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
                      f'<row r="1"/><row r="2">{head}</row><row r="3"><c r="A3" t="str"><v>90007</v></c>'
                      '<c r="C3"><v>825.507</v></c></row><row r="4"><c r="A4"><v>90008</v></c></row>'
                      '</sheetData></worksheet>')  # fmt: skip
    assert read_opps(opps) == {"90007": 825.51}
    with pytest.raises(FeeScheduleError, match="YEAR"):
        read_clfs(pfs)
