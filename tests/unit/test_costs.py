"""Prices: catalogue, spellings, billing groups, overrides, fallback, coverage, the strict budget, errors."""

import csv
import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdpr.cases import CaseRecord, examinations, write_records
from cdpr.costs import CatalogueError, charge, coverage, load_catalogue, price_case, review, with_overrides
from cdpr.costs.build import SCHEDULES, examination_codes
from cdpr.costs.catalogue import CONFIDENCES, TABLES, shipped_folder
from cdpr.costs.coverage import POOLED
from cdpr.environment import DiagnosticEnvironment, Turn
from cdpr.settings import Settings
from cdpr.settings.schema import Costs, Environment
from cdpr.stages import map_costs
from cdpr.tracking import Run


def case(*exam_keys: str, credentialed: bool = False, note_id: str = "n") -> CaseRecord:
    return CaseRecord(
        note_id=note_id, case_summary="- Chief Complaint: cough", final_diagnosis="d", diagnosis_results="d",
        key_pertinent_results_dict=dict.fromkeys(exam_keys, "result"),
        dataset="private", split="test", subject_key="s", credentialed=credentialed,
    )  # fmt: skip


def priced(*exam_keys: str, **settings) -> CaseRecord:
    return price_case(case(*exam_keys), Costs(**settings), load_catalogue())


def test_every_examination_of_the_vocabulary_has_a_price_of_its_own():
    prices = load_catalogue().prices
    named = {term.name for term in examinations().terms.values() if term.kind != "physical"}
    assert named <= set(prices)
    for name in prices:
        term = examinations().find(name)
        assert term is None or term.name == name, f"{name} is an alias of {term.name}"
    assert all(price.usd > 0 and price.hcpcs and price.source and price.year for price in prices.values())


def test_laboratory_tests_are_priced_from_the_laboratory_schedule_alone():
    codes = {row.examination: row for row in examination_codes()}
    for name, row in codes.items():
        term = examinations().find(name)
        laboratory = term is not None and term.kind in ("laboratory", "microbiology")
        if laboratory or row.billing_group.endswith("PANEL"):
            assert row.schedule == "CLFS", row
        assert row.confidence == "exact" or row.provenance != "one code", row
    assert {codes[n].schedule for n in ("Chest X-ray", "CT Head", "ECG")} == {"PFS"}
    assert {codes[n].schedule for n in ("Endoscopy", "Lumbar Puncture", "Coronary Angiography")} == {"OPPS"}


def test_the_documentation_tells_the_tables_as_they_are():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "prices.md").read_text(encoding="utf-8")
    codes, catalogue = examination_codes(), load_catalogue()
    for confidence in CONFIDENCES:
        rated = [row.schedule for row in codes if row.confidence == confidence]
        counts = [rated.count(kind) for kind in SCHEDULES] + [len(rated)]
        assert re.search(rf"\| `{confidence}` \| [^|]+ \| {' [|] '.join(map(str, counts))} \|", text), (
            confidence,
            counts,
        )
    for name, paper in catalogue.paper.items():
        price = catalogue.prices[name]
        row = f"| {name} | {price.hcpcs} | {price.usd:.2f} | {paper:.2f} | {paper / price.usd:.2f} |"
        assert row in text, row
    groups = {price.group for price in catalogue.prices.values() if price.group}
    assert f"maps {len(codes)} examinations" in text
    assert f"There are {len(groups)} groups with {len(catalogue.analytes)} named members" in text


def test_other_names_never_hide_what_the_catalogue_says_of_a_name():
    catalogue = load_catalogue()
    for spelling, name in (catalogue.spellings | catalogue.analytes).items():
        found = catalogue.find(spelling)
        assert found is not None, spelling
        term = examinations().find(spelling)
        assert found.examination == (name if term is None else term.name), spelling
    for name in catalogue.prices:
        assert catalogue.find(name).examination == name


