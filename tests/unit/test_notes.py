"""Discharge notes, physical examinations and radiology reports: what is taken over, under which name, and what not."""

import time

import pytest
from mimic_tables import NOTE as SUMMARY

from cdpr.ingest.notes import (
    note_sections,
    parse_discharge_note,
    physical_results,
    primary_diagnosis,
    report_text,
    split_off_examination,
)
from cdpr.ingest.texts import one_line

SUFFIX = " (Physical Examination)"


def systems(text: str) -> dict[str, str]:
    return {key.removesuffix(SUFFIX): found for key, found in physical_results(text).items()}


@pytest.mark.parametrize(
    ("section", "diagnosis"),
    [
        ("Acute appendicitis", "Acute appendicitis"),
        ("Primary: \n- Acute pancreatitis, gallstone\n\nSecondary:\n- Hypertension", "Acute pancreatitis, gallstone"),
        ("PRIMARY DIAGNOSES:\n#) Sepsis\n#) Pneumonia", "Sepsis"),
        ("Primary diagnosis: Cellulitis.", "Cellulitis"),
        ("___\n1. COPD exacerbation", "COPD exacerbation"),
        ("1) NSTEMI 2) Heart failure", "NSTEMI"),
        ("PRIMARY: Sepsis; SECONDARY: Diabetes", "Sepsis"),
        ("PRIMARY: Sepsis SECONDARY DIAGNOSES: Diabetes", "Sepsis"),
        ("Acute cholecystitis, s/p cholecystectomy", "Acute cholecystitis"),
        ("s/p fall", "s/p fall"),
        ("SECONDARY DIAGNOSES:\nHypertension", ""),
        ("Other active issues:\nHypertension", ""),
        ("", ""),
        # organisms and grades are no bullets
        ("C. difficile colitis", "C. difficile colitis"),
        ("1. E. coli urosepsis", "E. coli urosepsis"),
        ("A. fib with RVR", "A. fib with RVR"),
        ("A) Sepsis\nB) Gout", "Sepsis"),
        ("#1 Sepsis\n#2 Gout", "Sepsis"),
        ("# Sepsis # Gout", "Sepsis"),
        ("i. Sepsis\nii. Gout", "Sepsis"),
        ("Diagnosis #1: Sepsis\nDiagnosis #2: Gout", "Sepsis"),
        ("Sepsis Discharge Condition: good", "Sepsis"),
        ("Addendum ___: see below\nPRIMARY:\nSepsis", "Sepsis"),
        ("(1) Sepsis", "Sepsis"),
        ("1.5 cm lung nodule", "1.5 cm lung nodule"),
        ("Grade 2. Epistaxis", "Grade 2. Epistaxis"),
        # beginnings of diseases are no ranks
        ("Acute-on-chronic kidney injury", "Acute-on-chronic kidney injury"),
        ("Acute - on chronic kidney injury", "Acute - on chronic kidney injury"),
        ("Primary-progressive multiple sclerosis", "Primary-progressive multiple sclerosis"),
        ("Primary: Secondary hyperparathyroidism", "Secondary hyperparathyroidism"),
        ("Chronic obstructive lung disease: severe", "Chronic obstructive lung disease: severe"),
        ("Other pulmonary embolism: saddle", "Other pulmonary embolism: saddle"),
        ("Pneumonia (secondary to aspiration)", "Pneumonia (secondary to aspiration)"),
        ("Anemia secondary to GI bleed", "Anemia secondary to GI bleed"),
        ("Pneumonia, COPD, hypertension", "Pneumonia, COPD, hypertension"),
        # headings are no diseases, with or without a colon
        ("ACTIVE PROBLEMS\nPancreatitis", "Pancreatitis"),
        ("Acute issues\n# Gout", "Gout"),
        ("Problem List\n1. Sepsis", "Sepsis"),
        ("PRIMARY DIAGNOSIS/ES: \nSepsis", "Sepsis"),
        ("Primary Diagnosis (es)\nSepsis", "Sepsis"),
        ("Principal problem - Cellulitis", "Cellulitis"),
        ("Dx: Sepsis", "Sepsis"),
        ("Axis I: Schizophrenia\nAxis II: deferred", "Schizophrenia"),
        # the order of the ranks does not matter
        ("Secondary: UTI\nPrimary: Sepsis", "Sepsis"),
        ("SECONDARY DIAGNOSES\nHTN\nPRIMARY DIAGNOSES\nPneumonia", "Pneumonia"),
        ("Chronic: HTN\nAcute: Stroke", "Stroke"),
        ("Admission diagnosis: chest pain\nFinal: NSTEMI", "NSTEMI"),
        # nothing but a de-identified name
        ("___ ___ syndrome\nNeutropenic fever", "Neutropenic fever"),
        ("___'s disease\nFall", "Fall"),
        ("___ pneumonia", "___ pneumonia"),
    ],
)
def test_the_first_primary_line_is_the_diagnosis(section, diagnosis):
    assert primary_diagnosis(section) == diagnosis


