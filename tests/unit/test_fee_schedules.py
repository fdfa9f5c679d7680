"""Readers of the fee schedules: the published files to the cent, other years' layouts, and files that are damaged."""

import csv
import io
import json
import re
import zipfile
from decimal import Decimal
from pathlib import Path

import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdpr.costs import build_catalogue as build
from cdpr.costs import load_catalogue
from cdpr.costs.build_catalogue import examination_codes
from cdpr.costs.fee_schedules import read_clfs, read_gpci, read_opps, read_pfs, split_codes
from cdpr.costs.price import SHIPPED, TABLES
from cdpr.files import TableError, read_table
from cdpr.job import Job
from cdpr.settings import parse_settings

CMS = Path(__file__).parents[3] / "shared" / "data" / "cms"
CLFS, PFS = CMS / "clfs" / "CLFS_2025_Q2V1.csv", CMS / "pfs" / "PPRRVU2025_Oct.csv"
GPCI = CMS / "pfs" / "GPCI2025.csv"
CAP = CMS / "pfs" / "OPPSCAP_Oct.csv"  # published imaging caps: what the computed prices are held against
real = pytest.mark.skipif(not CMS.exists(), reason="the CMS files are not beside the repository (../shared/data/cms)")


def opps_file() -> Path:
    return next((CMS / "opps").glob("*.xlsx"))


# The published files


@real
def test_a_code_that_is_only_paid_beside_another_has_that_one():
    """Add-on codes (ZZZ in the column of global days) are never alone, unless the name itself says that another
    examination is done: of a further vessel, a further marker."""
    says_so = re.compile(r"another|[Aa]dditional|added|add-on|during|after|Guidance")
    rows = csv.reader(PFS.read_bytes().decode("cp1252").splitlines())
    added = {row[0] for row in rows if len(row) > 14 and row[14] == "ZZZ"}
    coded = {row.examination: {code for code, _ in split_codes(row.hcpcs)} for row in examination_codes()}
    assert len(added) > 500
    assert not [name for name, codes in coded.items() if codes <= added and not says_so.search(name)]


@real
def test_laboratory_rates_of_2025():
    schedule = read_clfs(CLFS)
    golden = {"80053": 10.56, "85027": 6.47, "85025": 7.77, "80048": 8.46, "80069": 8.68, "83605": 11.57,
              "87086": 8.07, "84484": 12.47, "83690": 6.89, "85379": 10.18, "81001": 3.17, "80076": 8.17,
              "81025": 8.61, "85610": 4.29, "85730": 6.01}  # fmt: skip
    assert {code: schedule.rate(code) for code in golden} == golden
    assert schedule.rate("85610+85730") == 10.30
    assert (schedule.source, schedule.rows, len(schedule.rates)) == ("CLFS 2025 Q2", 2105, 2039)
    assert schedule.left_out == {"locally priced": 66} and not schedule.rejected
    assert schedule.rate("0020M") is None, "locally priced is missing, not free"


@real
def test_physician_prices_of_2025():
    schedule = read_pfs(PFS)
    golden = {"74177": 297.26, "74177-26": 83.45, "71046": 32.67, "93000": 13.91, "70450": 105.13, "76700": 111.92,
              "93306": 187.93, "71275": 261.36}  # the last one at the imaging cap  # fmt: skip
    assert {code: schedule.rate(code) for code in golden} == golden
    assert schedule.source == "PFS 2025 RVU25D" and not schedule.rejected
    assert schedule.notes == {"rows at the imaging cap": 58}
    assert read_pfs(PFS, conversion_factor=100).rate("71046") == 101.0
    assert not {code for code, _ in schedule.rates} & {"80053", "85027"}, "laboratory tests are never priced here"
    assert schedule.left_out["status X"] == 2548 and schedule.left_out["status C"] == 1347


@real
def test_prices_at_every_locality_agree_with_the_published_imaging_caps_to_the_cent():
    for locality in ("02102-01", "01112-05", "13202-01", "03602-21"):
        schedule = read_pfs(PFS, locality=locality, gpci=GPCI)
        caps = {
            (row["HCPCS"].strip(), row["MOD"].strip()): float(row["NON-FACILTY PRICE"])
            for _, row in read_table(CAP)
            if f"{row['CARRIER']}-{row['LOCALITY']}" == locality and row["PROCSTAT"] != "C"
        }
        assert len(caps) > 50
        assert {key: schedule.rates[key] for key in caps} == caps
    assert read_gpci(GPCI, "02102-01") == (Decimal("1.5"), Decimal("1.081"), Decimal("0.592")), "Alaska"


