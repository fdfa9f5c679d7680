"""Data as scripts: a page that is opened from a file may load scripts beside it, but fetch nothing."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ...escape import script


def write_data(folder: Path, name: str, content: Any) -> None:
    """Write a value as JSON in a script ``<name>.js`` below a folder, which hands it to the page."""
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"inspector.take({json.dumps(name)},{script(content)});\n", encoding="utf-8")


def address(run: str, dataset: str) -> str:
    """Return the address of a run on a data set in the inspector, below the results folder."""
    return f"inspector/index.html#{urlencode({'run': run, 'dataset': dataset})}"
