"""The one reader of CSV tables: what it reads, and where it says that a table is broken."""

import gzip

import pytest

from cdpr.files import TableError, read_table


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv:1: no column 'name'; expected name, price, with commas between"),
        ("name,cost\nCBC,3\n", r"t\.csv:1: no column 'price'"),
        ("name,price,name\nCBC,3,CBC\n", r"t\.csv:1: a column appears twice"),
        ("name,price\n\nCBC,3,4\n", r"t\.csv:3: expected 2 fields, as in the header, but the row has 3"),
        ("name,price\nCBC\n", r"t\.csv:2: expected 2 fields"),
        ('name,price\n"C\nBC",3\n"CM', r"t\.csv:4: not CSV .*is the file whole"),
    ],
)
def test_a_broken_table_is_an_error_with_file_and_line_and_no_cell(tmp_path, text, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(TableError, match=message) as caught:
        read_table(path, ("name", "price"))
    assert "BC" not in str(caught.value)


def test_a_file_that_is_missing_cut_short_or_not_utf8_is_an_error(tmp_path):
    whole = gzip.compress(b"name,price\nCBC,3\n" * 100)
    for name, content in (("a.csv", None), ("b.csv.gz", whole[:-20]), ("c.csv", b"name,price\n\xff,3\n")):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(TableError, match=f"{name}: cannot be read"):
            read_table(tmp_path / name)


def test_rows_have_the_line_on_which_they_begin(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('\ufeffname,price,remark\n"a\nb",3,\n\nCBC,4,"x, ""y"""\n', encoding="utf-8")
    rows = read_table(path, ("price", "name"))
    assert rows == [
        (f"{path}:2", {"name": "a\nb", "price": "3", "remark": ""}),
        (f"{path}:5", {"name": "CBC", "price": "4", "remark": 'x, "y"'}),
    ]
