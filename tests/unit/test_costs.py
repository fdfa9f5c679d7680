"""Prices: catalogue, spellings, billing groups, overrides, fallback, coverage, the strict budget, errors."""

import asyncio
import csv
import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdpr import synthetic_cases
from cdpr.agents.reference import ZeroTest
from cdpr.cases import CaseRecord, examinations, imaging_words, normalise, write_records
from cdpr.cases.vocabulary import quantities
from cdpr.costs import Price, charge, load_catalogue, price_case, price_of, review, with_overrides
from cdpr.costs.build_catalogue import SCHEDULES, examination_codes
from cdpr.costs.fee_schedules import split_codes
from cdpr.costs.price import CONFIDENCES, POOLED, SHIPPED, TABLES, coverage, group_prices, map_costs, nearest
from cdpr.environment import DiagnosticEnvironment, Turn
from cdpr.environment.table_judging import TableMatcher
from cdpr.files import TableError
from cdpr.ingest.names import exam_key
from cdpr.job import Job
from cdpr.pipeline.experiment import Experiment
from cdpr.settings import Settings, SettingsError, parse_settings
from cdpr.settings.schema import Costs, Environment
from cdpr.study.decisions import request_price
from cdpr.study.simulated import Assessor


def case(*exam_keys: str, credentialed: bool = False, note_id: str = "n") -> CaseRecord:
    return CaseRecord(
        note_id=note_id, case_summary="- Chief Complaint: cough", final_diagnosis="d", diagnosis_results="d",
        key_pertinent_results_dict=dict.fromkeys(exam_keys, "result"),
        dataset="private", split="test", subject_key="s", credentialed=credentialed,
    )  # fmt: skip


def catalogue_rate(kind: str) -> float:
    return load_catalogue().class_rates[kind].usd


def priced(*exam_keys: str, **settings) -> CaseRecord:
    return price_case(case(*exam_keys), Costs(**settings), load_catalogue())


def test_every_examination_of_the_vocabulary_has_a_price_of_its_own():
    prices = load_catalogue().prices
    named = {term.name for term in examinations().terms.values() if term.kind != "physical"}
    assert named == set(prices) - set(quantities().values())
    assert named.isdisjoint(quantities().values()) and all(
        set(term.holds) <= named for term in examinations().terms.values()
    )
    assert all(price.usd > 0 and price.hcpcs and price.source and price.year for price in prices.values())


def test_the_shipped_tables_are_consistent():
    catalogue, coded = load_catalogue(), examination_codes()
    assert {price.confidence for price in catalogue.prices.values()} <= set(CONFIDENCES)
    assert catalogue.paper.keys() <= catalogue.prices.keys()
    assert len({one.examination for one in coded}) == len(coded)
    for one in coded:
        assert one.schedule in SCHEDULES and one.confidence in CONFIDENCES and split_codes(one.hcpcs)


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


def test_the_documentation_has_the_counts_and_rates_of_the_catalogue():
    docs = Path(__file__).parents[2] / "docs"
    text = " ".join((docs / "reference" / "prices.md").read_text(encoding="utf-8").split())
    classes, maps = (list(csv.DictReader((docs / "benchmarks" / f"{name}.csv").read_text("utf-8").splitlines()))
                     for name in ("price_classes", "price_maps"))  # fmt: skip
    codes, catalogue = examination_codes(), load_catalogue()
    for confidence in CONFIDENCES:
        rated = [row.schedule for row in codes if row.confidence == confidence]
        counts = [rated.count(kind) for kind in SCHEDULES] + [len(rated)]
        assert re.search(rf"\| `{confidence}` \| [^|]+ \| {' [|] '.join(map(str, counts))} \|", text), (
            confidence,
            counts,
        )
    rates = {name: (f"{rate.usd:.2f}", re.search(r"\((\d+) rates\)", rate.source)[1])
             for name, rate in catalogue.class_rates.items()}  # fmt: skip
    assert {row["class"]: (row["usd"], row["rates"]) for row in classes} == rates
    low, high = (pick(rate.usd for rate in catalogue.class_rates.values()) for pick in (min, max))
    assert f"[{len(rates)} classes]" in text and f"from {low:.2f} (" in text and f"to {high:.2f} USD" in text
    prices = {name: catalogue.prices[name] for name in catalogue.paper}
    assert {row["examination"]: list(row.values())[1:] for row in maps} == {
        name: [price.hcpcs, f"{price.usd:.2f}", f"{paper:.2f}", f"{paper / price.usd:.2f}"]
        for (name, price), paper in zip(prices.items(), catalogue.paper.values(), strict=True)
    }
    groups = {price.group for price in catalogue.prices.values() if price.group}
    assert f"maps {len(codes)} examinations" in text
    grouped = [part for part, term in examinations().parts.items() if catalogue.prices[term.name].group]
    assert f"There are {len(groups)} groups; {len(grouped)} quantities are billed within one" in text