@pytest.mark.parametrize(
    "end",
    ["Assessment and Plan:\n{}", "A/P: {}", "Impression:\n{}", "Plan: {}", "ED Course:\n{}", "MDM: {}", "Dx - {}",
     "## Assessment\n{}", "**A/P**\n{}", "A&P\n{}", "1) Assessment - {}", "Neuro: intact. Plan: {}", "Consults: {}",
     "初步诊断：{}", "Course in the department: {}", "Outlook\n--------\n{}"],
)  # fmt: skip
def test_a_heading_that_is_no_part_of_an_examination_ends_it(end):
    """What is thought and done about the findings names the disease: it is no result, free of charge."""
    parts = ["JVP: 8 cm", "Right knee: warm", "Tinel's sign: positive", "CN II-XII: intact", "LE: no edema", "S1: loud",
             "- Pelvic: normal", "2. Gait: steady", "Straight leg raise: free", "心脏：无杂音"]  # fmt: skip
    text = "HPI:\nPain.\nPhysical Exam:\nVS: T 98.1\n" + "\n".join(parts) + "\n\n" + end.format("gout, colchicine")
    note = parse_discharge_note(text)
    assert "colchicine" not in str(note)
    said = " ".join(note.physical.values())
    assert all(part.split(": ")[-1].split("：")[-1] in said for part in parts), said
    assert not parse_discharge_note(text[: text.index("\n\n")]).cut


def test_note_parser_survives_anything_and_reads_several_systems_in_one_line():
    assert parse_discharge_note("").physical == {}
    assert parse_discharge_note("Physical Exam:\n" * 3 + "\x00___\n:::").primary_diagnosis == ""
    note = parse_discharge_note("Physical Exam:\nT 98.1 BP 120/80\nCV: RRR. LUNGS: CTAB, no wheeze. ABD: soft\n")
    assert note.physical == {
        "Vital Signs (Physical Examination)": "T 98.1 BP 120/80",
        "Cardiovascular (Physical Examination)": "RRR.",
        "Respiratory (Physical Examination)": "CTAB, no wheeze.",
        "Abdomen (Physical Examination)": "soft",
    }
    note = parse_discharge_note(
        "HPI:\nUnwell.\nImaging: clot.\nPMH:\nGout.\nPAST SURGICAL HISTORY:\nHernia.\nExam on admission:\n"
        "LUNGS: clear\nLabs:\nWBC 15\nBrief Hospital Course:\nPhysical Exam:\nLUNGS: worse\nDischarge Diagnosis:\nFlu\n"
    )
    assert note.history == {"History of Present Illness": "Unwell.", "Past Medical History": "Gout.\nHernia."}
    assert note.physical == {"Respiratory (Physical Examination)": "clear"} and note.primary_diagnosis == "Flu"


NOTE = """{cc}
abdominal pain

{hpi}
Two days of pain that
began near the navel.

In the ED:
Exam: tender, no rebound
On the floor still in pain.

{pmh}
PE: provoked
Asthma

{social}
Never smoked

{family}
No cancer

{physical}
Lungs: clear
Abd: soft

{end}
worse

Brief Hospital Course:
Treated.
Physical Exam:
Abd: better

{diagnosis}
Acute appendicitis

Discharge Condition:
well
"""
PLAIN = {
    "cc": "Chief Complaint:", "hpi": "History of Present Illness:", "pmh": "Past Medical History:",
    "social": "Social History:", "family": "Family History:", "physical": "Physical Exam:",
    "end": "Pertinent Results:", "diagnosis": "Discharge Diagnosis:"}  # fmt: skip


