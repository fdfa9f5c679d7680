"""An example of a private export with two invented cases (``template.yaml``), to be filled in."""

import json
from importlib import resources
from pathlib import Path

import yaml

from ..files import write_csv
from .error import IngestError
from .private import CASE_COLUMNS, RESULT_COLUMNS


def write_template(folder: str | Path) -> list[Path]:
    """Write ``cases.csv``, ``results.csv`` and, as the other layout, ``jsonl/cases.jsonl``; returns their paths.

    Raises IngestError rather than overwrite a file.
    """
    folder = Path(folder)
    cases, results, objects = folder / "cases.csv", folder / "results.csv", folder / "jsonl" / "cases.jsonl"
    for path in (cases, results, folder / "cases.jsonl", objects):
        if path.exists():
            raise IngestError(path, "stands there already", "give a new folder")
    examples = yaml.safe_load(resources.files(__package__).joinpath("template.yaml").read_text(encoding="utf-8"))
    objects.parent.mkdir(parents=True, exist_ok=True)
    write_csv(cases, CASE_COLUMNS, [{name: case.get(name, "") for name in CASE_COLUMNS} for case in examples])
    rows = [
        {"case_id": case["case_id"], "sequence": number} | result
        for case in examples
        for number, result in enumerate(case["results"], 1)
    ]
    write_csv(results, RESULT_COLUMNS, rows)
    objects.write_text("".join(json.dumps(case, ensure_ascii=False) + "\n" for case in examples), encoding="utf-8")
    return [cases, results, objects]