def test_other_names_never_hide_what_the_catalogue_says_of_a_name():
    catalogue = load_catalogue()
    for name in catalogue.prices.keys() - set(quantities().values()):
        for spelling in (name, *examinations().terms[name].aliases):
            assert catalogue.find(spelling).examination == name, spelling
        for part in examinations().terms[name].parts:
            found = catalogue.find(part)
            assert (found.examination, found.how) == (name, "analyte"), part
            own = catalogue.prices.get(quantities()[normalise(part)], catalogue.prices[name])
            assert (found.hcpcs, found.usd, found.group) == (own.hcpcs, own.usd, catalogue.prices[name].group), part


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
        ("Glucose (Pleural)", "Body Fluid Glucose"),
        ("Left", None),
        ("CT", None),
        ("Head CT or MRI", None),
        ("Light Green Top Hold", None),
    ],
)
def test_names_are_found_whatever_their_order_side_and_views(name, examination):
    found = load_catalogue().find(name)
    assert (found and found.examination) == examination


def test_no_other_name_says_another_region_or_contrast_than_what_it_is_priced_by():
    catalogue = load_catalogue()
    # What a name says of views and sides is not among its words, and has a price of its own.
    no_region = {"bending", "level", "limited", "obstetric", "to"}
    # One organ of the abdomen, ribs "without Chest", an abdominal Doppler of the kidneys, and one breast, whose code
    # includes the contrast.
    right = {"Rib X-ray 2 Views", "Renal Duplex Limited", "MRI Breast Unilateral with and without Contrast"}
    right.update(examinations().terms["Limited Abdominal Ultrasound"].aliases)
    varied = re.compile("View|VIEW|AP|PA|Portable|PORT|SUPINE|lateral|Both|Standing|Limited|Follow")
    rows = {words: price for name, price in catalogue.prices.items()
            if (words := imaging_words(name)) and not varied.search(name)}  # fmt: skip
    aliases = [alias for term in examinations().terms.values() if term.kind != "physical" for alias in term.aliases]
    compared, regions = set(), set()
    for name in aliases:
        words = imaging_words(name)
        if words is None or name in right:
            continue
        found = catalogue.find(name)
        twin = rows.get(words) or rows.get(imaging_words(f"{found.examination} {words[1]} Contrast"))
        if varied.search(name):
            if priced_words := imaging_words(found.examination):
                regions.add(name)
                assert priced_words[0] - no_region <= words[0] and priced_words[1] == words[1], f"{name}: {found}"
        elif twin is not None:
            compared.add(name)
            assert (found.usd, found.group) == (twin.usd, twin.group), f"{name}: {found} is not {twin}"
    assert len(regions) > 50
    assert {"CT ABD & PELVIS W/O CONTRAST", "CT CHEST W/O CONTRAST", "CTA Head", "MRI Head"} <= compared


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ("CT ABD & PELVIS W/O CONTRAST|Non-contrast CT abdomen and pelvis|CT KUB|Abdomen/pelvis CT without IV contrast",
         "74176"),
        ("CT ABD & PELVIS WITH CONTRAST|CT A/P|CT of the abdomen and pelvis|CT urinary tract", "74177"),
        ("CT ABD & PELVIS W & W/O CONTRAST", "74178"),
        ("Abdominal Ultrasound to investigate your pain and elevated liver enzymes", "76700"),  # with its reason
        ("CT ABDOMEN W/O CONTRAST|CT Abdomen without Contrast|CT ABDOMEN W/O CONTRAST (PORTABLE)", "74150"),
        ("CT ABDOMEN W/CONTRAST|CT of the abdomen with contrast|CT Abdomen|Abdominal CT", "74160"),
        ("CT ABDOMEN W&W/O C|CT Abdomen with and without Contrast", "74170"),
        ("CT CHEST W/O CONTRAST|Noncontrast CT of the chest|CT thorax without contrast", "71250"),
        ("CT CHEST W/CONTRAST|Chest CT", "71260"),
        ("CTA Head|CT Angiography Head|CTA brain|CT ANGIOGRAPHY OF THE HEAD|CTA HEAD W&W/O C & RECONS", "70496"),
        ("CTA Neck", "70498"),
        ("CTA HEAD AND CTA NECK|CTA Head/Neck", "70496+70498"),
        ("CTA CHEST|CTA CHEST W&W/O C&RECONS, NON-CORONARY", "71275"),
        ("MR HEAD W/O CONTRAST|MRI brain", "70551"),
        ("MR HEAD W/CONTRAST|MRI Brain with Contrast", "70552"),
        ("CT HEAD W/O CONTRAST|CT HEAD", "70450"),
        ("CT HEAD W/ CONTRAST", "70460"),
        ("PELVIS U.S., TRANSVAGINAL|Transvaginal ultrasound", "76830"),
        ("PELVIS, NON-OBSTETRIC|Pelvic US", "76856"),
    ],
)  # fmt: skip
def test_studies_of_a_region_with_and_without_contrast_have_their_own_codes(names, code):
    assert {name: load_catalogue().find(name).hcpcs for name in names.split("|")} == dict.fromkeys(
        names.split("|"), code
    )


