"""Imports AgentClinic: cases made from MedQA questions, one JSON object a line.

Test results are nested one to three levels deep under free names. A heading ("Blood_Tests", "Imaging") only groups
examinations. A quantity that is alone under a heading is added to the examination that reports it, as in MIMIC-IV:
hemoglobin to the blood count. Examinations get their names in the vocabulary (the list of known ones); a side or a part
of the body that such a name lacks is written before the result.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..cases import PHYSICAL, CaseRecord, Term, class_of, meaning, modality, names_no_place, normalise
from ..settings.datasets import Source
from .attrition import Attrition
from .draft import Draft, Import, make_drafts
from .flat_files import Element, IngestError, digest_id, files_with_ending, flat_text
from .names import Workup, clean_name, covers, panel_of, physical_key, term_of, usual_name
from .texts import is_absent, one_line, patterns, phrases

_WORDS, _PATTERN = phrases("agentclinic"), patterns("agentclinic")
# Words of which headings consist ("blood", "tests"), and names that say nothing ("findings").
_HEADING_WORDS, _SILENT = set(_WORDS["headings"]), _WORDS["silent"]
_PARTS = ("Patient_Actor", "Physical_Examination_Findings", "Test_Results")  # of a case


def read_agentclinic(source: Source, work: Import) -> Iterator[CaseRecord]:
    """Read a ``.jsonl`` file, or the one such file of a folder. Yields the records of all usable cases.

    A case has no identifier of its own; it gets a digest of its content. Raises IngestError for a file of which most
    cases cannot be read.
    """
    files = files_with_ending(work.path, ".jsonl")
    if len(files) != 1:
        raise IngestError(work.path, f"{len(files)} files *.jsonl in this folder", "give the path of one of them")
    yield from work.records(make_drafts(Element.read_file(files[0]), lambda case: _make_draft(case, work.attrition)))


def _make_draft(case: Element, attrition: Attrition) -> Draft:
    """Make the draft of one case: history, physical findings, tests and diagnosis. Findings and tests get the canonical
    names of known examinations."""
    osce = case.child("OSCE_Examination", required=True)  # "objective structured clinical examination": the case
    patient, findings, tests = (osce.child(name, required=True).value for name in _PARTS)
    physical, results = Workup(), Workup()
    for name, content in (_keep_results(findings, attrition.events) or {}).items():
        physical.add(physical_key(readable(name) or "General Appearance"), _plain_text(content))
    for name, content, heading in _list_tests(_keep_results(tests, attrition.events)):
        key, label = _key_and_label(readable(name) or readable(heading) or "Other Tests", content, heading)
        text = f"{label}: {_plain_text(content)}" if label else _plain_text(content)
        if key == "Vital Signs" or meaning(key).kind in PHYSICAL:  # a physical finding among the tests
            physical.add(physical_key(key), text)
        else:
            results.add(key, text)
    return Draft(
        note_id=digest_id("agentclinic", osce.value),
        history=_write_history(patient, attrition),
        physical=physical.results(),
        results=results.results(),
        diagnosis=one_line(osce.text("Correct_Diagnosis")).rstrip("."),
        where=f"line {case.line}",
    )


def _write_history(patient: Mapping[str, Any], attrition: Attrition) -> dict[str, str]:
    """Return the texts of a case summary by section. ``patient`` is the content of ``Patient_Actor``: what a patient
    can tell. Entries that no section has are counted."""
    # The counts are thrown away: entries of the history are no results.
    patient = {normalise(name): entry for name, entry in (_keep_results(patient, events=Counter()) or {}).items()}
    entry = patient.get("symptoms")
    symptoms = dict(entry) if isinstance(entry, Mapping) else {"Primary_Symptom": entry}
    patient |= {"symptoms": symptoms, "primary symptom": symptoms.pop("Primary_Symptom", None)}
    patient.setdefault("allergies", patient.pop("allergy history", None))
    attrition.count("fields that the format does not know", len(set(patient).difference(*_WORDS["history"].values())))
    history = {}
    for section, names in _WORDS["history"].items():
        texts = [text for text in map(_plain_text, map(patient.get, names)) if text]
        if len(names) > 1:  # several entries are sentences, one after another
            texts = [text if text.endswith((".", "!", "?")) else f"{text}." for text in texts]
        history[section] = " ".join(texts)
    return history


def _keep_results(content: Any, events: Counter[str], name: str = "") -> Any:
    """Return an entry with only those of its inner entries that have a result; None where none has.

    An entry has no result if it says so ("Not available"), or only proposes an examination ("Suggestion: MRI").
    ``content`` is a text, or an object of entries; ``name`` the normalised name of the entry. Entries with and without
    a result are counted in ``events``.
    """
    if isinstance(content, Mapping):
        parts = {inner: _keep_results(part, events, normalise(inner)) for inner, part in content.items()}
        return {inner: part for inner, part in parts.items() if part is not None} or None
    if isinstance(content, list):  # "Pending" beside a result
        content = [part for part in content if not is_absent(_plain_text(part))]
    text = _plain_text(content)
    is_proposed = name in _WORDS["proposed"] or _PATTERN.proposed.match(text)
    has_result = not (is_absent(text) or is_proposed)
    events["results" if has_result else "entries without a result"] += 1
    return content if has_result else None


def _list_tests(tests: Mapping[str, Any] | None, heading: str = "") -> Iterator[tuple[str, Any, str]]:
    """List the examinations in nested test results. Yields (name, content, heading) of each; ``heading`` is the name of
    the group above an examination whose content is a single value, else mostly empty.

    ``{"Blood_Tests": {"Na": "...", "CBC": {...}}, "X-rays": {"Knee": "..."}}`` gives ("Na", "...", "Blood_Tests"),
    ("CBC", {...}, "") and ("Knee_X-rays", "...", ""). An examination within another one is listed by itself."""
    for name, content in (tests or {}).items():
        if not isinstance(content, Mapping):  # an examination with its result
            yield name, content, heading
        elif body_parts := [inner for inner in content if _is_body_part(readable(inner), readable(name))]:
            yield from ((f"{part}_{name}", content[part], heading) for part in body_parts)
            if others := {inner: value for inner, value in content.items() if inner not in body_parts}:
                yield name, others, heading
        elif _is_heading(name, content):  # a group of examinations
            yield from _list_tests(content, heading=name)
        elif len(content) == 1 and (joint_name := _join_names(name, content)):  # a name in two parts
            yield joint_name, *content.values(), heading
        else:  # an examination, which may contain others
            others = {n: value for n, value in content.items() if isinstance(value, Mapping) and term_of(readable(n))}
            if own := {inner: value for inner, value in content.items() if inner not in others}:
                yield name, own, ""
            yield from _list_tests(others)


def _is_heading(name: str, content: Mapping[str, Any]) -> bool:
    """Whether ``name`` only groups the examinations in ``content``: it has only general words ("Blood Tests"), or the
    name of each of them repeats it ("Biopsy" above "Skin Biopsy" and "Liver Biopsy")."""
    # With nothing but "Findings" or "Result" below it, the name is that of an examination.
    if all(normalise(inner) in _SILENT for inner in content):
        return False
    heading = normalise(name)
    is_repeated = all(isinstance(part, Mapping) and heading in normalise(inner) for inner, part in content.items())
    return is_repeated or _HEADING_WORDS.issuperset(heading.split())


def _join_names(name: str, content: Mapping[str, Any]) -> str:
    """Join the ``name`` of an examination and that of the only entry in its ``content``, if together they name an
    examination: "Stool_Occult Blood Test" for "Stool" with the entry "Occult Blood Test". Empty if they do not, or if
    the entry is only a part of the result."""
    [(inner, part)] = content.items()
    joint = term_of(readable(f"{name}_{inner}"))
    # The entry is more than a part of the result if it makes the name another examination, or is one by itself, even
    # the same ("Histopathology" below "Skin Biopsy").
    is_other = joint is not term_of(readable(name))
    is_examination = is_other or (isinstance(part, Mapping) and term_of(readable(inner)))
    return f"{name}_{inner}" if joint is not None and is_examination else ""


def _is_body_part(name: str, method: str) -> bool:
    """Whether ``name`` is a part of the body that the examination ``method`` above it was applied to: a knee below
    "X-rays", a lymph node below "Biopsy"."""
    # The name may be that of a method itself, or the method above may name a part of the body already.
    if modality(name) or not names_no_place(method):
        return False
    # With a part of the body the method is an examination of the same class: "Knee X-rays".
    terms = meaning(f"{name} {method}").terms
    return bool(terms) and all(class_of(term) == meaning(method).kind for term in terms)


def _key_and_label(name: str, content: Any, heading: str) -> tuple[str, str]:
    """Return the key of an examination, and a label for its result. The label is the full name where the key does not
    say all of it (a side, a part of the body), else empty. ``heading`` is the name of the group above it, or empty."""
    is_value_in_group = heading and not isinstance(content, Mapping)
    if is_value_in_group and _HEADING_WORDS.issuperset(normalise(name).split()):  # "Results" says less than its heading
        return readable(heading), ""
    panel = panel_of(name) if is_value_in_group else None
    term = _known_examination(name, _plain_text(content))
    key = panel or (term.name if term else usual_name(name))
    # The values of a laboratory examination have labels of their own.
    is_labelled = isinstance(content, Mapping) and term is not None and term.kind in ("laboratory", "microbiology")
    return key, "" if is_labelled or covers(key, name) else name


def _known_examination(name: str, result: str) -> Term | None:
    """Return the known examination that ``name`` means; None for an unknown one. A Doppler of a limb is one of veins,
    unless its name and ``result`` tell of arteries alone."""
    term = term_of(name)
    tells_of_arteries = _PATTERN.arteries.search(result) and not _PATTERN.veins.search(f"{name} {result}")
    if term is not None and term.name == "Venous Duplex Ultrasound" and tells_of_arteries:
        return term_of(f"Arterial {name}") or term
    return term


def _plain_text(content: Any) -> str:
    """Write the content of an entry on one line, each value after its name. Names that say nothing ("Findings") are
    left out."""
    return flat_text(content, lambda name: "" if normalise(name) in _SILENT else readable(name))


def readable(name: str) -> str:
    """Return a name with spaces instead of underscores: ``Chest_X-ray`` becomes ``Chest X-ray``."""
    return clean_name(name.replace("_", " "))
