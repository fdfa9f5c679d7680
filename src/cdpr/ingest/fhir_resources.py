"""Reads FHIR R4: the resources of bundles and NDJSON files, their elements by type, and references between them.

See https://hl7.org/fhir/R4/ (bundle.html, references.html, datatypes.html). An element that is not of the type that R4
gives it raises IngestError with file, line or place, and element.
"""

import base64
import hashlib
from calendar import monthrange
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from email.message import Message
from pathlib import Path
from typing import Any

from ..files import file_type
from .attrition import Attrition
from .flat_files import Element, IngestError
from .texts import html_text, one_line, patterns, phrases, plain_text, quoted

_ENDINGS = (".json", ".ndjson", ".jsonl")
_WORDS, _PATTERN = phrases("fhir"), patterns("fhir")
_NAMES = _WORDS["loinc"] | _WORDS["answers"]  # by code
_NO_ZONE = timezone(timedelta(), "unknown")  # that of a date, or of a time without a zone; it is not equal to UTC
_STU3 = "resources with element names of FHIR STU3"  # an event that is counted


class FhirElement(Element):
    """An element of a FHIR resource, with access to the data types of FHIR. ``resource`` is the resource to which it
    belongs; None outside of resources, in a bundle."""

    remedy = "export it again as FHIR R4"
    resource: Any = None

    def _make_element(self, name: str, value: Any) -> "FhirElement":
        """Make the part ``name`` of this element, with the content ``value``."""
        part = FhirElement(value, self.path, self.line, self._place_of(name))
        part.resource = self.resource
        return part

    def moment(self, name: str, end: bool = False) -> datetime | None:
        """Read the date or time ``name``, of a period its start; None where it is absent. A time without a zone
        counts as UTC, except beside one with a zone (:func:`not_after`).

        A date without a time is the first moment of its day, month or year; with ``end`` it is the last one. Raises
        IngestError for text that is no date or time.
        """
        if isinstance(self.value.get(name), Mapping):
            return self.child(name).moment("start", end)
        text = self.text(name)
        if not text:
            return None
        try:
            if not _PATTERN.date.fullmatch(text):
                raise ValueError(text)
            if len(text) > len("2024-03-02"):
                moment = datetime.fromisoformat(text)
                return moment if moment.tzinfo else moment.replace(tzinfo=_NO_ZONE)
            # A year, a month of a year, or a day: month and day that are not given are the first or last one.
            year, month, day = (*map(int, text.split("-")), *((12, 31) if end else (1, 1))[text.count("-") :])
            day = min(day, monthrange(year, month)[1]) if text.count("-") < 2 else day
            return datetime.combine(date(year, month, day), time.max if end else time.min, _NO_ZONE)
        except ValueError:
            raise self.error(name, f"{quoted(text)} is no date or time") from None

    def display(self, name: str) -> str:
        """Return the CodeableConcept ``name`` in words, as :func:`concept_display` does; empty where it is absent."""
        return concept_display(self.child(name))

    def children(self, name: str) -> "list[FhirElement]":
        """Return the list of elements ``name``. A single element counts as a list of one, since FHIR STU3, the version
        before R4, has one in some places."""
        return [self.child(name)] if isinstance(self.value.get(name), Mapping) else super().children(name)

    def codes(self, name: str) -> set[str]:
        """Return the codes of the CodeableConcept ``name``, or of a list of them. Where FHIR STU3, the version before
        R4, has a plain code instead, that code is returned."""
        if isinstance(self.value.get(name), str):
            return {self.text(name)} - {""}
        return {coding.text("code") for concept in self.children(name) for coding in concept.children("coding")} - {""}

    def resolve(self, name: str = "reference") -> "Resource | None":
        """Find the resource to which the text ``name`` refers: ``Patient/7``, a URL, ``#a`` for one that the own
        resource contains, or ``Patient?identifier=system|value``, for which an identifier beside it may stand. None
        where the export does not have it."""
        address = self.text(name).partition("/_history/")[0]  # without a version
        export, bundle = self.resource.export, self.resource.bundle
        if address.startswith("#"):
            inner = [one for one in self.resource.children("contained") if one.text("id") == address[1:]]
            return Resource(inner[0], export, bundle) if inner else None
        kind_and_id = _PATTERN.local_reference.search(address)  # "Patient/7" in "https://example.org/fhir/Patient/7"
        identifier = address.partition("?identifier=")[2] or self.child("identifier").identifier()
        for alias in (address, kind_and_id[1] if kind_and_id else "", identifier):
            known = export.by_reference.get(alias, {})
            # Of other bundles only one may have it: the pages of a query are bundles, which refer to one another.
            only = next(iter(known.values())) if len(known) == 1 else None
            if alias and (resource := known.get(bundle) or known.get("") or only):
                return resource.successor or resource
        return None

    def identifier(self) -> str:
        """Return this Identifier as FHIR's searches write it (``system|value``); empty where it has no value."""
        return self.text("value") and f"{self.text('system')}|{self.text('value')}"

    def attached_text(self) -> str | None:
        """Decode the text of an attachment, or of the Binary resource that it names. None if it is no text, or not in
        the export. Raises IngestError for text that cannot be decoded."""
        content = self if self.text("data") or not self.text("url") else self.resolve("url")
        if content is None:
            return None
        header = Message()  # the parser of mail, for "text/plain; charset=latin1"
        header["Content-Type"] = content.text("contentType")
        kind, charset = header.get_content_type(), header.get_content_charset("utf-8")
        is_text = kind in (*_WORDS["plain"], *_WORDS["marked"]) and content.text("contentType")
        if not (is_text and content.text("data")):
            return None
        try:
            data = base64.b64decode("".join(content.text("data").split()), validate=True)
            text = data.decode("utf-8-sig" if charset in ("utf-8", "us-ascii") else charset)
        except (ValueError, LookupError):  # no base64, another charset, or an unknown one
            raise content.error("data", f"no base64 of text in {charset.upper()}, as its contentType says",
                                "name the charset in contentType (text/plain; charset=...)") from None  # fmt: skip
        return html_text(text) if kind in _WORDS["marked"] else plain_text(text)


