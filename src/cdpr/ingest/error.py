"""The error that stops an import."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")  # as repr writes them


class IngestError(ValueError):
    """Raw data that cannot be trusted. The message names file, line and field, and what to do.

    What stands in quotes, in any of its parts, is out of the file: names of JSON objects and headings too.
    """

    def __init__(
        self, path: str | Path, problem: str, remedy: str, *, line: int | None = None, field: str | None = None
    ):
        self.path, self.line, self.field, self.problem, self.remedy = Path(path), line, field, problem, remedy
        place = f"{path}:{line}" if line is not None else f"{path}"
        # A field out of the file brings its own quotes.
        field_text = f"field {field if _QUOTED.search(field) else repr(field)}: " if field is not None else ""
        super().__init__(f"{place}: {field_text}{problem}; {remedy}")

    @classmethod
    def not_permitted(cls, error: PermissionError) -> "IngestError":
        """The error about a file or folder that this user may not read."""
        return cls(str(error.filename), "may not be read by this user", "ask its owner, or see to its permissions")

    def without_text(self) -> "IngestError":
        """The same error without the values that it quotes, for cases that must not appear in a log."""
        problem, remedy, field = (
            _QUOTED.sub("'(withheld)'", text or "") for text in (self.problem, self.remedy, self.field)
        )
        return IngestError(self.path, problem, remedy, line=self.line, field=field or None)


@contextlib.contextmanager
def collected(problems: list[IngestError]) -> Iterator[None]:
    """Within it what cannot be read ends the block and is added to the problems."""
    try:
        yield
    except IngestError as problem:
        problems.append(problem)
