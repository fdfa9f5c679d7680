"""Imports ClinicalBench (ClinicalLab, arXiv 2406.13890).

The published text is not strict JSON: it has single backslashes before characters that JSON does not escape. The case
summary ends with all results. It is cut at the physical examination, whose text becomes results; the text after it,
under "Auxiliary Examination", is left out, because it repeats the results that are given separately.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from ..cases import CaseRecord, meaning, modality
from ..settings.datasets import ClinicalBenchSource
from .attrition import Attrition
from .draft import CUT, Draft, Import, make_drafts
from .flat_files import Element, IngestError, files_with_ending, flat_text
from .names import add_text, clean_name
from .notes import is_reference, physical_results, split_at_headings, split_off_examination
from .texts import LONGEST_NAME, blank_if_missing, is_absent, language_of, one_line, patterns, phrases, says_something

_WORDS = phrases("clinicalbench")
NOTICE: str = _WORDS["notice"]  # what the licence of the published cases asks of their users
_SECTION_NAMES = ["", *_WORDS["headings"]]  # by the number of the heading, which counts from 1
# Each heading is a group of the expression, so that the number of the group that matched tells which one it is.
_PATTERN = patterns("clinicalbench", any_heading="|".join(f"({words})" for words in _WORDS["headings"].values()))
# The parts of a case that have results, each with the name for an examination in it that has none.
_BLOCKS = _WORDS["blocks"]


def repair_backslashes(text: str) -> str:
    r"""Repair JSON with single backslashes before characters that JSON does not escape; valid JSON is unchanged.

    A backslash before a mark that Markdown or LaTeX escapes is dropped (``50\%`` becomes ``50%``), any other doubled
    (``\alpha`` becomes ``\\alpha``).
    """
    return _PATTERN.backslash.sub(lambda match: match["valid"] or match["mark"] or r"\\", text)


def read_clinicalbench(source: ClinicalBenchSource, work: Import) -> Iterator[CaseRecord]:
    """Read a file, or all ``*.json`` files of a folder. Yields the records of all usable cases in ``source.language``.

    A case that cannot be read, that has no diagnosis, complaint or examination, or whose number another case has, is
    dropped and counted. Raises IngestError, with the place of a case and the field, where most cannot be read.
    """
    files, dataset = files_with_ending(work.path, ".json"), work.attrition.dataset
    if not files:
        raise IngestError(work.path, "no *.json file in this folder", f"point data.{dataset}.path at the data set")
    # The licence is that of the published cases, not of other data sets in their format.
    if source.path is not None and dataset == "clinicalbench":
        work.attrition.warnings.append(NOTICE)
    cases_by_id: dict[str, Any] = {}

    def make_draft(case: Element) -> Draft | None:
        """Make the draft of a case; None for one in another language. Of different cases with one number the first
        counts."""
        unknown_fields = set(case.value).difference(_WORDS["fields"], _BLOCKS)
        work.attrition.count("fields that the format does not know", len(unknown_fields))
        language = _language_of(case)
        if language not in (("en", "zh") if source.language == "both" else (source.language,)):
            work.attrition.count(f"cases in another language ({language})")
            return None
        draft = _make_draft(case, "zh" if language == "zh" else "en", work.attrition)
        if cases_by_id.setdefault(draft.note_id, case.value) != case.value:
            draft.rejected = "note_id missing or repeated"
        return draft

    cases = (case for file in files for case in Element.read_file(file, repair_backslashes))
    yield from work.records(make_drafts(cases, make_draft))
    # No case was read, although some in another language were counted.
    if not work.attrition.read and work.attrition.events:
        raise IngestError(work.path, f"no case in the language {source.language}", f"set data.{dataset}.language")


def _language_of(case: Element) -> str:
    """Return the language that a case states (``en``, ``zh``, the code of another, or ``unknown``), else that of its
    summary."""
    stated = blank_if_missing(str(case.value.get("language") or "")).casefold()
    known = [_WORDS["languages"][word] for word in re.findall(r"[^\W_]+", stated) if word in _WORDS["languages"]]
    if known or not stated:
        return known[0] if known else language_of(case.text("clinical_case_summary"))
    return stated if re.fullmatch("[a-z]{2,3}([-_][a-z0-9]{2,8})*", stated) else "unknown"


def _read_number(case: Element) -> str:
    """Return the number of a case as text. Raises IngestError where it is missing, or is neither a number nor a short
    text."""
    number = case.value.get("id")
    text = str(number) if isinstance(number, (str, int)) and not isinstance(number, bool) else ""
    if not text.strip() or len(text) > LONGEST_NAME:
        expected = f"expected a number or a text of at most {LONGEST_NAME} characters"
        raise case.error("id", "is missing" if number in (None, "") else expected)
    return one_line(text)


def _make_draft(case: Element, language: Literal["en", "zh"], attrition: Attrition) -> Draft:
    """Make the draft of one case in a ``language`` (``en`` or ``zh``): sections of its summary, its physical
    examination, and the results of all its blocks."""
    sections = _split_sections(case.text("clinical_case_summary"), attrition)
    examination, text_after = split_off_examination(sections.pop("physical", ""))
    physical = physical_results(examination)
    attrition.count(CUT, says_something(text_after))
    attrition.count("summaries without a physical examination", not physical)
    number = _read_number(case)
    results: dict[str, str] = {}
    for name in _BLOCKS:
        _add_block(results, case, name, language, attrition)
    return Draft(
        note_id=f"{attrition.dataset}-{language}-{number}",
        # The Chinese and the English version of a case are one patient.
        subject_key=one_line(str(case.value.get("clinical_case_uid") or number)),
        history=sections,
        physical=physical,
        results=results,
        diagnosis=one_line(case.text("principal_diagnosis")).strip(" .;。；"),
        language=language,
        where=f"{case.path.name}, case {case.place}",
        rejected=None if any(map(says_something, sections.values())) else "no headed sections in the case summary",
    )


def _split_sections(text: str, attrition: Attrition) -> dict[str, str]:
    """Return the text of each section of a case summary, by name, up to the auxiliary examinations. The texts of a
    section that occurs twice are joined."""
    (_, before), *parts = split_at_headings(text, _PATTERN.heading.finditer(text))
    attrition.count("summaries with text before the first heading", bool(parts) and says_something(before))
    sections: dict[str, str] = {}
    for heading, body in parts:
        name = _SECTION_NAMES[heading.lastindex or 0] if heading else ""
        if name != "end":
            add_text(sections, name, body, separator="\n")
        elif "physical" in sections:  # the auxiliary examinations, which repeat the results
            break
    return sections


def _add_block(results: dict[str, str], case: Element, block: str, language: str, attrition: Attrition) -> None:
    """Add the results of one block of a case to ``results``, in place. A block, such as ``laboratory_examination``, is
    an object of examinations, or a text about several."""
    content, block_name = case.value.get(block), _BLOCKS[block]
    if isinstance(content, str):
        has_results = bool(_plain_text(content))
        # Pathology is published as text.
        attrition.count(f"{block} given as text", has_results and block != "pathological_examination")
        for name, text in _split_examinations(content) if has_results else ():
            add_text(results, name or block_name, text)
        return
    for name, result in case.child(block).value.items():
        if text := _write_result(result, language):
            add_text(results, readable(name) or block_name, text)
        else:
            attrition.count(f"{block} entries without a result")


def _split_examinations(text: str) -> Iterator[tuple[str, str]]:
    """Split a text about several examinations at their headings ("Chest CT: ..."). Yields name and text of each; the
    text before the first heading has an empty name, and is left out where it is only punctuation."""
    labels = _PATTERN.label.finditer(text)
    headings = [label for label in labels if meaning(label[1]).terms or modality(label[1])]
    (_, before), *parts = split_at_headings(text, headings)
    if one_line(before).strip(" ;；.。"):
        yield "", one_line(before)
    for heading, body in parts:
        if heading and (result := one_line(body).strip(";； ")):
            yield clean_name(heading[1]), result


def readable(name: str) -> str:
    """Return a name in words: ``plain_computed_tomography_scan+color_doppler_ultrasound`` becomes ``Plain computed
    tomography scan + Color doppler ultrasound``."""
    parts = [_with_spaces(part).strip() for part in clean_name(name).split("+")]
    return " + ".join(part[:1].upper() + part[1:] for part in parts if part)


def _write_result(content: Any, language: str) -> str:
    """Write the result of one examination as text: result and findings first, the impression last and after its label.

    The list of abnormal values repeats the result, so it is used only where there is nothing else. ``language`` is that
    of the label.
    """
    if not isinstance(content, Mapping):
        return _plain_text(content)
    fields = {name: text for name, inner in content.items() if (text := _plain_text(inner)) and not is_reference(text)}
    impression, abnormal = fields.pop("impression", ""), fields.pop("abnormal", "")
    parts = [fields.pop(name) for name in ("result", "findings") if name in fields]
    parts += [f"{_with_spaces(name)}: {text}" for name, text in fields.items()]
    parts = list(dict.fromkeys(parts or [abnormal]))
    if impression and impression not in parts:
        parts.append(f"印象：{impression}" if language == "zh" else f"Impression: {impression}")
    return " ".join(filter(None, parts))


def _plain_text(content: Any) -> str:
    """Write any JSON value on one line; parts that say that there is no result are left out."""
    return flat_text(content, _with_spaces, lambda text: not is_absent(text) and not _PATTERN.none.fullmatch(text))


def _with_spaces(name: str) -> str:
    """Return a name with spaces instead of underscores."""
    return name.replace("_", " ")