@real
def test_outpatient_rates_of_2023():
    schedule = read_opps(opps_file())
    assert (schedule.source, schedule.rate("74177"), schedule.rate("43235")) == ("OPPS 2023", 368.43, 825.51)
    assert schedule.rate("80053") is None and not schedule.rejected
    assert schedule.left_out["no rate, status N"] == 2017 and schedule.left_out["no rate, status Q4"] == 1226


@real
def test_the_shipped_catalogue_is_what_the_published_files_give(tmp_path):
    schedules = {"CLFS": read_clfs(CLFS), "PFS": read_pfs(PFS), "OPPS": read_opps(opps_file())}
    assert build.write_catalogue(tmp_path, schedules) == []
    for name in TABLES:
        assert (tmp_path / name).read_bytes() == (SHIPPED / name).read_bytes(), name
    laboratory = {code for code, _ in schedules["CLFS"].rates}
    for row in build.examination_codes():
        codes = {part[:5] for part in row.hcpcs.split("+")}
        assert row.schedule == "CLFS" or not codes & laboratory, f"{row.examination} is a laboratory test"


@real
def test_a_catalogue_of_another_locality_keeps_what_is_not_given(tmp_path):
    chosen = parse_settings({"data": {"fee_schedules": {"locality": "02102-01"}}}, "test")
    folder = tmp_path / "catalogue"
    inputs = {"pfs": PFS, "gpci": GPCI, "results": tmp_path}  # a job knows the results folder too
    job = Job("build_catalogue", "k", inputs, {"catalogue": folder})
    build.build_catalogue(chosen, job)
    prices, shipped = load_catalogue(folder).prices, load_catalogue().prices
    assert (prices["CT Abdomen and Pelvis"].usd, prices["CT Abdomen and Pelvis"].locality) == (344.11, "02102-01")
    assert prices["Complete Blood Count"] == shipped["Complete Blood Count"]
    told = json.loads((folder / "schedules.json").read_text())
    assert told["shipped_rates_kept"]["Complete Blood Count"] == "CLFS 2025 Q2"
    assert told["schedules"]["PFS"]["locality"] == "02102-01" and told["schedules"]["PFS"]["rejected"] == 0
    assert set(told["files"]) == {"pfs", "gpci"} and str(CMS) not in json.dumps(told)


# Layouts written here, as the years have them

CLFS_HEADER = ["YEAR", "HCPCS", "MOD", "EFF_DATE", "INDICATOR", "RATE", "SHORTDESC"]
CLFS_ROWS = [
    ["2027", "90001", "", "20270101", "N", "00010.56", "x"],
    ["2027", "90001", "QW", "20270401", "N", "11", "x"],
    ["2027", "90002", "", "20270101", "L", "00000.00", "x"],
    ["2027", "90003", "", "20270101", "N", "21.9", "x"],
]
PFS_NAMES = [
    "HCPCS", "MOD", "DESCRIPTION", "STATUS CODE", "WORK RVU", "NON-FAC PE RVU", "FACILITY PE RVU", "MP RVU",
    "NON-FACILITY TOTAL", "FACILITY TOTAL", "PRIC IND", "CONV FACTOR", "NON-FACILITY PE USED FOR OPPS PAYMENT AMOUNT",
    "FACILITY PE USED FOR OPPS PAYMENT AMOUNT", "MP USED FOR OPPS PAYMENT AMOUNT",
]  # fmt: skip
PFS_ORDER = range(len(PFS_NAMES))
PFS_ROWS = [
    ["90003", "", "x", "A", "1.00", "3.00", "2", "0.10", "4.10", "3.1", "1", "10", "2.00", "2", "0.05"],  # capped
    ["90003", "26", "x", "A", "1.00", "0.20", "0.2", "0.05", "1.25", "1.25", "1", "10", "0", "0", "0"],
    ["90004", "", "x", "X", "0.00", "0.00", "0", "0.00", "0.00", "0", "1", "10", "0", "0", "0"],
    ["90005", "", "x", "C", "0.00", "0.00", "0", "0.00", "0.00", "0", "1", "10", "0", "0", "0"],
    ["90006", "", "x", "R", "1.00", "0.00", "0", "0.00", "1.00", "1", "1", "10", "0", "0", "0"],
]


