"""Reading FHIR R4: resources of bundles and NDJSON files, typed access to their elements, references between them.

https://hl7.org/fhir/R4/ (bundle.html, references.html, datatypes.html). Every element that is not of the type that R4
gives it is an IngestError with file, line or place, and element.
"""

import base64
import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Self

from .attrition import Attrition
from .error import IngestError
from .flat_files import files_at, filled_lines, parse_json, quoted, read_text
from .summary import one_line

_ENDINGS = (".json", ".ndjson", ".jsonl")
_KIND = re.compile(r"[A-Z][A-Za-z]{2,60}")
_LOCAL = re.compile(r"(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64})$")
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:T.+)?)?)?")
_EXPORT_AGAIN = "export it again as FHIR R4"
_BREAKS = {"br", "p", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6"}
_PLAIN, _MARKED = ("text/plain", "text/markdown", "text"), ("text/html", "application/xhtml+xml", "text/xhtml")


class Element:
    """A JSON object within a resource, and where it stands. What is absent is empty."""

    def __init__(self, value: Mapping[str, Any], path: Path, line: int | None, place: str):
        self.value, self.path, self.line, self.place = value, path, line, place

    def __bool__(self) -> bool:
        return bool(self.value)

    def wrong(self, name: str, problem: str, remedy: str = _EXPORT_AGAIN) -> IngestError:
        """An error about one of its elements."""
        return IngestError(self.path, problem, remedy, line=self.line, field=f"{self.place}.{name}".strip("."))

    def text(self, name: str) -> str:
        """A string, stripped."""
        return self._typed(name, str, "text", "").strip()

    def number(self, name: str) -> str:
        """A number as it is written, without a power of ten."""
        value = self.value.get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
            raise self.wrong(name, f"expected a number, found {type(value).__name__}")
        return "" if value is None else f"{value:.10f}".rstrip("0").rstrip(".") if "e" in str(value) else str(value)

    def moment(self, name: str) -> datetime | None:
        """A date or time; what it leaves out is the earliest, and a time without a zone is UTC."""
        text = self.text(name)
        if not text:
            return None
        try:
            if not _DATE.fullmatch(text):
                raise ValueError(text)
            moment = datetime.fromisoformat(text + "-01-01"[len(text) - 4 :] if len(text) < 10 else text)
        except ValueError:
            raise self.wrong(name, f"{quoted(text)} is no date or time") from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def one(self, name: str) -> Self:
        """An object."""
        return type(self)(self._typed(name, Mapping, "an object", {}), self.path, self.line, f"{self.place}.{name}")

    def many(self, name: str) -> list[Self]:
        """A list of objects."""
        values = self._typed(name, list, "a list", [])
        for index, value in enumerate(values):
            if not isinstance(value, Mapping):
                raise self.wrong(f"{name}[{index}]", f"expected an object, found {type(value).__name__}")
        return [type(self)(value, self.path, self.line, f"{self.place}.{name}[{i}]") for i, value in enumerate(values)]

    def concept(self, name: str) -> str:
        """What a CodeableConcept says in words: its text, else how a code is displayed."""
        return concept_text(self.one(name))

    def codes(self, name: str) -> set[str]:
        """Codes of a CodeableConcept, or of a list of them."""
        concepts = self.many(name) if isinstance(self.value.get(name), list) else [self.one(name)]
        return {coding.text("code") for concept in concepts for coding in concept.many("coding")} - {""}

    def _typed(self, name: str, kind: Any, called: str, absent: Any) -> Any:
        value = self.value.get(name)
        if value is None:
            return absent
        if not isinstance(value, kind):
            raise self.wrong(name, f"expected {called}, found {type(value).__name__}")
        return value


def concept_text(concept: Element) -> str:
    """A CodeableConcept in words; nothing for one that has codes alone."""
    displays = [coding.text("display") for coding in concept.many("coding")]
    return one_line(next(filter(None, [concept.text("text"), *displays]), ""))


@dataclass
class Scope:
    """Resources that may refer to one another: those of a bundle, or of all NDJSON files. ``mark`` sets the numbers of
    its resources apart from those of other bundles."""

    mark: str = ""
    resources: list["Resource"] = field(default_factory=list)
    places: dict[str, "Resource"] = field(default_factory=dict)


@dataclass(eq=False)
class Resource:
    """One resource; ``shared`` are those of the NDJSON files, to which every bundle may refer."""

    kind: str
    content: Element
    scope: Scope
    shared: Scope

    @property
    def number(self) -> str:
        """Its identity, set apart from equal ones of other bundles."""
        return self.scope.mark + (self.content.text("id") or self.content.place)

    def find(self, reference: Element) -> "Resource | None":
        """The resource that one of its elements refers to; None where the export does not hold it."""
        text = reference.text("reference").partition("/_history/")[0]
        if text.startswith("#"):
            inner = [one for one in self.content.many("contained") if one.text("id") == text[1:]]
            return Resource(inner[0].text("resourceType"), inner[0], self.scope, self.shared) if inner else None
        local = _LOCAL.search(text)
        for name in (text, *(local.groups() if local else ())):
            for scope in (self.scope, self.shared):
                if name and name in scope.places:
                    return scope.places[name]
        return None

    def attached(self, attachment: Element) -> str | None:
        """Text of an attachment, of a Binary that it names too; None for what is no text or lies elsewhere."""
        if not attachment.text("data") and attachment.text("url"):
            place = Element({"reference": attachment.text("url")}, attachment.path, attachment.line, attachment.place)
            binary = self.find(place)
            if binary is None:
                return None
            attachment = binary.content
        kind = attachment.text("contentType").partition(";")[0].strip().casefold()
        if kind not in (*_PLAIN, *_MARKED) or not attachment.text("data"):
            return None
        try:
            text = base64.b64decode("".join(attachment.text("data").split()), validate=True).decode("utf-8-sig")
        except ValueError:  # no base64, or no UTF-8
            raise attachment.wrong("data", "no base64 of UTF-8 text") from None
        return unmarked(text) if kind in _MARKED else text


def read_resources(path: Path, kinds: frozenset[str], attrition: Attrition) -> list[Scope]:
    """All resources of the kinds, in the order of the files; others are counted. Raises IngestError."""
    files = sorted(f for ending in _ENDINGS for f in files_at(path, ending)) if path.is_dir() else [path]
    if not files:
        raise IngestError(path, f"no file {', '.join('*' + e for e in _ENDINGS)} in this folder", "name the export")
    shared = Scope()
    scopes = [shared]
    for file in files:
        by_line = not file.name.removesuffix(".gz").endswith(".json")
        values = filled_lines(file) if by_line else [(1, read_text(file))]
        for line, text in values:
            value = parse_json(file, text, line)
            if not isinstance(value, dict):
                raise IngestError(file, "expected a resource", _EXPORT_AGAIN, line=line if by_line else None)
            element = Element(value, file, line if by_line else None, "")
            if element.text("resourceType") == "Bundle":
                # No file name: it may be the patient's.
                scopes.append(Scope(hashlib.sha256(f"{file.name}:{line}".encode()).hexdigest()[:8] + "-"))
                _read_bundle(element, scopes[-1], shared, kinds, attrition)
            else:
                _add(element, "", shared, shared, kinds, attrition)
    return scopes


def _read_bundle(bundle: Element, scope: Scope, shared: Scope, kinds: frozenset[str], attrition: Attrition) -> None:
    for entry in bundle.many("entry"):
        resource = entry.one("resource")
        if resource.text("resourceType") == "Bundle":
            _read_bundle(resource, scope, shared, kinds, attrition)
        elif resource:
            _add(resource, entry.text("fullUrl"), scope, shared, kinds, attrition)
        else:
            attrition.count("entries without a resource")


def _add(content: Element, address: str, scope: Scope, shared: Scope, kinds: frozenset[str], attrition: Attrition):
    """Take a resource up under its address and its own number; of two versions the later counts."""
    kind, number = content.text("resourceType"), content.text("id")
    if not _KIND.fullmatch(kind):
        raise content.wrong("resourceType", "is missing" if not kind else f"{quoted(kind)} is no kind of resource")
    if kind not in kinds:
        attrition.count(f"resources that are not read: {kind}")
        return
    resource = Resource(kind, content, scope, shared)
    names = [name for name in (address, f"{kind}/{number}" if number else "") if name]
    if known := next((scope.places[name] for name in names if name in scope.places), None):
        attrition.count("resources that stand twice")
        stamps = [one.one("meta").moment("lastUpdated") for one in (known.content, content)]
        if known.content.value == content.value or (None not in stamps and stamps[1] < stamps[0]):
            return
        if None in stamps or stamps[0] == stamps[1]:
            raise content.wrong("id", f"{quoted(names[-1])} stands twice with different contents",
                                "keep one of them, or give both the time of meta.lastUpdated")  # fmt: skip
        scope.resources.remove(known)
    scope.resources.append(resource)
    scope.places.update(dict.fromkeys(names, resource))


class _Text(HTMLParser):
    def __init__(self):
        super().__init__()
        self.parts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag in _BREAKS:
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.parts.append("\n" if tag in _BREAKS else " " if tag in ("td", "th") else "")

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def unmarked(text: str) -> str:
    """The text of HTML, a block a line."""
    parser = _Text()
    with contextlib.suppress(AssertionError):  # of markup that the parser gives up on; what it read so far stays
        parser.feed(text)
        parser.close()
    return "\n".join(filter(None, map(one_line, "".join(parser.parts).splitlines())))


def of_kind(resources: list[Resource], *kinds: str) -> Iterator[Resource]:
    """Those of some kinds, in their order."""
    return (resource for resource in resources if resource.kind in kinds)