def test_the_contrasts_of_one_region_are_one_order_and_stay_apart_in_records():
    for region in ("CT CHEST", "CT ABDOMEN", "CT ABD & PELVIS", "MR HEAD"):
        names = [f"{region} {contrast}" for contrast in ("W/O CONTRAST", "W/CONTRAST", "W & W/O CONTRAST")]
        assert len({exam_key(name) for name in names}) == 3
        record = priced(*names)
        assert len(set(record.exam_billing_group.values())) == 1 and len(record.exam_billing_group) == 3
        prices = [load_catalogue().find(name).usd for name in names]
        assert prices == sorted(set(prices)) and set(record.exam_cost_map.values()) == {prices[-1]}


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


@pytest.mark.parametrize(
    ("names", "code", "usd"),
    [
        ("TSH|Thyrotropin [Units/volume] in Serum or Plasma|TSH level", "84443", 16.80),
        ("INR|Prothrombin time", "85610", 4.29),
        ("S. Creatinine|Creatinine (blood)|Creat SerPl-mCnc", "82565", 5.12),
        ("Haemoglobin|Hgb", "85018", 2.37),
        ("MCV", "85027", 6.47),  # no code of its own: the panel's
    ],
)
def test_a_quantity_alone_has_its_own_code_and_is_answered_from_its_panel(names, code, usd):
    for name in names.split("|"):
        price = price_of(name, Costs())
        assert (price.hcpcs, price.usd, price.how) == (code, usd, "analyte"), name
        panel = priced(price.examination)
        assert TableMatcher(92.0).match(name, (price.examination,))[0] == (price.examination,)
        assert panel.exam_cost_map[price.examination] == load_catalogue().prices[price.examination].usd