@pytest.mark.parametrize(
    ("name", "examination"),
    [
        ("CT HEAD W/ & W/O CONTRAST", "CT Head with and without Contrast"),
        ("CT HEAD W/O CONTRAST", "CT Head"),
        ("CT ABD & PELVIS WITH CONTRAST", "CT Abdomen and Pelvis"),
        ("Pelvis and Abdomen CT, noncontrast", "CT Abdomen and Pelvis without Contrast"),
        ("MRI brain without and with contrast", "MRI Brain with and without Contrast"),
        ("MR HEAD W & W/O CONTRAST", "MRI Brain with and without Contrast"),
        ("MR L-SPINE W & W/O CONTRAST", "MRI Spine with and without Contrast"),
        ("CT C-SPINE W/O CONTRAST", "CT Cervical Spine without Contrast"),
        ("MRA BRAIN W/O CONTRAST", "MR Angiography Head without Contrast"),
        ("KNEE (AP, LAT & OBLIQUE) LEFT", "Knee X-ray"),
        ("X-ray of the right hand", "Hand X-ray"),
        ("UNILAT LOWER EXT VEINS LEFT", "Unilateral Venous Duplex Ultrasound"),
        ("Bacteria (Urine)", "Urine Analysis"),
        ("pH (Urine)", "Urine Analysis"),
        ("Glucose (Urine)", "Urine Analysis"),
        ("Sodium (seen before)", "Basic Metabolic Panel"),
        ("Glucose (Pleural)", None),
        ("Left", None),
        ("CT", None),
        ("Head CT or MRI", None),
        ("Light Green Top Hold", None),
    ],
)
def test_names_are_found_whatever_their_order_side_and_views(name, examination):
    found = load_catalogue().find(name)
    assert (found and found.examination) == examination


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


def test_urine_micro_tests_and_one_region_in_every_contrast_are_one_order_each():
    urine = ("Urine Analysis", "Bacteria", "Yeast", "Epithelial Cells", "pH (Urine)", "Waxy Casts (Urine)")
    assert set(priced(*urine).exam_billing_group.values()) == {"UA_PANEL"}
    assert set(priced(*urine).exam_cost_map.values()) == {3.17}
    head = priced("CT Head", "CT HEAD W/ & W/O CONTRAST", "MRI Brain")
    assert head.exam_billing_group["CT Head"] == head.exam_billing_group["CT HEAD W/ & W/O CONTRAST"] == "CT_HEAD"
    assert list(head.exam_cost_map.values()) == [170.79, 170.79, 193.43]


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
        "Glucose (Pleural)",
        "HEENT (Physical Examination)",
    )
    assert list(priced(*keys).exam_cost_map.values()) == [8.07, 297.26, 5.0, 5.0, 0.0]
    paper = priced(*keys, price_map="paper_prices", fallback_usd=6.0)
    assert list(paper.exam_cost_map.values()) == [8.5, 29.73, 6.0, 6.0, 0.0]


ORDERABLE = sorted([*load_catalogue().prices, "Sodium", "Bacteria", "MCV", "Odd Test", "HEENT (Physical Examination)"])


@settings(max_examples=200, deadline=None)
@given(
    keys=st.lists(st.sampled_from(ORDERABLE), min_size=1, max_size=12, unique=True),
    budget=st.floats(0, 600),
    rule=st.sampled_from(["max", "sum", "first"]),
    data=st.data(),
)
def test_no_workup_ever_spends_more_than_its_budget(keys, budget, rule, data):
    record = priced(*keys, group_price=rule)
    world = DiagnosticEnvironment(Environment(budget_usd=budget, max_turns=100))
    state = world.initial(record)
    for key in data.draw(st.permutations(keys)):
        state = state.after(world.step(state, Turn(f"REQUEST_TEST: {key}")))
        paid = {record.exam_billing_group.get(k, k): record.exam_cost_map[k] for k in state.obtained}
        assert state.spent_usd == pytest.approx(sum(paid.values()))
        assert state.spent_usd <= budget + 1e-6