@pytest.mark.parametrize(
    "headings",
    [
        {},
        {name: f"**{heading}**" for name, heading in PLAIN.items()},
        {name: f"**{heading[:-1]}**:" for name, heading in PLAIN.items()},
        {name: heading[:-1].upper() for name, heading in PLAIN.items()},
        {name: heading[:-1] for name, heading in PLAIN.items()},
        {
            "cc": "CC:",
            "hpi": "HPI:",
            "pmh": "PMH:",
            "social": "SH:",
            "family": "FH:",
            "physical": "PE:",
            "end": "Labs:",
        },
        {"social": "SOCIAL HX:", "family": "FAMILY HX:", "diagnosis": "DISCHARGE DIAGNOSIS/ES:"},
        {"physical": "Exam:", "diagnosis": "DISCHARGE DIAGNOSES"},
        {"physical": "Physical Exam:\nADMISSION PHYSICAL EXAM:\n====="},
        {"physical": "PHYSICAL EXAMINATION\nExam:", "end": "LABS ON ADMISSION: lactate 4.2"},
        {"end": "ADMISSION LABS\nlactate 4.2"},
        {"end": "Microbiology:"},
    ],
)
def test_sections_are_found_under_any_usual_heading_and_short_forms_take_nothing_away(headings):
    note = parse_discharge_note(NOTE.format(**PLAIN | headings))
    assert note.history == {
        "Chief Complaint": "abdominal pain",
        "History of Present Illness": "Two days of pain that\nbegan near the navel.\n\nIn the ED:\n"
        "Exam: tender, no rebound\nOn the floor still in pain.",
        "Past Medical History": "PE: provoked\nAsthma",
        "Personal History": "Never smoked",
        "Family History": "No cancer",
    }
    assert note.physical == {"Respiratory" + SUFFIX: "clear", "Abdomen" + SUFFIX: "soft"}
    assert note.primary_diagnosis == note.final_diagnosis == "Acute appendicitis"


@pytest.mark.parametrize(
    "told", ["Labs: WBC 14", "Imaging: CT", "Physical Exam: tender", "PE: tender", "Hospital Course: elsewhere"]
)
def test_what_the_present_illness_tells_does_not_replace_the_physical_examination(told):
    text = NOTE.format(**PLAIN).replace("Exam: tender, no rebound", told)
    assert note_sections(text)["physical"] == "Lungs: clear\nAbd: soft"


def test_a_short_form_without_a_colon_is_a_word_of_its_section():
    """PE is an embolism too."""
    text = NOTE.format(**PLAIN | {"physical": ""}).replace("No cancer", "DVT\nPE")
    sections = note_sections(text)
    assert "physical" not in sections and sections["Family History"].startswith("DVT\nPE\n")


DISCHARGE = """Prior to discharge:|Before discharge:|At discharge:|At the time of discharge:|At time of discharge:
On day of discharge:|Exam on day of discharge:|Exam prior to discharge:|PHYSICAL EXAM PRIOR TO DISCHARGE
VS on discharge: 98|Vitals at discharge:|Vitals on discharge 98.6 110/70|Physical Exam (discharge):
PHYSICAL EXAM - DISCHARGE|DC exam:|D/C PE:|Pre-discharge exam:|[Discharge]|*DISCHARGE*|***DISCHARGE***
========@DISCHARGE|Discharge|Discharge:|DISCHARGE: 98.2 120/80|Discharge exam|___ DISCHARGE EXAM
DISCHARGE EXAM ___:|DISCHARGE PHYSICAL EXAMINATION|DISCHARGE VITALS: 98.1|2/14 DISCHARGE EXAM
PE on ___ (discharge):|Last exam before discharge:|Day of discharge exam:|Exam at time of discharge
Upon discharge|Discharge: General: well|Neuro exam at discharge:|Mental status on discharge:|DISCHARGE LABS:
ON TRANSFER|ICU transfer exam:|EXAM ON TRANSFER TO FLOOR:|Lungs: clear. DISCHARGE EXAM: VS 98"""


@pytest.mark.parametrize("heading", DISCHARGE.replace("\n", "|").split("|"))
def test_an_examination_at_discharge_is_no_finding_at_admission(heading):
    found = systems(f"GEN: ill\nABD: tender\n{heading.replace('@', chr(10))}\nABD: nontender\nNEURO: walks\n")
    assert found.pop("Respiratory", "clear.") == "clear." and found == {
        "General Appearance": "ill",
        "Abdomen": "tender",
    }


