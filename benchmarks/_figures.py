"""Where the figures of a benchmark go."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from cdpr.files import write_text


def save(out: Path, figures: Mapping[str, object]) -> None:
    """Write figures, with the machine, the date and the commit, as flat keys to ``out``; numbers to four places."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    machine = f"{platform.machine()} {platform.system()}, Python {platform.python_version()}"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    origin = {"cpu_count": os.cpu_count(), "machine": machine, "date": date, "commit": commit}
    text = json.dumps(rounded | origin, indent=2) + "\n"
    write_text(out, text)
    print(text, end="")
