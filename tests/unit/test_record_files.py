"""Which run records belong to a results folder."""

from cdpr.records import record_files


def test_results_in_other_results_keep_their_records_to_themselves(tmp_path):
    for folder in ("", "ci"):
        (tmp_path / folder / "tables").mkdir(parents=True)
        (tmp_path / folder / ".lock").touch()
        (tmp_path / folder / "tables/main.run.json").touch()
    assert record_files(tmp_path) == [tmp_path / "tables/main.run.json"]
    assert record_files(tmp_path / "ci") == [tmp_path / "ci/tables/main.run.json"]
