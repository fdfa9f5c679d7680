"""Where the figures of a benchmark go."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from cdpr.files import write_text


def save(out: Path, figures: Mapping[str, object]) -> None:
    """Write figures, with what they were measured on, as flat keys to ``out``, and say them; numbers to four places."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    machine = f"{platform.machine()} {platform.system()}, Python {platform.python_version()}"
    text = json.dumps(rounded | {"cpu_count": os.cpu_count(), "machine": machine}, indent=2) + "\n"
    write_text(out, text)
    print(text, end="")