def test_quantities_of_one_panel_cost_their_sum_but_no_more_than_the_panel():
    for names, usd in (("TSH", 16.80), ("TSH|Total T4", 23.67), ("TSH|Free T4|Total T3", 25.82),
                       ("Free T4|T4 free", 9.02), ("Sodium|Potassium", 8.46), ("MCV|Hemoglobin", 6.47)):  # fmt: skip
        for order in itertools.permutations(names.split("|")):
            assert set(priced(*order).exam_cost_map.values()) == {usd}


def test_a_blood_count_with_and_one_without_differential_answer_each_other():
    plain, full = "Complete Blood Count", "CBC with differential"
    assert (price_of(plain, Costs()).usd, price_of(full, Costs()).usd) == (6.47, 7.77)
    match = TableMatcher(92.0).match
    assert (match(plain, (full,))[0], match(full, (plain,))[0]) == ((full,), (plain,))
    assert match("Platelets", (full,))[0] == (full,)


def test_paper_prices_take_precedence_and_the_fallback_catches_the_rest():
    keys = (
        "URINE CULTURE",
        "CT of abdomen and pelvis",
        "Light Green Top Hold",
        "Odd Test",
        "HEENT (Physical Examination)",
    )
    assert list(priced(*keys).exam_cost_map.values()) == [8.07, 297.26, 5.0, 5.0, 0.0]
    paper = priced(*keys, price_map="paper_prices", fallback_usd=6.0)
    assert list(paper.exam_cost_map.values()) == [8.5, 29.73, 6.0, 6.0, 0.0]


RATES = load_catalogue().class_rates
ORDERABLE = sorted([*load_catalogue().prices, "Sodium", "Bacteria", "MCV", "Odd Test", "HEENT (Physical Examination)"])


@settings(max_examples=200)
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


def test_a_sum_of_examinations_is_as_sure_as_its_least_sure_price():
    catalogue = load_catalogue()
    parts = [catalogue.find(name) for name in ("Lipase", "CT Head")]
    both = catalogue.find("CT Head and Lipase")
    assert [part.confidence for part in parts] == ["exact", "representative"]
    assert (both.confidence, both.usd) == ("representative", pytest.approx(sum(part.usd for part in parts)))


def test_a_name_is_no_formula_in_a_spreadsheet_and_comes_back_as_it_was(tmp_path):
    names = ["=HYPERLINK(1)", "+1 test", "-x", "@SUM(1)", "'=1", "Odd Test"]
    write_records(tmp_path / "records.jsonl", [case(*names)])
    out = {name: tmp_path / f"{name}.csv" for name in ("coverage", "review")} | {"cases": tmp_path / "cases.jsonl"}
    map_costs(
        parse_settings({}), Job("m", "k", {"records": tmp_path / "records.jsonl"}, out, options={"dataset": "private"})
    )
    for name in ("coverage", "review"):
        assert not [row for row in csv.reader(out[name].open()) for cell in row if cell[:1] in ("=", "+", "-", "@")]
    rows = list(csv.DictReader(out["review"].open()))
    with (tmp_path / "mine.csv").open("w") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row | {"price_usd": "7"} for row in rows)
    catalogue = with_overrides(load_catalogue(), tmp_path / "mine.csv")
    assert {price_of(name, Costs(), catalogue).usd for name in names} == {7.0}


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
    assert list(record.exam_cost_map.values()) == [3.0, 3.0, 7.0, 9.5, 50.0, 4.76, 5.0]
    assert record.exam_billing_group == {
        "CBC": "CBC_PANEL", "Complete Blood Count": "CBC_PANEL", "Potassium": "BMP_PANEL",
    }  # fmt: skip


