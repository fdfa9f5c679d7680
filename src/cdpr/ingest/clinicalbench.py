"""ClinicalBench (ClinicalLab, arXiv 2406.13890) -> case records.

The published text is not strict JSON: single backslashes stand before characters that JSON does not escape.
The case summary holds all results at its end: it is cut at the physical examination, whose text becomes
results; what follows under "Auxiliary Examination" repeats the results dictionaries and is left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ..cases import CaseRecord, meaning, modality
from ..settings.datasets import ClinicalBenchSource
from .attrition import Attrition
from .draft import CUT, Draft, Import
from .flat_files import Element, IngestError, files_at, flat_text, parse_json, read_text
from .headings import alternatives, headed, matched
from .names import add_text, examination_name
from .notes import examination_part, only_refers, physical_results
from .texts import LONGEST_NAME, is_absent, language_of, one_line, patterns, phrases, quoted, says_something

NOTICE = (
    "Evaluated using ClinicalBench (https://github.com/WeixiangYAN/ClinicalLab, arXiv 2406.13890). Its licence allows "
    "evaluation only: no training on its cases, no publication of them or of anything made from them"
)
_WORDS = phrases("clinicalbench")
_HEADING = re.compile(
    r"(?:^|(?<=[\n。.;；)）\]】]))[^\S\n]*(?:[（(]?(?:\d+|[一二三四五六七八九十]+)[.、)）]\s*)?[*#\[【]*\s*(?:"
    + alternatives(_WORDS["headings"].values())
    + r")\s*(?:[\]】*]*\s*[:：]|[\]】]+)",
    re.IGNORECASE,
)
_PATTERN = patterns("clinicalbench")
_BLOCKS = _WORDS["blocks"]


def repair_backslashes(text: str) -> str:
    r"""Valid JSON unchanged, else without what JSON would not accept.

    A backslash before a mark that Markdown or LaTeX escapes is dropped (``50\%`` is ``50%``), any other is doubled.
    """
    return _PATTERN.backslash.sub(lambda match: match["valid"] or match["mark"] or r"\\", text)


def read_clinicalbench(source: ClinicalBenchSource, work: Import) -> Iterator[CaseRecord]:
    """Records of all usable cases of a file, or of all ``*.json`` files of a folder, in the language asked for.

    What breaks the structure is an IngestError with number of the case and field; a case that only lacks something,
    or stands twice word for word, is dropped and counted.
    """
    files, dataset = files_at(work.path, ".json"), work.attrition.dataset
    if not files:
        raise IngestError(work.path, "no *.json file in this folder", f"point data.{dataset}.path at the data set")
    if source.path is not None and dataset == "clinicalbench":  # others may use its format
        work.attrition.warnings.append(NOTICE)
    yield from work.records(_drafts(files, source.language, work.attrition))
    if not work.attrition.read and work.attrition.events:
        raise IngestError(work.path, f"no case in the language {source.language}", f"set data.{dataset}.language")


def _drafts(files: Sequence[Path], asked_language: str, attrition: Attrition) -> Iterator[Draft]:
    """The drafts of all cases in the language asked for. Raises IngestError for two cases of one number."""
    by_number: dict[str, Any] = {}
    for file in files:
        cases = parse_json(file, repair_backslashes(read_text(file)))
        for index, value in enumerate(cases if isinstance(cases, list) else [cases]):
            case = Element(value, file, place=f"[{index}]")
            unknown = set(value).difference(_WORDS["fields"], _BLOCKS)
            attrition.count("fields that the format does not know", len(unknown))
            # What the case says of its language, else what its summary is written in.
            language = _WORDS["languages"].get(str(value.get("language")).strip().casefold())
            language = language or language_of(case.text("clinical_case_summary"))
            if asked_language not in ("both", language):
                attrition.count(f"cases in another language ({language})")
                continue
            draft = _draft(case, language, attrition)
            if value != by_number.setdefault(draft.note_id, value):
                problem = f"{quoted(str(value['id']))} names two different cases"
                raise case.wrong("id", problem, "give every case its own number")
            yield draft


def _number(case: Element) -> str:
    """The number of a case as text. Raises IngestError where it is missing or no number or short text."""
    number = case.value.get("id")
    text = one_line(str(number)) if isinstance(number, (str, int)) and not isinstance(number, bool) else ""
    if not text:
        raise case.wrong("id", "is missing" if number in (None, "") else "expected a number or a short text")
    if len(str(number)) > LONGEST_NAME:
        raise case.wrong("id", f"longer than {LONGEST_NAME} characters")
    return text


def _draft(case: Element, language: Literal["en", "zh"], attrition: Attrition) -> Draft:
    """The draft of one case: sections of the summary, its physical examination, and the results of all blocks."""
    sections = _sections(case.text("clinical_case_summary"), attrition)
    examination, behind = examination_part(sections.pop("physical", ""))
    physical = physical_results(examination)
    attrition.count(CUT, says_something(behind))
    attrition.count("summaries without a physical examination", not physical)
    number = _number(case)
    results: dict[str, str] = {}
    for name in _BLOCKS:
        _add_examinations(results, case, name, language, attrition)
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


def _sections(text: str, attrition: Attrition) -> dict[str, str]:
    """Text by section, up to the auxiliary examinations; a section named twice keeps both texts."""
    names = list(_WORDS["headings"])
    (_, before), *parts = headed(text, _HEADING.finditer(text))
    attrition.count("summaries with text before the first heading", bool(parts) and says_something(before))
    sections: dict[str, str] = {}
    for heading, body in parts:
        name = names[matched(heading)] if heading else ""
        if name != "end":
            sections[name] = f"{sections[name]}\n{body}" if name in sections else body
        elif "physical" in sections:
            break
    return sections


def _add_examinations(results: dict[str, str], case: Element, kind: str, language: str, attrition: Attrition) -> None:
    """Add the results of a dictionary of examinations, or of the text that stands for one."""
    if isinstance(block := case.value.get(kind), str):
        attrition.count(f"{kind} given as text", bool(_text(block)) and kind != "pathological_examination")
        for name, text in _labelled(block) if _text(block) else ():
            add_text(results, name or _BLOCKS[kind], text)
        return
    for name, content in case.one(kind).value.items():
        text = _result(content, language)
        if text:
            add_text(results, readable(name) or _BLOCKS[kind], text)
        else:
            attrition.count(f"{kind} entries without a result")


def _labelled(text: str) -> Iterator[tuple[str, str]]:
    """Examinations that a text tells one after another, by their headings ("Chest CT: ..."); what stands under no
    heading has no name."""
    heads = [label for label in _PATTERN.label.finditer(text) if meaning(label[1]).terms or modality(label[1])]
    for heading, body in headed(text, heads):
        body = one_line(body) if heading is None else one_line(body).strip(";； ")
        if body.strip(" ;；.。" if heading is None else ""):
            yield examination_name(heading[1]) if heading else "", body


def readable(name: str) -> str:
    """``plain_computed_tomography_scan+color_doppler_ultrasound`` as words; other names as they are."""
    parts = [_spaced(part).strip() for part in examination_name(name).split("+")]
    return " + ".join(part[:1].upper() + part[1:] for part in parts if part)


def _result(content: Any, language: str) -> str:
    """Text of one examination: result or findings first, the impression last and under its label.

    The list of abnormal values repeats the result, and counts only without one.
    """
    if not isinstance(content, Mapping):
        return _text(content)
    fields = {name: text for name, inner in content.items() if (text := _text(inner)) and not only_refers(text)}
    impression, abnormal = fields.pop("impression", ""), fields.pop("abnormal", "")
    parts = [fields.pop(name) for name in ("result", "findings") if name in fields]
    parts += [f"{_spaced(name)}: {text}" for name, text in fields.items()]
    parts = list(dict.fromkeys(parts or [abnormal]))
    if impression and impression not in parts:
        parts.append(f"印象：{impression}" if language == "zh" else f"Impression: {impression}")
    return " ".join(filter(None, parts))


def _text(content: Any) -> str:
    """Any value as one line; what says that there is no result is empty."""
    return flat_text(content, _spaced, lambda text: not is_absent(text) and not _PATTERN.none.fullmatch(text))


def _spaced(name: str) -> str:
    """A name with spaces in place of underscores."""
    return name.replace("_", " ")