def as_csv(rows: list[list[str]], encoding: str = "utf-8") -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode(encoding)


def clfs_bytes(order=range(7), rows=CLFS_ROWS) -> bytes:
    table = [[row[i] for i in order] for row in [CLFS_HEADER, *rows]]
    return b"2027 Schedule,,\r\nnotice \xa0,,\r\n,,\r\n" + as_csv(table)


def pfs_bytes(order=PFS_ORDER, rows=PFS_ROWS) -> bytes:
    """Titles in one cell, then names stacked in two rows, the lower of which repeats itself."""
    upper = [PFS_NAMES[i].rpartition(" ")[0] for i in order]
    lower = [PFS_NAMES[i].rpartition(" ")[2] for i in order]
    titles = [["", "", "2026 National Physician Fee Schedule Relative Value File January Release"], ["", "", "notice"]]
    return as_csv([*titles, upper, lower, *([row[i] for i in order] for row in rows)])


def save(folder: Path, name: str, content: bytes) -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(st.permutations(range(7)), st.permutations(PFS_ORDER))
def test_columns_are_found_by_name_in_any_order(tmp_path, clfs_order, pfs_order):
    clfs = read_clfs(save(tmp_path, "clfs.csv", clfs_bytes(clfs_order)))
    assert clfs.rates == {("90001", ""): 10.56, ("90001", "QW"): 11.0, ("90003", ""): 21.9}
    assert (clfs.source, clfs.left_out) == ("CLFS 2027 Q2", {"locally priced": 1})
    pfs = read_pfs(save(tmp_path, "pfs.csv", pfs_bytes(pfs_order)))
    assert pfs.rates == {("90003", ""): 30.5, ("90003", "26"): 12.5, ("90006", ""): 10.0}
    assert (pfs.source, pfs.left_out) == ("PFS 2026 RVU26A", {"status X": 1, "status C": 1})


def test_a_header_that_comes_again_is_no_row_and_a_bad_row_is_listed_with_its_line(tmp_path):
    rows = [*CLFS_ROWS[:2], CLFS_HEADER, *CLFS_ROWS[2:], ["2027", "90009", "", "20270101", "N", "n/a", "x"],
            ["2027", "9", "", "20270101", "N", "1", "x"], ["2027", "90001", "", "20270101", "N", "9.99", "x"],
            ["", "", "", "", "", "", "footnote"]]  # fmt: skip
    schedule = read_clfs(save(tmp_path, "clfs.csv", clfs_bytes(rows=rows)))
    assert schedule.rate("90001") == 10.56 and schedule.rows == 7
    assert schedule.rejected == [
        "line 10: field 'RATE': 'n/a' is not an amount",
        "line 11: field 'HCPCS': '9' is not a code of five characters",
        "line 12: 90001 occurs twice, with two rates",
    ]
    odd = [*PFS_ROWS, [*PFS_ROWS[0][:8], "9.99", *PFS_ROWS[0][9:]]]
    assert read_pfs(save(tmp_path, "pfs.csv", pfs_bytes(rows=odd))).rejected == [
        "line 10: work, non-facility PE and MP do not add up to the non-facility total"
    ]