@pytest.mark.parametrize("rule", ["max", "sum", "first"])
@pytest.mark.parametrize(
    ("own", "names", "others"),
    [
        ("CT Chest,500,", "CT Chest|Chest CT|Left CT Chest|CT Chest (portable)|CT CHEST W/CONTRAST (repeat)|CHEST CT",
         {"Left CT Head": 105.13, "CT Chest Abdomen Pelvis Q1": 461.58}),
        ("Knee X-ray,60,", "Knee X-ray|KNEE (AP, LAT & OBLIQUE) LEFT|Right Knee X-ray|X-ray of the left knee", {}),
        ("CT Neck,90,", "CT Neck|NECK CT|CT of the neck|CT Neck (bedside)", {"CT NECK W/CONTRAST": 181.14}),
        ("Odd Test,7,", "Odd Test|ODD TEST|Left Odd Test|Odd Test (seen before)|Odd Test (portable)",
         {"Odd Test (Urine)": RATES["urine test"].usd, "Odd Test (Pleural)": RATES["body fluid analysis"].usd,
          "Odd Tests": 5.0}),
        ("Left Odd Test,7,", "Left Odd Test|Left Odd Test (portable)", {"Odd Test": 5.0, "Right Odd Test": 5.0}),
        ("Basic Metabolic Panel,20,", "Basic Metabolic Panel|BMP|Sodium|Sodium (seen before)|Potassium",
         {"Glucose (Pleural)": 3.93}),
        ("Sodium,4.9,none", "Sodium|Sodium (seen before)", {"Potassium": 4.76}),
        ("Urine Analysis,9,", "Urine Analysis|UA|Bacteria (Urine)|Glucose (Urine)", {"Blood Glucose": 3.93}),
        ("Blood Glucose,2,none", "Glucose|Blood Glucose|Glucose (bedside)",
         {"Glucose (Urine)": 3.17, "Glucose (Pleural)": 3.93}),
    ],
)  # fmt: skip
def test_an_override_holds_for_every_variant_of_a_name_in_any_order(tmp_path, own, names, others, rule):
    path = written(tmp_path / "own.csv", f"examination,price_usd,billing_group\n{own}\n")
    catalogue, usd = with_overrides(load_catalogue(), path), float(own.split(",")[1])
    expected = dict.fromkeys(names.split("|"), usd) | others
    assert {name: price_of(name, Costs(), catalogue).usd for name in expected} == expected
    for order in (names.split("|"), names.split("|")[::-1]):
        assert set(price_case(case(*order), Costs(group_price=rule), catalogue).exam_cost_map.values()) == {usd}


def test_a_panel_out_of_its_group_leaves_its_analytes_one_order(tmp_path):
    path = written(tmp_path / "own.csv", "examination,price_usd,billing_group\nBMP,20,none\n")
    record = price_case(case("Sodium", "Potassium", "BMP"), Costs(), with_overrides(load_catalogue(), path))
    assert set(record.exam_cost_map.values()) == {20.0}
    assert record.exam_billing_group == dict.fromkeys(("Sodium", "Potassium"), "BMP_PANEL")


@given(st.permutations([("A", 3.0), ("A", 9.0), ("B", 4.0), ("B", 1.0), ("C", 2.0)]))
def test_a_group_of_several_prices_for_one_examination_costs_the_same_in_any_order(rows):
    prices = {str(i): Price(name, "", usd, "", "", "G", "override") for i, (name, usd) in enumerate(rows)}
    assert set(group_prices(prices, "max")[0].values()) == {9.0}
    assert set(group_prices(prices, "sum")[0].values()) == {15.0}
    assert set(group_prices(prices, "first")[0].values()) == {{"A": 9.0, "B": 4.0, "C": 2.0}[rows[0][0]]}


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
    with pytest.raises(TableError, match=r"own\.csv" + said) as caught:
        with_overrides(load_catalogue(), written(tmp_path / "own.csv", text))
    assert "Secret" not in str(caught.value)