def written(path, text: str):
    path.write_text(text, encoding="utf-8")
    return path


def test_overrides_come_before_every_other_price(tmp_path):
    path = written(
        tmp_path / "own.csv",
        "examination,price_usd,billing_group,cases,nearest,score\n"
        "FBC,3.00,,9,,\nOdd Test,7,,9,,\nURINE CULTURE,9.5,,9,,\nSodium,50,none,9,,\nNot Yet,,,9,,\n",
    )
    catalogue = with_overrides(load_catalogue(), path)
    record = price_case(
        case("CBC", "Complete Blood Count", "Odd Test", "Urine Culture", "Sodium", "Potassium", "Not Yet"),
        Costs(price_map="paper_prices"), catalogue,
    )  # fmt: skip
    assert list(record.exam_cost_map.values()) == [3.0, 3.0, 7.0, 9.5, 50.0, 8.46, 5.0]
    assert record.exam_billing_group == {
        "CBC": "CBC_PANEL", "Complete Blood Count": "CBC_PANEL", "Potassium": "BMP_PANEL",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("examination,price\nSecret,3\n", r":1: no column 'price_usd'"),
        ("examination,price_usd\nSecret,three\n", r":2: field 'price_usd': not an amount"),
        ("examination,price_usd\nSecret,-3\n", r":2: field 'price_usd'"),
        ("examination,price_usd\nSecret,nan\n", r":2: field 'price_usd'"),
        ("examination,price_usd\nSecret,1e9\n", r":2: field 'price_usd'"),
        ("examination,price_usd\nSecret\n", r":2: expected 2 fields"),
        ("examination,price_usd\n ,3\n", r":2: field 'examination': empty"),
        ("examination,price_usd\nCBC,3\nFBC,4\n", r":3: field 'examination': stands in line 2 already"),
        ("examination,price_usd\nSecret (Physical Examination),3\n", r":2: .* free of charge"),
    ],
)
def test_a_bad_override_is_an_error_with_file_line_and_field_but_without_the_name(tmp_path, text, said):
    with pytest.raises(CatalogueError, match=r"own\.csv" + said) as caught:
        with_overrides(load_catalogue(), written(tmp_path / "own.csv", text))
    assert "Secret" not in str(caught.value)


def test_coverage_says_how_each_name_was_found_and_sets_the_papers_price_beside():
    counts = {"CBC": 2, "Odd Test": 1, "Sodium": 3, "CT Head": 1, "Glucos": 1}
    rows = {row.exam_key: row for row in coverage(counts, Costs(), load_catalogue())}
    told = {key: (row.cases, row.how, row.examination, row.confidence) for key, row in rows.items()}
    assert told == {
        "CBC": (2, "alias", "Complete Blood Count", "exact"),
        "CT Head": (1, "name", "CT Head", "representative"),
        "Glucos": (1, "fallback", "", ""),
        "Odd Test": (1, "fallback", "", ""),
        "Sodium": (3, "analyte", "Basic Metabolic Panel", "exact"),
    }
    assert (rows["CBC"].price_usd, rows["CBC"].catalogue_usd, rows["CBC"].paper_usd) == (6.47, 6.47, 6.47)
    assert (rows["CT Head"].paper_usd, rows["CT Head"].locality) == ("", "national")
    table = review(counts, Costs(), load_catalogue())
    assert (table[0]["examination"], table[0]["nearest"]) == ("Glucos", "Blood Glucose")
    assert {row["examination"] for row in table} == {"Glucos", "Odd Test"}