@pytest.mark.parametrize(
    ("reader", "content", "said"),
    [
        (read_clfs, pfs_bytes(), "no header row with YEAR and HCPCS"),
        (read_clfs, clfs_bytes().replace(b"RATE", b"PAID"), r":4: no column 'RATE'; found YEAR"),
        (read_clfs, clfs_bytes().replace(b"SHORTDESC", b"RATE"), r":4: column 'RATE' stands 2 times"),
        (read_clfs, clfs_bytes(rows=[]), "no row has a rate; is the file whole"),
        (
            read_clfs,
            clfs_bytes(rows=[[*row[:5], "x", ""] for row in CLFS_ROWS]),
            "4 of 4 rows cannot be read; .*line 5",
        ),
        (read_clfs, clfs_bytes().replace(b"2027,90003", b"2026,90003"), "more than one year .2026, 2027."),
        (read_clfs, clfs_bytes() + b'2027,"90', r":9: not CSV"),
        (read_clfs, b"PK\x03\x04", "no CSV file; unpack it"),
        (read_pfs, clfs_bytes(), "no column 'STATUS CODE'"),
        (read_pfs, pfs_bytes().replace(b"FACTOR", b"FAKTOR"), "no column 'CONV FACTOR'"),
        (read_pfs, pfs_bytes().replace(b",10,2.00", b",11,2.00"), r"conversion factor .10, 11.; set data\.fee_sch"),
        (read_pfs, pfs_bytes().replace(b",10,", b",,"), "set data.fee_schedules.conversion_factor"),
        (read_pfs, b"", "no header row with HCPCS"),
    ],
)
def test_a_file_that_is_not_as_expected_is_an_error(tmp_path, reader, content, said):
    with pytest.raises(TableError, match=said):
        reader(save(tmp_path, "file.csv", content))
    with pytest.raises(TableError, match=r"gone\.csv: cannot be read: No such file"):
        reader(tmp_path / "gone.csv")


def test_a_locality_needs_its_indices_and_unknown_ones_are_told(tmp_path):
    gpci = save(tmp_path, "gpci.csv", as_csv([
        ["CY 2026 GPCIs"], [], ["Medicare Administrative Contractor (MAC)", "State", "Locality Number", "Locality Name",
        "2026 PW GPCI (without 1.0 Floor)", "2026 PW GPCI (with 1.0 Floor)", "2026 PE GPCI", "2026 MP GPCI"],
        ["2102", "AK**", "1", "NORTH, COLD**", "0.9", "1.5", "2", "3"], ["**a footnote"],
    ]))  # fmt: skip
    pfs = save(tmp_path, "pfs.csv", pfs_bytes())
    at = read_pfs(pfs, locality="02102-01", gpci=gpci)
    assert at.rate("90003") == 56.5, "capped: (1 x 1.5 + 2 x 2 + 0.05 x 3) x 10"
    assert at.rate("90003-26") == 20.5 and at.locality == "02102-01"
    for wrong, said in (("02102-09", "no locality '02102-09'; near it: 02102-01"), ("Alaska", "neither 'national'")):
        with pytest.raises(TableError, match=said):
            read_pfs(pfs, locality=wrong, gpci=gpci)
    with pytest.raises(TableError, match=r"needs data\.fee_schedules\.gpci"):
        read_pfs(pfs, locality="02102-01")


def workbook(rows: list[dict[str, str | float]]) -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    for number, row in enumerate(rows, 1):
        for letter, content in row.items():
            book.active[f"{letter}{number}"] = content
    book.save(out)
    return out.getvalue()


def without(content: bytes, part: str, instead: bytes | None = None) -> bytes:
    """A workbook without one of its parts, or with another content of it."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as book, zipfile.ZipFile(out, "w") as damaged:
        for name in book.namelist():
            if name != part or instead is not None:
                damaged.writestr(name, instead if name == part else book.read(name))
    return out.getvalue()


OPPS_ROWS = [
    {"A": "Addendum B: HCPCS Code payments for CY 2031"},
    {"B": "HCPCS Code", "A": "Payment Rate ", "C": " SI", "D": "Copay"},
    {"B": 90007, "A": 825.507, "C": "S ", "D": "."},
    {"B": "90008", "C": "N"},
    {"B": "HCPCS Code", "A": "Payment Rate ", "C": " SI", "D": "Copay"},
    {"B": "90010", "A": 1.2e-7 + 1200, "C": "T"},
    {"B": "90009", "A": "free", "C": "S"},
]


def test_a_workbook_is_read_by_its_header_and_a_damaged_one_is_an_error(tmp_path):
    whole = workbook(OPPS_ROWS)
    schedule = read_opps(save(tmp_path, "b.xlsx", whole))
    assert schedule.rates == {("90007", ""): 825.51, ("90010", ""): 1200.0} and schedule.source == "OPPS 2031"
    assert schedule.left_out == {"no rate, status N": 1}
    assert schedule.rejected == ["line 7: field 'PAYMENT RATE': 'free' is not an amount"]
    for content, said in (
        (whole[: len(whole) // 2], "not a whole xlsx workbook"),
        (b"HCPCS Code,SI", "not a whole xlsx workbook"),
        (without(whole, "xl/workbook.xml"), "damaged sheet or no xlsx workbook"),
        (without(whole, "xl/worksheets/sheet1.xml"), "damaged sheet or no xlsx workbook"),
        (without(whole, "xl/worksheets/sheet1.xml", b"<worksheet><c"), "damaged sheet or no xlsx workbook"),
        (workbook(OPPS_ROWS[:1]), "no header row with HCPCS Code; is this Addendum B"),
        (workbook([{"A": "HCPCS Code", "B": "SI"}]), "no column 'PAYMENT RATE'"),
    ):
        with pytest.raises(TableError, match=said):
            read_opps(save(tmp_path, "b.xlsx", content))


def clfs_rows(count: int = 60) -> list[list[str]]:
    return [["2027", f"9{k:04}", "", "20270101", "N", f"{10 + k}.50", "x"] for k in range(count)]


def exchanged(rows: list[list[str]], a: int, b: int) -> list[list[str]]:
    """The rows with two columns under one another's names."""
    return [[row[{a: b, b: a}.get(i, i)] for i in range(len(row))] for row in rows]