def test_coverage_says_how_each_name_was_found_and_sets_the_papers_price_beside():
    counts = {"CBC": 2, "Qwfp": 1, "Sodium": 3, "CT Head": 1, "Glucos": 1}
    rows = {row["exam_key"]: row for row in coverage(counts, Costs(), load_catalogue())}
    columns = ("cases", "how", "examination", "confidence")
    figures = {key: tuple(row[column] for column in columns) for key, row in rows.items()}
    assert figures == {
        "CBC": (2, "alias", "Complete Blood Count", "exact"),
        "CT Head": (1, "name", "CT Head", "representative"),
        "Glucos": (1, "fallback", "", ""),
        "Qwfp": (1, "fallback", "", ""),
        "Sodium": (3, "analyte", "Basic Metabolic Panel", "exact"),
    }
    assert {rows["CBC"][name] for name in ("price_usd", "catalogue_usd", "paper_usd")} == {6.47}
    assert (rows["CT Head"]["paper_usd"], rows["CT Head"]["locality"]) == ("", "national")
    table = review(counts, Costs(), load_catalogue())
    assert (table[0]["examination"], table[0]["nearest"]) == ("Glucos", "Blood Glucose")
    assert [(row["examination"], row["nearest"], row["score"]) for row in table[1:]] == [("Qwfp", "", "")]


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Full Blod Count", "Complete Blood Count"), ("Chest Flm", "Chest X-ray"), ("Urine dipstik", "Urine Analysis"),
        ("Haemoglobn", "Haemoglobin"), ("Liver biopsy CT", "Liver Biopsy"), ("Ca 19", "CA 19-9"),
        ("Zonk Panel", None), ("Bedside Echo", None), ("Light Green Top Hold", None), ("MRI brest", "MRI Breast"),
        ("血常规", "Complete Blood Count"), ("胸部CT平扫", None), ("CT 胸部", None),
        ("!", None), ("X", None), ("Serum", None), ("Venous blood", None),
    ],
)  # fmt: skip
def test_only_a_name_that_resembles_a_known_one_has_a_nearest_name(name, known):
    found = nearest(name, load_catalogue())
    assert (found and found[0]) == known and (found is None or 75 <= found[1] <= 100)


@pytest.mark.parametrize("inside", ["cases/private.review.csv", "costs/mine.csv", "../results/cases/../mine.csv"])
def test_prices_under_the_results_are_refused_before_a_job_can_remove_them(tmp_path, monkeypatch, inside):
    monkeypatch.chdir(tmp_path)
    for results in ("results", str(tmp_path / "results")):
        config = {"paths": {"results": results}, "data": {"price_overrides": f"results/{inside}"}}
        with pytest.raises(SettingsError, match=r"data\.price_overrides: .* copy it to another folder first"):
            Experiment(parse_settings(config))
    kept = {"paths": {"results": "results"}, "data": {"price_overrides": "results_of_last_year/own.csv"}}
    assert Experiment(parse_settings(kept)).settings.data.price_overrides == "results_of_last_year/own.csv"
    with pytest.raises(SettingsError, match=r"fee_schedules\.pfs, which is not given"):
        Experiment(parse_settings({"data": {"fee_schedules": {"locality": "02102-01"}}}))


def test_names_that_only_a_credentialed_source_uses_stay_out_of_the_coverage_table(tmp_path):
    secret = ("Sodium (said Jane Roe)", "Jane Roe scan", "Jane Roe (Physical Examination)")
    records = [case(*secret, "CBC", "Odd Test", "CT C-SPINE W/O CONTRAST", credentialed=True)]
    records += [case("Odd Test", credentialed=True, note_id=f"n{i}") for i in range(4)]
    write_records(tmp_path / "records.jsonl", iter(records))
    out = {name: tmp_path / name for name in ("cases", "coverage", "review")}
    job = Job("map_costs", "k", {"records": tmp_path / "records.jsonl"}, out, options={"dataset": "private"})
    map_costs(Settings(), job)
    text = out["coverage"].read_text()
    assert "Jane" not in text
    rows = list(csv.DictReader(text.splitlines()))
    pooled = {row["how"]: (row["cases"], row["names"], float(row["price_usd"]))
              for row in rows if row["exam_key"] == POOLED}  # fmt: skip
    imaging = catalogue_rate("imaging")
    assert pooled == {"analyte": ("1", "1", 4.81), "fallback": ("5", "1", 5.0), "class": ("1", "1", imaging),
                      "physical": ("1", "1", 0.0)}  # fmt: skip
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
        shutil.copy(SHIPPED / name, folder / name)
    written(folder / "catalogue.csv", (folder / "catalogue.csv").read_text().replace(",6.47,", ",7.00,", 1))
    job.inputs |= {"overrides": out["review"].rename(tmp_path / "own.csv"), "catalogue": folder}
    map_costs(Settings(), job)
    first = json.loads(out["cases"].read_text().splitlines()[0])
    assert (first["exam_cost_map"]["Jane Roe scan"], first["exam_cost_map"]["CBC"]) == (12.5, 7.0)
    assert job.metrics["unmapped"] == 0