@pytest.mark.parametrize(
    "finding",
    [
        "Discharge: purulent from cervix", "PELVIC: without\ndischarge or lesions", "PELVIC: no\ndischarge.",
        "EYES: no discharge", "Pelvic exam without discharge", "EARS: clear; discharge scant", "GU: transferred here",
    ],
)  # fmt: skip
def test_a_discharge_that_is_a_finding_cuts_nothing(finding):
    assert systems(f"GEN: ill\n{finding}\nNEURO: alert\n")["Neurological"] == "alert"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "T 98.1 BP 120/80 HR 80 Thin man in pain. Lungs clear. Heart regular. No murmur. Abdomen soft, flat.",
            {"Vital Signs": "T 98.1 BP 120/80 HR 80 Thin man in pain.", "Respiratory": "Lungs clear.",
             "Cardiovascular": "Heart regular. No murmur.", "Abdomen": "Abdomen soft, flat."},
        ),
        (
            "T 98.1 BP 120/80. Thin man in pain. Lungs clear Abdomen soft",
            {"Vital Signs": "T 98.1 BP 120/80.", "General Appearance": "Thin man in pain.",
             "Respiratory": "Lungs clear", "Abdomen": "Abdomen soft"},
        ),
        (
            "AVSS  Gen: NAD  CV: RRR  Lungs: CTAB Abd: soft Lower Extremities: warm",
            {"Vital Signs": "AVSS", "General Appearance": "NAD", "Cardiovascular": "RRR", "Respiratory": "CTAB",
             "Abdomen": "soft", "Extremities": "warm"},
        ),
        (
            "VS: 98.1 120/80 16 97%\non room air\nPleasant man in no distress\nHEENT: anicteric",
            {"Vital Signs": "98.1 120/80 16 97% on room air", "General Appearance": "Pleasant man in no distress",
             "HEENT": "anicteric"},
        ),
        (
            "Temp: 98.6 HR: 88 BP: 120/70 Resp: 16 O2 Sat: 98\nLungs: clear",
            {"Vital Signs": "Temp: 98.6 HR: 88 BP: 120/70 Resp: 16 O2 Sat: 98", "Respiratory": "clear"},
        ),
        ("Exam:\nLower Ext: warm\nLeft Neck: scar", {"Lower Ext": "warm", "Left Neck": "scar"}),
        ("ADMISSION PHYSICAL EXAM\nGEN: ill\nCardiac exam:\nregular",
         {"General Appearance": "ill", "Cardiovascular": "regular"}),
        (
            "Cranial Nerves:\nII, III, IV: pupils equal\nVII: face even\nXI and XII: full\nMotor: 5/5",
            {"Cranial Nerves": "II, III, IV: pupils equal VII: face even XI and XII: full", "Motor": "5/5"},
        ),
        ("ABD: soft\nRECTAL: deferred\nGU: Not examined.\nPELVIC: exam deferred\nSKIN: warm",
         {"Abdomen": "soft", "Skin": "warm"}),
        ("ABD: soft\nEKG: sinus rhythm\nno ischemia\nLactate: 4.2\nNEURO: alert",
         {"Abdomen": "soft", "Neurological": "alert"}),
        (
            "神志清，精神可。体温：36.5℃，脉搏：80次/分。腹部：右下腹压痛，无反跳痛。"
            "心脏：律齐；双肺：清 四肢：无水肿。",
            {"General Appearance": "神志清，精神可。", "Vital Signs": "体温：36.5℃，脉搏：80次/分。",
             "腹部": "右下腹压痛，无反跳痛。", "心脏": "律齐；", "双肺": "清", "四肢": "无水肿。"},
        ),
        ("T36.5℃ P80次/分 BP120/80mmHg。\n腹部:软", {"Vital Signs": "T36.5℃ P80次/分 BP120/80mmHg。", "腹部": "软"}),
    ],
)  # fmt: skip
def test_an_examination_falls_into_its_systems(text, found):
    assert systems(text) == found


LUMP = "Thin, tired, dry tongue. Lungs clear; heart regular, no murmur,\nrub or gallop. Abdomen soft."


def test_a_paragraph_without_headings_and_vital_signs_stays_whole():
    assert systems(LUMP) == {"General Appearance": " ".join(LUMP.split())}


@pytest.mark.parametrize(
    "heading",
    ["HISTORY", "CLINICAL HISTORY", "INDICATION", "INDICATIONS FOR STUDY", "REASON FOR THIS EXAMINATION",
     "PRE-OPERATIVE DIAGNOSIS", "ADMITTING DIAGNOSIS", "UNDERLYING MEDICAL CONDITION/HISTORY", "TECHNIQUE",
     "RECOMMENDATION(S)", "COMPARISON"],
)  # fmt: skip
def test_the_occasion_of_a_report_is_no_result(heading):
    text = f"{heading}: sepsis\n\nFINDINGS: Clear lungs.\n\nIMPRESSION: Normal.\n"
    assert report_text(text) == "Clear lungs. Impression: Normal."


