"""ClinicalBench (ClinicalLab, arXiv 2406.13890) -> case records.

The published text is not strict JSON: single backslashes stand before characters that JSON does not escape.
The case summary holds all results at its end: it is cut at the physical examination, whose text becomes
results; what follows under "Auxiliary Examination" repeats the results dictionaries and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..cases import CaseRecord
from ..settings.schema import Data, Source
from .flat_files import parse_json, read_utf8
from .funnel import Funnel, IngestError
from .leaks import why_unusable
from .physical import physical_results
from .summary import build_summary, one_line, only_refers

_LONE_BACKSLASH = re.compile(r'\\(?:(["\\/bfnrt]|u[0-9a-fA-F]{4})|)')
_HEADINGS = {
    "Patient Information": r"Patient (?:Basic )?Information|患者基本信息",
    "Chief Complaint": r"Chief Complaint|主诉",
    "History of Present Illness": r"Medical History|History of Present Illness|现病史|病史",
    "Past Medical History": r"Past Medical History|Past History|既往史",
    "Personal History": r"Personal History|个人史",
    "Family History": r"Family History|家族史",
    "Allergy History": r"Allergy History|过敏史",
    "physical": r"Physical Examination|体格检查",
    "end": r"Auxiliary Examinations?|辅助检查",
}
_HEADING = re.compile(
    r"(?:^|(?<=[\n。.;；]))[^\S\n]*(?:\d+[.、)]\s*)?[*#\[【]*\s*(?:"
    + "|".join(f"(?P<s{i}>{pattern})" for i, pattern in enumerate(_HEADINGS.values()))
    + r")\s*[\]】*]*\s*[:：]",
    re.IGNORECASE,
)
_ABSENT = re.compile(r"^(?:not available|none|n/?a|nil|暂无|无)?[\s.。]*$", re.IGNORECASE)
_REQUIRED = ("id", "clinical_case_summary", "principal_diagnosis")
_LANGUAGES = {"en": "en", "zh": "zh", "english": "en", "chinese": "zh"}


def repair_backslashes(text: str) -> str:
    r"""Double every backslash that JSON would not accept (``\#`` becomes ``\\#``); valid text is unchanged."""
    return _LONE_BACKSLASH.sub(lambda match: match[0] if match[1] else r"\\", text)


def read_clinicalbench(source: Source, data: Data, path: str | Path) -> tuple[list[CaseRecord], Funnel]:
    """Records of all usable cases of a file, or of all ``*.json`` files of a folder. Raises IngestError."""
    funnel = Funnel("clinicalbench")
    records: dict[str, CaseRecord] = {}
    seen: set[str] = set()
    for file in _files(Path(path)):
        cases = parse_json(file, repair_backslashes(read_utf8(file)))
        for index, case in enumerate(cases if isinstance(cases, list) else [cases]):
            funnel.read += 1
            _check(file, index, case)
            number = str(case["id"])
            if number in seen:
                raise IngestError(file, f"{number!r} stands twice", "give every case its own number",
                                  field=f"[{index}].id")  # fmt: skip
            seen.add(number)
            record = _record(case, number, source.credentialed, funnel)
            if record is not None:
                records[number] = record
    return [records[number] for number in sorted(records)], funnel


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.json"))
    if not files:
        raise IngestError(path, "no *.json file in this folder", "point data.clinicalbench.path at the data set")
    return files


def _check(path: Path, index: int, case: Any) -> None:
    if not isinstance(case, dict):
        raise IngestError(path, f"expected an object, found {type(case).__name__}", "use the data set as published",
                          field=f"[{index}]")  # fmt: skip
    for name in _REQUIRED:
        kinds = (str, int) if name == "id" else (str,)
        if not isinstance(case.get(name), kinds):
            problem = "is missing" if name not in case else f"expected text, found {type(case[name]).__name__}"
            raise IngestError(path, problem, "use the data set as published", field=f"[{index}].{name}")


def _record(case: Mapping[str, Any], number: str, credentialed: bool, funnel: Funnel) -> CaseRecord | None:
    sections = _sections(case["clinical_case_summary"])
    results = physical_results(sections.pop("physical", ""))
    for name in ("laboratory_examination", "imageological_examination"):
        results |= _examinations(case.get(name), name, funnel)
    pathology = case.get("pathological_examination")
    if isinstance(pathology, str) and not _ABSENT.match(pathology):
        results["Pathology"] = one_line(pathology)
    sections.pop("end", None)
    summary, diagnosis = build_summary(sections), one_line(case["principal_diagnosis"]).strip(" .;。；")
    rule = why_unusable(diagnosis, summary, results, None if summary else "no headed sections in the case summary")
    if rule is not None:
        funnel.drop(rule, number)
        return None
    language = _LANGUAGES.get(str(case.get("language", "en")).casefold(), "en")
    return CaseRecord(
        note_id=f"clinicalbench-{language}-{number}",
        case_summary=summary,
        key_pertinent_results_dict=results,
        final_diagnosis=diagnosis,
        diagnosis_results=diagnosis,
        dataset="clinicalbench",
        split="test",
        language=language,
        # The Chinese and the English version of a case are one patient.
        subject_key=str(case.get("clinical_case_uid") or number),
        credentialed=credentialed,
    )


def _sections(text: str) -> dict[str, str]:
    """Text by section, up to the auxiliary examinations; a section named twice keeps both texts."""
    names = list(_HEADINGS)
    matches = list(_HEADING.finditer(text))
    found: dict[str, str] = {}
    for match, following in zip(matches, [*matches[1:], None], strict=False):
        name = names[int(match.lastgroup[1:])]
        if name == "end":
            break
        body = text[match.end() : following.start() if following else len(text)].strip()
        found[name] = f"{found[name]}\n{body}" if name in found else body
    return found


def _examinations(block: Any, kind: str, funnel: Funnel) -> dict[str, str]:
    """Results of a dictionary of examinations, or of the string that stands for one; absent is empty."""
    if block is None or (isinstance(block, str) and _ABSENT.match(block)):
        return {}
    if not isinstance(block, dict):
        funnel.count(f"{kind} given as text")
        return {"Laboratory Tests" if kind.startswith("lab") else "Imaging": one_line(str(block))}
    results: dict[str, str] = {}
    for name, content in block.items():
        text = _result(content)
        if text:
            results.setdefault(readable(name), text)
        else:
            funnel.count(f"{kind} entries without a result")
    return results


def readable(name: str) -> str:
    """``plain_computed_tomography_scan+color_doppler_ultrasound`` as words; other names as they are."""
    parts = [part.replace("_", " ").strip() for part in name.split("+")]
    return " + ".join(part[:1].upper() + part[1:] for part in parts)


def _result(content: Any) -> str:
    """Text of one examination: findings and impression, or result; the list of abnormal values repeats it."""
    if isinstance(content, str):
        return "" if _ABSENT.match(content) else one_line(content)
    if not isinstance(content, dict):
        return ""
    parts = []
    for name in ("result", "findings", "impression"):
        text = content.get(name)
        if isinstance(text, str) and not _ABSENT.match(text) and not only_refers(text) and one_line(text) not in parts:
            parts.append(one_line(text))
    if not parts and isinstance(content.get("abnormal"), str) and not _ABSENT.match(content["abnormal"]):
        parts.append(one_line(content["abnormal"]))
    return " ".join(parts)