def not_after(first: datetime, second: datetime) -> bool:
    """Whether a time is not after a second one. One without a zone is taken in the zone of the other: a day lasts from
    midnight to midnight where the patient is."""
    zones = [moment.tzinfo for moment in (first, second) if moment.tzinfo is not _NO_ZONE] or [_NO_ZONE]
    return first.replace(tzinfo=zones[0]) <= second.replace(tzinfo=zones[-1])


def concept_display(concept: FhirElement) -> str:
    """Return a CodeableConcept in words: its text or display, else the display that its code has elsewhere in the
    export, else the name of a common code or answer. Empty where it has none of these."""
    codings = concept.children("coding")
    codes = [coding.text("code") for coding in codings]
    names = [concept.text("text"), *(coding.text("display") for coding in codings)]
    names += [concept.resource.export.displays.get(code) or _NAMES.get(code, "") for code in codes]
    return one_line(next(filter(None, names), ""))


@dataclass
class Export:
    """The resources of an export, in the order of its files.

    ``displays`` has the words for codes in the whole export. ``by_reference`` has each resource by its URL, by
    ``Kind/id`` and by its identifiers, and then by its bundle (:class:`Resource`); None where several have the same
    identifier.
    """

    resources: list["Resource"] = field(default_factory=list)
    displays: dict[str, str] = field(default_factory=dict)
    by_reference: dict[str, dict[str, "Resource | None"]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, resource: "Resource", address: str) -> bool:
        """Add a resource, to which others may refer by its ``address`` (a URL, or empty) and by ``Kind/id``. Returns
        whether a resource of the same bundle has one of these names; then of the two the one updated last is kept.
        Raises IngestError for two different ones if that is not known."""
        identifier = resource.text("id")
        names = [name for name in (address, f"{resource.kind}/{identifier}" if identifier else "") if name]
        known = next(filter(None, (self.by_reference[name].get(resource.bundle) for name in names)), None)
        if known is None:
            self.resources.append(resource)
            for name in names:
                self.by_reference[name][resource.bundle] = resource
            for one in resource.children("identifier") if resource.kind in _WORDS["identified"] else ():
                same = self.by_reference[one.identifier()]
                same[resource.bundle] = None if resource.bundle in same else resource
        elif known.value != resource.value:
            before, now = (one.child("meta").moment("lastUpdated") for one in (known, resource))
            if before is None or now is None or before == now:  # names[-1] is Kind/id where the resource has an id
                problem = f"{quoted(names[-1])} occurs twice with different contents"
                raise resource.error("id", problem, "keep one of them")
            if before < now:  # the known one, to which others may refer, becomes the new one
                vars(known).update(vars(resource))
        return known is not None