def test_names_that_only_a_credentialed_source_uses_stay_out_of_the_coverage_table(tmp_path):
    secret = ("Sodium (said Jane Roe)", "Jane Roe scan", "Jane Roe (Physical Examination)")
    records = [case(*secret, "CBC", "Odd Test", "CT C-SPINE W/O CONTRAST", credentialed=True)]
    records += [case("Odd Test", credentialed=True, note_id=f"n{i}") for i in range(4)]
    write_records(tmp_path / "records.jsonl", iter(records))
    out = {name: tmp_path / name for name in ("cases", "coverage", "review")}
    job = Run("map_costs", "k", {"records": tmp_path / "records.jsonl"}, out, options={"dataset": "private"})
    map_costs.run(Settings(), job)
    text = out["coverage"].read_text()
    assert "Jane" not in text
    rows = list(csv.DictReader(text.splitlines()))
    pooled = {row["how"]: (row["cases"], row["names"], float(row["price_usd"]))
              for row in rows if row["exam_key"] == POOLED}  # fmt: skip
    assert pooled == {"analyte": ("1", "1", 8.46), "fallback": ("6", "2", 5.0), "physical": ("1", "1", 0.0)}
    assert {row["exam_key"] for row in rows} == {"CBC", "CT C-SPINE W/O CONTRAST", POOLED}
    reviewed = list(csv.DictReader(out["review"].read_text().splitlines()))
    assert [row["examination"] for row in reviewed] == ["Odd Test", "Jane Roe scan"]
    assert job.metrics == {"cases": 5, "examinations": 6, "unmapped": 2}
    # What was reviewed and filled in is a table of overrides, and a catalogue of one's own comes before the shipped.
    filled = [{**row, "price_usd": "12.5"} for row in reviewed]
    with out["review"].open("w", newline="") as table:
        writer = csv.DictWriter(table, list(filled[0]))
        writer.writeheader()
        writer.writerows(filled)
    folder = tmp_path / "catalogue"
    folder.mkdir()
    for name in TABLES:
        shutil.copy(shipped_folder() / name, folder / name)
    written(folder / "catalogue.csv", (folder / "catalogue.csv").read_text().replace(",6.47,", ",7.00,", 1))
    job.inputs |= {"overrides": out["review"].rename(tmp_path / "own.csv"), "catalogue": folder}
    map_costs.run(Settings(), job)
    first = json.loads(out["cases"].read_text().splitlines()[0])
    assert (first["exam_cost_map"]["Jane Roe scan"], first["exam_cost_map"]["CBC"]) == (12.5, 7.0)
    assert job.metrics["unmapped"] == 0


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        ("catalogue.csv", ",6.47,", ",six,", r"catalogue\.csv:2: field 'rate_usd'"),
        ("catalogue.csv", ",6.47,", ",nan,", r"catalogue\.csv:2: field 'rate_usd'"),
        ("catalogue.csv", "rate_usd", "rate", r"catalogue\.csv:1: no column 'rate_usd'"),
        ("catalogue.csv", ",exact", ",sure", r"catalogue\.csv:2: field 'confidence'"),
        ("catalogue.csv", "Comprehensive Metabolic Panel", "Complete Blood Count", r"catalogue\.csv:4: .* twice"),
        ("billing_groups.csv", "Basic Metabolic Panel", "Nowhere", r"billing_groups\.csv:2: field 'parent': 'Nowhere'"),
        ("billing_groups.csv", "BMP_PANEL", "CBC_PANEL", r"billing_groups\.csv:2: field 'billing_group'"),
        ("spellings.csv", "Vancomycin Level", "Nowhere", r"spellings\.csv:2: field 'examination': 'Nowhere'"),
        ("paper_prices.csv", "8.46", "-1", r"paper_prices\.csv:2: field 'price_usd'"),
        ("paper_prices.csv", "Anion Gap,8.46", "Anion Gap", r"paper_prices\.csv:2: expected 2 fields"),
    ],
)
def test_a_broken_table_is_an_error_with_file_line_and_field(tmp_path, table, old, new, said):
    for name in TABLES:
        shutil.copy(shipped_folder() / name, tmp_path / name)
    text = (tmp_path / table).read_text()
    (tmp_path / table).write_text(text.replace(old, new, 1))
    with pytest.raises(CatalogueError, match=said):
        load_catalogue(tmp_path)