def test_text_before_the_headings_of_a_report_is_its_occasion_or_name():
    assert report_text("HISTORY: sepsis\n\nFree text before.\nIMPRESSION: Clear lungs.") == "Impression: Clear lungs."
    assert report_text("LIVER: Even.\nCONCLUSION: See above.") == "Liver: Even."


@pytest.mark.parametrize(
    "piece", [" ", "_", "=", "* ", "\n", "discharge ", "PE:\n", "Lungs ", "1. ", "'s ", "and/", "。心：", "- "]
)
def test_hostile_text_takes_no_time(piece):
    text = piece * 10_000 + "x"
    start = time.process_time()
    parse_discharge_note(f"Physical Exam:\nT 98.1\n{text}\nDischarge Diagnosis:\n{text}")
    parse_discharge_note(text)
    split_off_examination(text)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "headings",
    [
        "Chief  Complaint :|Hx  of Present Illness :|Past Medical  History:|Physical  Exam :|Discharge  Diagnosis :",
        "Chief Complaint (CC):|HPI (per ___):|Past Medical Hx (PMH):|Physical Exam (now):|Discharge Diagnosis (main):",
        "Presenting complaint:|Hx of presenting complaint:|Medical history:|On examination:|Diagnoses at discharge:",
        "Reason for Admission:|HPC:|Previous medical history:|Physical and Mental Status Exam:|D/C Dx:",
        "MAIN COMPLAINT|HOPI:|SURGICAL HX|PHYSICAL EXAM AT BIRTH:|Admitting Diagnosis: FORBIDDEN\nPrincipal Diagnosis:",
    ],
)
def test_headings_in_the_words_of_other_hospitals(headings):
    complaint, illness, past, exam, diagnosis = headings.split("|")
    note = parse_discharge_note(
        f"{complaint}\nache\n{illness}\ntwo days\n{past}\nasthma\n{exam}\nGEN: pale\nHOSPITAL COURSE BY SYSTEMS:\n"
        f"FORBIDDEN\n{diagnosis}\nGout\nSecondary diagnoses:\nFever\nDischarge condition: FORBIDDEN"
    )
    assert {*note.history.values()} == {"ache", "two days", "asthma"} and note.primary_diagnosis == "Gout"
    assert note.physical == {f"General Appearance{SUFFIX}": "pale"}


def test_an_examination_at_discharge_under_a_remark_is_not_the_one_at_admission():
    note = parse_discharge_note("HPI:\nPain\nPhysical Exam (at discharge):\nGEN: well\nDischarge Diagnosis:\nGout")
    assert not note.physical


def test_systems_alone_on_a_line_or_before_a_dash_and_imaging_among_them():
    alone = "VITALS\n98.6 120/80\n\nLUNGS\nclear\nCT ABD & PELVIS W/ CONTRAST:\nabscess\nABDOMEN\ntender"
    dashed = (
        "\u2022 Vitals \u2013 98.6 120/80\n\u2022 Lungs \u2013 clear\n\u2022 Abdomen \u2014 tender\nMRI spine: abscess"
    )
    for text in (alone, dashed):
        assert systems(text) == {"Vital Signs": "98.6 120/80", "Respiratory": "clear", "Abdomen": "tender"}


@pytest.mark.parametrize("title", ["LAST EXAM BEFORE LEAVING:", "Exam at time of death:", "PE on day of departure:"])
def test_an_examination_at_the_end_of_the_stay_is_left_out(title):
    assert systems(f"GEN: pale\n\n{title}\nGEN: well\nABD: soft") == {"General Appearance": "pale"}


@pytest.mark.parametrize("between", [" ", "   ", r"\n", r"\r\n"])
def test_a_note_without_line_ends_is_divided_at_its_headings(between):
    text = SUMMARY.format(complaint="Cough", diagnosis="Pneumonia")
    whole, flat = parse_discharge_note(text), parse_discharge_note(between.join(text.split("\n")))
    assert (flat.primary_diagnosis, flat.history.keys()) == ("Pneumonia", whole.history.keys())
    assert {name: one_line(text) for name, text in flat.history.items()} == {
        name: one_line(text) for name, text in whole.history.items()
    }
    assert flat.physical.keys() <= whole.physical.keys() and "crackles" in str(flat.physical)
    assert "clear" not in str(flat.physical) and "WBC" not in str(flat)
