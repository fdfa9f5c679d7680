"""Reading FHIR R4: resources of bundles and NDJSON files, typed access to their elements, references between them.

https://hl7.org/fhir/R4/ (bundle.html, references.html, datatypes.html). Every element that is not of the type that R4
gives it is an IngestError with file, line or place, and element.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..files import file_type
from .attrition import Attrition
from .flat_files import Element, IngestError, files_at, filled_lines, parse_json, read_text
from .texts import one_line, phrases, quoted

_ENDINGS = (".json", ".ndjson", ".jsonl")
_KIND = re.compile(r"[A-Z][A-Za-z]{2,60}")
_LOCAL = re.compile(r"(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64})$")
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:T.+)?)?)?")
_WORDS = phrases("fhir")
_PLAIN, _MARKED = _WORDS["plain"], _WORDS["marked"]


class FhirElement(Element):
    """An element of a resource, with the data types of FHIR."""

    remedy = "export it again as FHIR R4"

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

    def concept(self, name: str) -> str:
        """What a CodeableConcept says in words: its text, else how a code is displayed."""
        return concept_text(self.one(name))

    def codes(self, name: str) -> set[str]:
        """Codes of a CodeableConcept, or of a list of them."""
        concepts = self.many(name) if isinstance(self.value.get(name), list) else [self.one(name)]
        return {coding.text("code") for concept in concepts for coding in concept.many("coding")} - {""}


def concept_text(concept: FhirElement) -> str:
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

    def add(self, resource: "Resource", address: str) -> bool:
        """Take a resource up under its address and its own number; whether it stood there before."""
        number = resource.text("id")
        names = [name for name in (address, f"{resource.kind}/{number}" if number else "") if name]
        known = next((self.places[name] for name in names if name in self.places), None)
        if known and known.value != resource.value:
            raise resource.wrong("id", f"{quoted(names[-1])} stands twice with different contents", "keep one of them")
        if known:
            return True
        self.resources.append(resource)
        self.places.update(dict.fromkeys(names, resource))
        return False


class Resource(FhirElement):
    """One resource; ``shared`` are those of the NDJSON files, to which every bundle may refer."""

    def __init__(self, content: FhirElement, scope: Scope, shared: Scope):
        super().__init__(content.value, content.path, content.line, content.place)
        self.kind, self.scope, self.shared = self.text("resourceType"), scope, shared

    def _part(self, name: str, value: Any) -> FhirElement:
        return FhirElement(value, self.path, self.line, self._place(name))

    @property
    def identity(self) -> str:
        """Its number, set apart from equal ones of other bundles."""
        return self.scope.mark + (self.text("id") or self.place)

    def find(self, reference: str) -> "Resource | None":
        """The resource that a reference names; None where the export does not hold it."""
        text = reference.partition("/_history/")[0]
        if text.startswith("#"):
            inner = [one for one in self.many("contained") if one.text("id") == text[1:]]
            return Resource(inner[0], self.scope, self.shared) if inner else None
        local = _LOCAL.search(text)
        names = (text, local[1] if local else "")
        places = (scope.places.get(name) for name in names for scope in (self.scope, self.shared))
        return next(filter(None, places), None)

    def attached(self, attachments: Iterable[FhirElement], attrition: Attrition) -> Iterator[str]:
        """Texts of attachments, of a Binary that one names too; what is no text or lies elsewhere is counted."""
        for attachment in attachments:
            if (text := self._text_of(attachment)) is None:
                attrition.count("attachments that are no text or lie elsewhere")
            else:
                yield text

    def _text_of(self, attachment: FhirElement) -> str | None:
        if not attachment.text("data") and attachment.text("url"):
            binary = self.find(attachment.text("url"))
            if binary is None:
                return None
            attachment = binary
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
    files = sorted(f for ending in _ENDINGS for f in files_at(path, ending)) if file_type(path) == "folder" else [path]
    if not files:
        raise IngestError(path, f"no file {', '.join('*' + e for e in _ENDINGS)} in this folder", "name the export")
    shared = Scope()
    scopes = [shared]
    pages: dict[str, set[str]] = {"self": set(), "next": set()}

    def read(content: FhirElement, scope: Scope, address: str = "") -> None:
        kind = content.text("resourceType")
        if kind == "Bundle":
            for link in content.many("link"):
                pages.setdefault(link.text("relation"), set()).add(link.text("url"))
            for entry in content.many("entry"):
                if resource := entry.one("resource"):
                    read(resource, scope, entry.text("fullUrl"))
                else:
                    attrition.count("entries without a resource")
        elif not _KIND.fullmatch(kind):
            raise content.wrong("resourceType", "is missing" if not kind else f"{quoted(kind)} is no kind of resource")
        elif kind not in kinds:
            attrition.count(f"resources that are not read: {kind}")
        elif scope.add(Resource(content, scope, shared), address):
            attrition.count("resources that stand twice")

    for file in files:
        by_line = not file.name.removesuffix(".gz").endswith(".json")
        for line, text in filled_lines(file) if by_line else [(1, read_text(file))]:
            element = FhirElement(parse_json(file, text, line), file, line if by_line else None)
            if element.text("resourceType") == "Bundle":
                # No file name: it may be the patient's.
                scopes.append(Scope(hashlib.sha256(f"{file.name}:{line}".encode()).hexdigest()[:8] + "-"))
                read(element, scopes[-1])
            else:
                read(element, shared)
    if lost := len(pages["next"] - pages["self"]):
        attrition.warn(f"{lost:,} bundles are one page of a result whose next page is not here; export all pages")
    return scopes


def unmarked(text: str) -> str:
    """The text of HTML, a block a line."""
    for mark, replacement in _WORDS["markup"]:
        text = re.sub(mark, replacement, text)
    return "\n".join(filter(None, map(one_line, html.unescape(text).splitlines())))


def of_kind(resources: Iterable[Resource], *kinds: str) -> Iterator[Resource]:
    """Those of some kinds, in their order."""
    return (resource for resource in resources if resource.kind in kinds)