class Resource(FhirElement):
    """A FHIR resource of the type ``kind``. It may refer to the resources of its own ``bundle``, to those outside of
    bundles, and to one that a single other bundle has. ``is_stu3``: it had element names of FHIR STU3, which were
    replaced by those of R4. ``successor``: the patient into whose record that of this one was merged at last."""

    successor: "Resource | None" = None

    def __init__(self, content: FhirElement, export: Export, bundle: str):
        """Make a resource of ``content``, the object with its elements. ``bundle`` is put before its identifier, which
        so differs from those of other bundles; it is empty outside of bundles. Elements with names of FHIR STU3, the
        version before R4, are renamed in place; of one that occurs under both names the later is kept. The words that
        the resource gives for codes are added to ``export.displays``, for places of the export that give none."""
        super().__init__(content.value, content.path, content.line, content.place)
        self.kind, self.export, self.bundle, self.resource = self.text("resourceType"), export, bundle, self
        # In place, because a resource is known by the identity of its value.
        names = _WORDS["stu3"].get(self.kind, {})
        self.is_stu3 = not names.keys().isdisjoint(self.value)
        renamed = {names.get(name, name): inner for name, inner in self.value.items()}
        self.value.clear()
        self.value.update(renamed)
        for concept in [part.child("code") for part in (self, *self.children("component"))]:
            for coding in concept.children("coding"):
                if display := coding.text("display") or concept.text("text"):
                    export.displays.setdefault(coding.text("code"), display)

    @property
    def identity(self) -> str:
        """The identifier of the resource, which is unique among all bundles."""
        return self.bundle + (self.text("id") or self.place)

    def last_of(self, following: "Mapping[Resource, Resource]") -> "Resource | None":
        """Return the last resource of the chain that begins with this one; ``following`` has the next one of each. None
        where the chain runs into a ring."""
        chain = [self]
        while one := following.get(chain[-1]):
            if one in chain:
                return None
            chain.append(one)
        return chain[-1]


def attached_texts(attachments: Iterable[FhirElement], attrition: Attrition) -> list[str]:
    """Return the text of each of ``attachments``. Attachments that are no text, or not in the export, are counted and
    left out. Raises IngestError for text that cannot be decoded."""
    texts = [attachment.attached_text() for attachment in attachments]
    attrition.count("attachments that are no text or lie elsewhere", texts.count(None))
    return [text for text in texts if text is not None]