@pytest.mark.parametrize(
    ("table", "old", "new", "said"),
    [
        ("catalogue.csv", ",6.47,", ",six,", r"catalogue\.csv:2: field 'rate_usd'"),
        ("catalogue.csv", ",6.47,", ",nan,", r"catalogue\.csv:2: field 'rate_usd'"),
        ("catalogue.csv", "rate_usd", "rate", r"catalogue\.csv:1: no column 'rate_usd'"),
        ("paper_prices.csv", "8.46", "-1", r"paper_prices\.csv:2: field 'price_usd'"),
        ("paper_prices.csv", "Anion Gap,8.46", "Anion Gap", r"paper_prices\.csv:2: expected 2 fields"),
    ],
)
def test_a_broken_table_is_an_error_with_file_line_and_field(tmp_path, table, old, new, said):
    for name in TABLES:
        shutil.copy(SHIPPED / name, tmp_path / name)
    text = (tmp_path / table).read_text()
    (tmp_path / table).write_text(text.replace(old, new, 1))
    with pytest.raises(TableError, match=said):
        load_catalogue(tmp_path)


def test_cultures_and_stains_have_one_price_whatever_the_specimen_and_chemistry_has_not():
    catalogue = load_catalogue()
    assert catalogue.find("GRAM STAIN (CSF)").hcpcs == catalogue.find("Gram Stain (Sputum)").hcpcs == "87205"
    assert catalogue.find("FLUID CULTURE (Pleural fluid)").hcpcs == catalogue.find("FLUID CULTURE").hcpcs
    assert catalogue.find("Lactate (CSF)").group == catalogue.find("CSF Glucose").group == "LUMBAR_PUNCTURE"
    assert catalogue.find("Zinc (Pleural)") is None


def test_the_place_of_service_decides_between_the_schedules_of_procedures():
    outpatient, office = (load_catalogue(place_of_service=place) for place in ("outpatient", "office"))
    for name, rates in {"Skin Biopsy": (373.07, 119.36), "Thyroid Fine Needle Aspiration": (648.97, 129.06)}.items():
        assert (outpatient.prices[name].usd, office.prices[name].usd) == rates
    assert outpatient.prices["CT Head"].usd == office.prices["CT Head"].usd


def test_whoever_prices_an_examination_does_so_for_the_place_of_service():
    office = parse_settings({"costs": {"place_of_service": "office"}})
    endoscopy, puncture = 276.24, 141.68
    assert price_of("Upper GI Endoscopy", office.costs).usd == endoscopy != price_of("Upper GI Endoscopy", Costs()).usd
    assert price_case(case("Upper GI Endoscopy"), office.costs).exam_cost_map == {"Upper GI Endoscopy": endoscopy}
    assert ZeroTest.build(office, None, 0, "mimic_iv").price("Upper GI Endoscopy").usd == endoscopy
    assert {endoscopy, puncture} <= {*Assessor("mimic_iv", office.costs).usd}
    with pytest.raises(ValueError, match="private_cases"):
        synthetic_cases(0)
    synthetic = [key for one in synthetic_cases(60, office) for key in one.exam_cost_map.items()]
    assert ("CSF Study", puncture) in synthetic and ("Upper GI Endoscopy", endoscopy) in synthetic
    environment = DiagnosticEnvironment(office.environment)
    priced = request_price(office, environment, environment.initial(case("Sodium")), "Skin Biopsy")
    assert asyncio.run(priced) == 119.36
