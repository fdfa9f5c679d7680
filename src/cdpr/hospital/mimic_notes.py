"""Notes in the layout of MIMIC-IV-Note: headings, blanks and repetitions; every word of the text is ours."""

from __future__ import annotations

from ..cases import Analyte
from .model import Examination, Hospital, Site
from .sample import Patient, write_analytes, write_presentation, write_report


def discharge_note(hospital: Hospital, site: Site, patient: Patient, labs: list[Analyte]) -> str:
    """A discharge summary. The hospital course and the last sections name the diagnosis, as real ones do."""
    rng = patient.generator(902)
    told = write_presentation(hospital, site, patient)
    disease = hospital.diseases[patient.disease].name
    sex = "woman" if patient.female else "man"
    social = told["Personal History"] if rng.random() < 0.85 else "___"
    sections = [
        " \nName:  ___                     Unit No:   ___\n \nAdmission Date:  ___              Discharge Date:   ___"
        "\n \n"
        f"Date of Birth:  ___             Sex:   {'F' if patient.female else 'M'}\n \nService: MEDICINE",
        f"Allergies: \n{told['Allergy History']}",
        "Attending: ___.",
        f"Chief Complaint:\n{told['Chief Complaint']}",
        "Major Surgical or Invasive Procedure:\nNone",
        f"History of Present Illness:\n___ year old {sex}. {_sentence(told['History of Present Illness'])}",
        "Past Medical History:\n" + _sentence(told["Past Medical History"]),
        f"Social History:\n{social}",
        f"Family History:\n{told['Family History']}",
        "Physical Exam:\n" + _physical_exam(hospital, site, patient, discharge=rng.random() < 0.3),
        "Pertinent Results:\n" + _pertinent_results(labs),
        f"Brief Hospital Course:\nThe ___ was admitted and treated for {disease.lower()}. Symptoms improved over the "
        "stay.",
        "Medications on Admission:\nThe Preadmission Medication list is accurate and complete.\n1. ___ 20 mg PO DAILY",
        "Discharge Medications:\n1. ___ 20 mg PO DAILY",
        "Discharge Disposition:\nHome",
        f"Discharge Diagnosis:\n{disease}",
        "Discharge Condition:\nMental Status: Clear and coherent.\nActivity Status: Ambulatory - Independent.",
        f"Discharge Instructions:\nDear ___,\nYou were in the hospital because of {disease.lower()}. Take care.",
        "Followup Instructions:\n___",
    ]
    return "\n \n".join(sections) + "\n"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _physical_exam(hospital: Hospital, site: Site, patient: Patient, discharge: bool) -> str:
    lines = ["ADMISSION PHYSICAL EXAM:"] if discharge else []
    for exam in hospital.examinations.values():
        if exam.kind == "physical" and exam.name in patient.offered:
            lines.append(f"{exam.heading}: {physical_text(exam, site, patient)}")
    if discharge:
        lines += [" ", "DISCHARGE PHYSICAL EXAM:", "GENERAL: Well, walking.", "LUNGS: Clear.", "ABDOMEN: Benign."]
    return "\n".join(lines)


def physical_text(exam: Examination, site: Site, patient: Patient) -> str:
    """What the record says of one system."""
    if exam.findings[0].measure is None:
        return write_report(exam, site, patient)
    numbers = write_analytes(exam, site, patient)
    return ", ".join(f"{a.label} {a.value}{'%' if a.units == '%' else ''}" for a in numbers)


def _pertinent_results(labs: list[Analyte]) -> str:
    shown = " ".join(f"{a.label}-{a.value}{'*' if a.flag else ''}" for a in labs[:8])
    return f"ADMISSION LABS\n___ 06:10AM BLOOD {shown}" if shown else "ADMISSION LABS\n___"


def radiology_note(exam: Examination, site: Site, patient: Patient) -> str:
    """A report; the impression adds nothing that the findings do not say."""
    return (
        f"EXAMINATION:  {exam.report}\n \nINDICATION:  ___ with {'F' if patient.female else 'M'}, acute symptoms.\n \n"
        f"COMPARISON:  None.\n \nFINDINGS: \n \n{write_report(exam, site, patient)}\n \n"
        "IMPRESSION: \n \nAs described above."
    )
