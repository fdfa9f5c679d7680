"""Walking JSON: objects that know where they stand, so that whatever is not as expected is an IngestError about it."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from .error import IngestError
from .flat_files import files_at, filled_lines, parse_json
from .summary import one_line


class Element:
    """A JSON object, and where it stands in its file. What is absent, or null, is empty.

    Raises IngestError for a value that is no object, and so do its methods for parts of another type than they read.
    """

    remedy = "use the data set as published"

    def __init__(self, value: Any, path: Path, line: int | None = None, place: str = ""):
        self.value, self.path, self.line, self.place = value, path, line, place
        if not isinstance(value, Mapping):
            problem = f"expected an object, found {type(value).__name__}"
            raise IngestError(path, problem, self.remedy, line=line, field=place or None)

    def __bool__(self) -> bool:
        return bool(self.value)

    def wrong(self, name: str, problem: str, remedy: str = "") -> IngestError:
        """An error about one of its parts."""
        return IngestError(self.path, problem, remedy or self.remedy, line=self.line, field=self._place(name))

    def text(self, name: str) -> str:
        """A string, stripped."""
        return self._typed(name, str, "text", "").strip()

    def number(self, name: str) -> str:
        """A number as it is written, without a power of ten."""
        value = self._typed(name, (int, float), "a number", "")
        return f"{value:.10f}".rstrip("0").rstrip(".") if "e" in str(value) else str(value)

    def one(self, name: str, required: bool = False) -> Self:
        """An object."""
        if required and self.value.get(name) is None:
            raise self.wrong(name, "expected an object of this name")
        return self._part(name, self._typed(name, Mapping, "an object", {}))

    def many(self, name: str) -> list[Self]:
        """A list of objects."""
        values = self._typed(name, list, "a list", [])
        return [self._part(f"{name}[{index}]", value) for index, value in enumerate(values)]

    def _part(self, name: str, value: Any) -> Self:
        return type(self)(value, self.path, self.line, self._place(name))

    def _place(self, name: str) -> str:
        return f"{self.place}.{name}".strip(".")

    def _typed(self, name: str, kind: Any, called: str, absent: Any) -> Any:
        value = self.value.get(name)
        if value is None:
            return absent
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.wrong(name, f"expected {called}, found {type(value).__name__}")
        return value


def flat_text(content: Any, label: Callable[[str], str], keep: Callable[[str], bool] = bool) -> str:
    """Any JSON value on one line: ``Label: value; ...`` for objects, ``a, b`` for lists. A name whose label is empty
    does not stand there, and neither does a text that is not to ``keep``."""
    if isinstance(content, Mapping):
        parts = ((label(name), flat_text(inner, label, keep)) for name, inner in content.items())
        return "; ".join(f"{name}: {text}" if name else text for name, text in parts if text)
    if isinstance(content, list):
        return ", ".join(filter(None, (flat_text(inner, label, keep) for inner in content)))
    text = "" if content is None else one_line(str(content))
    return text if keep(text) else ""


def json_lines(path: Path) -> Iterator[Element]:
    """The objects of a file, one a line, or of the one ``*.jsonl`` file of a folder. Raises IngestError."""
    files = files_at(path, ".jsonl")
    if len(files) != 1:
        raise IngestError(path, f"{len(files)} files *.jsonl in this folder", "give the path of one of them")
    return (Element(parse_json(files[0], text, line), files[0], line) for line, text in filled_lines(files[0]))


def number_of(dataset: str, content: Any) -> str:
    """The number of a case that has none of its own: a digest of its content."""
    return f"{dataset}-" + hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]
