"""Data of the inspector as JavaScript files, since a page that is opened from a disk may load scripts beside it, but
not fetch JSON."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ...escape import script


def write_data(folder: Path, name: str, content: Any) -> None:
    """Write a value as JSON in the script ``<name>.js`` in a folder. When the page loads the script, it passes name and
    value to the page's function ``inspector.take``."""
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"inspector.take({json.dumps(name)},{script(content)});\n", encoding="utf-8")


def address(run: str, dataset: str) -> str:
    """Return the address, relative to the results folder, at which the inspector shows a run on a data set."""
    return f"inspector/index.html#{urlencode({'run': run, 'dataset': dataset})}"
