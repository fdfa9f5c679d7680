"""Data as scripts: a page that is opened from a file may load scripts beside it, but fetch nothing."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from ...escape import script

_BEFORE, _AFTER = "inspector.take(", ");\n"


def write_data(folder: Path, name: str, content: Any) -> None:
    """Write ``content`` to ``<name>.js`` below a folder, the same bytes every time."""
    path = folder / f"{name}.js"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{_BEFORE}{json.dumps(name)},{script(content)}{_AFTER}", encoding="utf-8")


def read_data(folder: Path, name: str) -> Any:
    """Read a script of :func:`write_data`."""
    text = (folder / f"{name}.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix(f"{_BEFORE}{json.dumps(name)},").removesuffix(_AFTER))


def address(run: str, dataset: str, **place: str | int) -> str:
    """Return the address, below the results folder, at which the inspector shows a run, or with ``case``, ``decoding``
    and ``turn`` one of its decisions."""
    return f"inspector/index.html#{urlencode({'run': run, 'dataset': dataset, **place})}"