def read_resources(path: Path, kinds: Collection[str], attrition: Attrition) -> list[Resource]:
    """Read the resources of an export, a file or a folder. Returns them in the order of the files; those of other types
    than ``kinds`` are counted and left out. Raises IngestError for a file that cannot be read, and for a folder without
    one."""
    found = _files_below(path)
    named = [file for file in found if file == path or _PATTERN.json_name.fullmatch(file.name)]
    files = [file for file in named if file.parent == path] or named  # some servers write a folder for each type
    attrition.count("files of another kind or in folders below the export, left out", len(found) - len(files))
    if not files:
        raise IngestError(path, f"no file {', '.join('*' + e for e in _ENDINGS)} in this folder", "name the export")
    export = Export()
    # A long result of a query is several bundles, its pages. URLs of the bundles that are here ("self"), of pages that
    # follow one of them ("next"), of other links, and of resources that were deleted ("DELETE").
    addresses: dict[str, set[str]] = defaultdict(set)

    def read(content: FhirElement, bundle: str, address: str = "") -> None:
        """Add a resource of a ``bundle`` to the export, or all resources of a bundle; ``address`` is the URL under
        which the bundle lists it."""
        kind = content.text("resourceType")
        if kind == "Bundle":
            for link in content.children("link"):
                addresses[link.text("relation")].add(link.text("url"))
            for entry in content.children("entry"):
                if resource := entry.child("resource"):
                    read(resource, bundle, entry.text("fullUrl"))
                else:
                    attrition.count("entries without a resource")
                    addresses[entry.child("request").text("method")].add(entry.child("request").text("url"))
        elif not _PATTERN.resource_type.fullmatch(kind):
            raise content.error("resourceType", "is missing" if not kind else f"{quoted(kind)} is no kind of resource")
        elif kind not in kinds:
            attrition.count(f"resources that are not read: {kind}")
        else:
            resource = Resource(content, export, bundle)
            attrition.count(_STU3, resource.is_stu3)
            attrition.count("resources marked as test data", "'HTEST'" in str(content.value.get("meta")))
            attrition.count("resources that stand twice", export.add(resource, address))

    for file in files:
        elements = [read_element() for read_element in FhirElement.read_file(file)]
        if not any("resourceType" in element.value for element in elements):
            attrition.count("files of the export without resources, left out")
            continue
        for element in elements:
            # A digest, because the name of the file may be the patient's.
            name = file.relative_to(path) if file != path else file.name
            digest = hashlib.sha256(f"{name}:{element.line or 1}{element.place}".encode()).hexdigest()
            read(element, f"{digest[:8]}-" if element.text("resourceType") == "Bundle" else "")
    if older := attrition.events[_STU3]:
        attrition.warn(f"{older:,} resources have element names of FHIR STU3; they were read under those of R4")
    if lost := len(addresses["next"] - addresses["self"]):
        attrition.warn(f"{lost:,} bundles are one page of a result whose next page is not here; export all pages")
    kept = [one for one in export.resources if f"{one.kind}/{one.text('id')}" not in addresses["DELETE"]]
    attrition.count("resources that were deleted", len(export.resources) - len(kept))
    # The record of a patient may have been merged into that of another, as the link of either says.
    merged: dict[Resource, Resource] = {}
    for patient in of_kind(kept, "Patient"):
        for link in patient.children("link"):
            other, kind = link.child("other").resolve(), link.text("type")
            if other and other is not patient and kind in ("replaced-by", "replaces"):
                old, new = (patient, other) if kind == "replaced-by" else (other, patient)
                merged.setdefault(old, new)
    for patient in merged:
        patient.successor = patient.last_of(merged)
        attrition.count("patients merged into one another in a ring, kept apart", patient.successor is None)
    attrition.count("patients that were merged into another", sum(one.successor is not None for one in kept))
    return [one for one in kept if one.successor is None]


def _files_below(path: Path) -> list[Path]:
    """Return the files of a folder, at any depth, in the order of their names; a path that is no folder itself."""
    is_folder = file_type(path) == "folder"
    return [file for inner in sorted(path.iterdir()) for file in _files_below(inner)] if is_folder else [path]


def of_kind(resources: Iterable[Resource], *types: str) -> Iterator[Resource]:
    """Return those of ``resources`` that are of one of these ``types`` (``Observation``, ...), in their order."""
    return (resource for resource in resources if resource.kind in types)
