"""Reading FHIR R4: resources of bundles and NDJSON files, typed access to their elements, references between them.

https://hl7.org/fhir/R4/ (bundle.html, references.html, datatypes.html). Every element that is not of the type that R4
gives it is an IngestError with file, line or place, and element.
"""

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..files import file_type
from .attrition import Attrition
from .flat_files import Element, IngestError, files_at, parse_json, read_text
from .texts import one_line, phrases, plain_text, quoted, unmarked

_ENDINGS = (".json", ".ndjson", ".jsonl")
_KIND = re.compile(r"[A-Z][A-Za-z]{2,60}")
_LOCAL = re.compile(r"(?:^|/)([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64})$")
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:T.+)?)?)?")
_WORDS = phrases("fhir")
_PLAIN, _MARKED, _OLDER = _WORDS["plain"], _WORDS["marked"], _WORDS["stu3"]
_STU3 = "resources with element names of FHIR STU3"
_NAMED = ("Observation", "DiagnosticReport", "Condition", "Procedure")


class FhirElement(Element):
    """An element of a resource, with the data types of FHIR."""

    remedy = "export it again as FHIR R4"
    words: Mapping[str, str] = MappingProxyType({})  # what other places of the export call a code

    def _part(self, name: str, value: Any) -> "FhirElement":
        """Make the element ``name`` of this one, with the content ``value``; it inherits ``words``, the names of codes
        that other parts of the export give."""
        part = FhirElement(value, self.path, self.line, self._place(name))
        part.words = self.words
        return part

    def moment(self, name: str, last: bool = False) -> datetime | None:
        """A date or time; what it leaves out is the earliest, or the ``last`` of the day, month or year, and a time
        without a zone is UTC."""
        text = self.text(name)
        if not text:
            return None
        try:
            if not _DATE.fullmatch(text):
                raise ValueError(text)
            moment = datetime.fromisoformat(text + "-01-01"[len(text) - 4 :] if len(text) < 10 else text)
        except ValueError:
            raise self.wrong(name, f"{quoted(text)} is no date or time") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if last and len(text) <= len("2024-03-02"):
            after = moment + timedelta({4: 366, 7: 32, 10: 1}[len(text)])
            start = after.replace(month=1 if len(text) == 4 else after.month, day=1 if len(text) < 10 else after.day)
            moment = start - timedelta(microseconds=1)
        return moment

    def concept(self, name: str) -> str:
        """What a CodeableConcept says in words: its text, else how a code is displayed."""
        return concept_text(self.one(name))

    def many(self, name: str) -> "list[FhirElement]":
        """A list of elements; the one that STU3 has in its place."""
        alone = isinstance(self.value.get(name), Mapping)
        return [self.one(name)] if alone else super().many(name)

    def codes(self, name: str) -> set[str]:
        """Codes of a CodeableConcept, or of a list of them; the bare code that STU3 has in its place."""
        if isinstance(self.value.get(name), str):
            return {self.text(name)} - {""}
        concepts = self.many(name) if isinstance(self.value.get(name), list) else [self.one(name)]
        return {coding.text("code") for concept in concepts for coding in concept.many("coding")} - {""}


def concept_text(concept: FhirElement) -> str:
    """A CodeableConcept in words: its own, else those that another place of the export has for its code, or that are
    known of LOINC's; nothing for one without any."""
    codings = [(coding.text("display"), coding.text("code")) for coding in concept.many("coding")]
    known = (concept.words.get(code) or _WORDS["loinc"].get(code, "") for _, code in codings)
    return one_line(next(filter(None, [concept.text("text"), *(display for display, _ in codings), *known]), ""))


@dataclass
class Scope:
    """Resources that may refer to one another: those of a bundle, or of all NDJSON files. ``mark`` sets the numbers of
    its resources apart from those of other bundles, ``words`` are what codes are called in the whole export."""

    mark: str = ""
    resources: list["Resource"] = field(default_factory=list)
    words: dict[str, str] = field(default_factory=dict)
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
        self.kind, self.scope, self.shared, self.words = self.text("resourceType"), scope, shared, shared.words
        self.older = self._rename_stu3_names()
        for concept in (part.one("code") for part in (self, *self.many("component")) if self.kind in _NAMED):
            for coding in concept.many("coding"):
                if display := coding.text("display") or concept.text("text"):
                    shared.words.setdefault(coding.text("code"), display)

    def _rename_stu3_names(self) -> bool:
        """Rename elements with a name of STU3 to that of R4, in place; returns whether there were any. Of an element
        under both names the one that is later in the file counts."""
        names = _OLDER.get(self.kind, {})
        renamed = {names.get(name, name): content for name, content in self.value.items()}
        is_older = bool(names.keys() & self.value.keys())
        self.value.clear()
        self.value.update(renamed)
        return is_older

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
        """The text of an attachment; None for one that is no text or is not in the export. Raises IngestError."""
        if not attachment.text("data") and attachment.text("url"):
            binary = self.find(attachment.text("url"))
            if binary is None:
                return None
            attachment = binary
        header = Message()
        header["Content-Type"] = attachment.text("contentType")
        kind, charset = header.get_content_type(), header.get_content_charset("utf-8")
        if not attachment.text("contentType") or kind not in (*_PLAIN, *_MARKED) or not attachment.text("data"):
            return None
        try:
            data = base64.b64decode("".join(attachment.text("data").split()), validate=True)
            text = data.decode("utf-8-sig" if charset in ("utf-8", "us-ascii") else charset)
        except (ValueError, LookupError):  # no base64, another charset, or an unknown one
            raise attachment.wrong("data", f"no base64 of text in {charset.upper()}, as its contentType says",
                                   "name the charset in contentType (text/plain; charset=...)") from None  # fmt: skip
        return unmarked(text) if kind in _MARKED else plain_text(text)


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
        else:
            resource = Resource(content, scope, shared)
            attrition.count(_STU3, resource.older)
            attrition.count("resources that stand twice", scope.add(resource, address))

    for file in files:
        elements = list(_elements(file))
        if not any("resourceType" in element.value for element in elements):
            attrition.count("files of the export without resources, left out")
            continue
        for element in elements:
            if element.text("resourceType") == "Bundle":
                # No file name: it may be the patient's.
                name = f"{file.name}:{element.line or 1}".encode()
                scopes.append(Scope(hashlib.sha256(name).hexdigest()[:8] + "-"))
                read(element, scopes[-1])
            else:
                read(element, shared)
    if older := attrition.events[_STU3]:
        attrition.warn(f"{older:,} resources have element names of FHIR STU3; they were read under those of R4")
    if lost := len(pages["next"] - pages["self"]):
        attrition.warn(f"{lost:,} bundles are one page of a result whose next page is not here; export all pages")
    return scopes


def _elements(file: Path) -> Iterator[FhirElement]:
    """The objects of a file, whatever its name says: one on each line, one in all, or a list of them."""
    text = read_text(file)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    by_line = False
    with contextlib.suppress(ValueError, RecursionError):
        by_line = len(lines) > 1 and isinstance(json.loads(lines[0][1]), dict)
    if by_line:
        yield from (FhirElement(parse_json(file, line, number), file, number) for number, line in lines)
        return
    content = parse_json(file, text)
    objects = content if isinstance(content, list) else [content]
    yield from (FhirElement(one, file, place=f"[{i}]" if content is objects else "") for i, one in enumerate(objects))


def of_type(resources: Iterable[Resource], *types: str) -> Iterator[Resource]:
    """The resources of these types (``Observation``, ...), in their order."""
    return (resource for resource in resources if resource.kind in types)
