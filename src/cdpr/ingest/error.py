"""The error that stops an import."""

import re
from pathlib import Path

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")  # as repr writes them


class IngestError(ValueError):
    """Raw data that cannot be trusted. The message names file, line and field, and what to do."""

    def __init__(
        self, path: str | Path, problem: str, remedy: str, *, line: int | None = None, field: str | None = None
    ):
        self.path, self.line, self.field, self.problem, self.remedy = Path(path), line, field, problem, remedy
        place = f"{path}:{line}" if line is not None else f"{path}"
        named = f"field {field!r}: " if field is not None else ""
        super().__init__(f"{place}: {named}{problem}; {remedy}")

    def without_text(self) -> "IngestError":
        """The same error without the values that it quotes, for cases that must not appear in a log."""
        problem = _QUOTED.sub("'(withheld)'", self.problem)
        return IngestError(self.path, problem, self.remedy, line=self.line, field=self.field)