def test_one_bad_year_or_factor_is_a_rejected_row_with_its_line(tmp_path):
    rows = clfs_rows()
    rows[7][0] = "1899"
    schedule = read_clfs(save(tmp_path, "clfs.csv", clfs_bytes(rows=rows)))
    assert schedule.year == "2027" and len(schedule.rates) == 59
    assert schedule.rejected == ["line 12: field 'YEAR': '1899' where the other rows have '2027'"]
    units = [[f"9{k:04}", *PFS_ROWS[1][1:]] for k in range(30)]
    units[3][11] = "oops"
    read = read_pfs(save(tmp_path, "pfs.csv", pfs_bytes(rows=units)))
    assert len(read.rates) == 29
    assert read.rejected == ["line 8: field 'CONV FACTOR': 'oops' where the other rows have '10'"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (exchanged(clfs_rows(), 5, 3), "60 of 60 rows cannot be read.*20,270,101 US dollars are no rate; is it a date"),
        (exchanged(clfs_rows(), 5, 0), "field 'YEAR'|more than one year"),
        ([[*row[:2], "QW", *row[3:]] for row in clfs_rows()], "every row has a modifier; do the columns stand"),
        (exchanged(clfs_rows(), 2, 4), "every row has a modifier|is not a modifier"),
        ([[*row[:5], "2027", "x"] for row in clfs_rows()], "60 of 60 rates are 2027.00 US dollars"),
        ([[*row[:5], f"{9000 + k}", "x"] for k, row in enumerate(clfs_rows(), 1)], "half of the rates are"),
    ],
)
def test_columns_under_the_wrong_names_are_noticed(tmp_path, rows, said):
    with pytest.raises(TableError, match=said):
        read_clfs(save(tmp_path, "clfs.csv", clfs_bytes(rows=rows)))


def gpci_rows(work="1.1", expense="0.9", malpractice="0.5") -> bytes:
    names = ["Medicare Administrative Contractor (MAC)", "State", "Locality Number", "Locality Name",
             "2026 PW GPCI (with 1.0 Floor)", "2026 PE GPCI", "2026 MP GPCI"]  # fmt: skip
    return as_csv([["CY 2026 GPCIs"], [], names,
                   *(["02102", "AK", f"{k:02}", "COLD", work, expense, malpractice] for k in range(1, 9))])  # fmt: skip


@pytest.mark.parametrize(
    "order", [{"work": "0.5", "malpractice": "1.1"}, {"expense": "0.3"}, {"malpractice": "20270101"}, {"work": "x"}]
)
def test_indices_in_the_wrong_columns_are_noticed(tmp_path, order):
    assert read_gpci(save(tmp_path, "gpci.csv", gpci_rows()), "02102-01")[0] == Decimal("1.1")
    with pytest.raises(TableError, match=r"gpci\.csv:4: '.*' under '2026 .. GPCI.*' is no index from"):
        read_gpci(save(tmp_path, "gpci.csv", gpci_rows(**order)), "02102-01")


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (gpci_rows().replace(b"2026 P", b"2025 P").replace(b"2026 M", b"2025 M"), "GPCI2026.csv", "2025"),
        (gpci_rows().replace(b"2026 PE", b"2025 PE"), "GPCI2026.csv", "2025 and 2026"),
        (gpci_rows().replace(b"2026 P", b"P").replace(b"2026 M", b"M").replace(b"2026", b"2024"), "g.csv", "2024"),
        (gpci_rows().replace(b"CY 2026 ", b"").replace(b"2026 ", b""), "GPCI2027.csv", "2027"),
        (gpci_rows().replace(b"CY 2026 ", b"").replace(b"2026 ", b""), "g.csv", "no stated year"),
    ],
)
def test_indices_of_another_year_are_refused(tmp_path, content, name, said):
    """A price of one year's units and another year's indices is a price of no year."""
    pfs, gpci = save(tmp_path, "pfs.csv", pfs_bytes()), save(tmp_path, name, content)
    with pytest.raises(TableError, match=rf"{name}:3: indices of {said} beside relative values of 2026; set data\."):
        read_pfs(pfs, locality="02102-01", gpci=gpci)
    right = content.replace(b"2024", b"2026").replace(b"2025", b"2026")
    assert read_pfs(pfs, locality="02102-01", gpci=save(tmp_path, "GPCI2026.csv", right)).year == "2026"


def test_a_file_that_would_set_nothing_is_an_error(tmp_path):
    pfs, gpci = save(tmp_path, "pfs.csv", pfs_bytes()), save(tmp_path, "gpci.csv", gpci_rows())
    with pytest.raises(TableError, match=r"gpci\.csv: sets nothing for national prices; set data\.fee_schedules"):
        read_pfs(pfs, gpci=gpci)
    # Whole and well, but of codes that price no examination.
    chosen, clfs = parse_settings({}, "test"), save(tmp_path, "clfs.csv", clfs_bytes(rows=clfs_rows()))
    job = Job("build_catalogue", "k", {"clfs": clfs}, {"catalogue": tmp_path / "catalogue"})
    with pytest.raises(TableError, match=r"clfs\.csv: sets the rate of none of the \d+ examinations"):
        build.build_catalogue(chosen, job)
    with pytest.raises(TableError, match=r"gpci\.csv: sets nothing without data\.fee_schedules\.pfs"):
        build.build_catalogue(chosen, Job("build_catalogue", "k", {"gpci": gpci, "clfs": clfs}, job.out))


def test_a_catalogue_tells_how_many_rates_each_file_set(tmp_path, capsys):
    rows = [["2027", code, "", "20270101", "N", "11.00", "x"] for code in ("85027", "80053")]
    clfs = save(tmp_path, "clfs.csv", clfs_bytes(rows=rows))
    folder = tmp_path / "catalogue"
    build.build_catalogue(
        parse_settings({}, "test"), Job("build_catalogue", "k", {"clfs": clfs}, {"catalogue": folder})
    )
    mine = sum(row.schedule == "CLFS" for row in build.examination_codes())
    found = sum(row.hcpcs in ("85027", "80053") for row in build.examination_codes())
    assert f"sets {found} of {mine} examinations, {mine - found} keep the shipped rate" in capsys.readouterr().out
    assert json.loads((folder / "schedules.json").read_text())["schedules"]["CLFS"]["examinations"] == found


def test_rows_above_a_header_are_not_lost(tmp_path):
    content = clfs_bytes(rows=clfs_rows())
    lines = content.split(b"\r\n")
    moved = b"\r\n".join([lines[4], *lines[:4], *lines[5:]])
    with pytest.raises(TableError, match="1 rows of codes stand above the header"):
        read_clfs(save(tmp_path, "clfs.csv", moved))


@pytest.mark.parametrize(("kept", "cents"), [(5.3549999999999995, 5.36), (677.075, 677.08), (128.0449999999, 128.04)])
def test_drug_rates_are_rounded_as_a_spreadsheet_shows_them(tmp_path, kept, cents):
    rows = [{"A": "HCPCS Code", "B": "SI", "C": "Payment Rate"}, {"A": "J0001", "B": "K", "C": kept}]
    assert read_opps(save(tmp_path, "b.xlsx", workbook(rows))).rate("J0001") == cents


def test_every_mapped_examination_needs_a_rate_from_somewhere(tmp_path):
    with pytest.raises(TableError, match="the CLFS has no rate for 85027"):
        build.write_catalogue(tmp_path, {})
