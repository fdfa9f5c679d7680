"""Leak control: names of the diagnosis, results in the history, impressions."""

import pytest

from cdpr.cases import SECTIONS
from cdpr.ingest import Attrition, AttritionReport, IngestError
from cdpr.ingest.attrition import Leak
from cdpr.ingest.diagnosis_names import mentions, names_of
from cdpr.ingest.draft import Draft, Import
from cdpr.ingest.leaks import STRICT, before_emergency, control_leaks, tells_result
from cdpr.settings.datasets import Leaks

HPI = "History of Present Illness"
KEPT = {name: "keep" for name in Leaks.model_fields if name != "names"}


@pytest.mark.parametrize(
    ("text", "diagnosis"),
    [
        ("- Chief Complaint: leg cellulitis", "Cellulitis"),
        ("CHF", "Heart failure with reduced ejection fraction"),
        ("prior PE", "Pulmonary embolism"),
        ("known crohn's  disease", "Crohn's disease flare"),
        ("has had Crohns disease", "Crohn's disease"),
        ("born with Hirschsprung disease", "Hirschsprung's disease"),
        ("for cholecystitis-like pain", "Acute on chronic cholecystitis with stones"),
        ("prior CVA, tender knee", "Stroke"),
        ("两天前诊断急性胰腺炎", "急性胰腺炎"),
        ("Her husband counted three seizures this morning.", "Seizure"),
        ("one seizure", "Seizures"),
        ("Frequent UTIs since her stroke.", "Urinary tract infection"),
        ("two liver abscesses drained", "Liver abscess"),
        ("Started on azithromycin for pneumonia by his PCP.", "Left lower lobe pneumonia"),
        ("Ischemic cardiomyopathy, CHF with EF 25%.", "Acute on chronic systolic heart failure"),
        ("PCP diagnosed cellulitis and gave cephalexin.", "Cellulitis of left leg"),
        ("A stroke alert was called.", "Left MCA stroke"),
        ("fell two weeks ago, told of SDH", "Subdural hematoma"),
        ("fell two weeks ago, told of SDH", "Acute on chronic subdural haematoma"),
        ("third GI bleed this year", "Upper GI bleed (duodenal ulcer)"),
        ("third gastrointestinal haemorrhage this year", "Upper GI bleed (duodenal ulcer)"),
        ("clinic suspected pneumonia", "Sepsis due to pneumonia"),
        ("told of a pancreatic carcinoma", "Pancreatic cancer"),
        ("told of a pancreatic cancer", "Metastatic pancreatic carcinoma"),
        ("red leg, cellulitis?", "1. Cellulitis; 2. Diabetes"),
        ("red leg, cellulitis?", "#1. Cellulitis 2. Diabetes"),
        ("Two episodes of DKA", "Diabetic ketoacidosis"),
        ("recurrent C. diff", "Clostridium difficile infection"),
        ("MS since 2003, on interferon", "MS flare"),
        ("told of community-acquired pneumonia", "Pneumonia, community acquired"),
        ("fell ill with heat stroke", "Heat stroke"),
        # What looks like a negation and is none of this disease.
        ("Cough not improving after azithromycin for pneumonia.", "Pneumonia"),
        ("No relief with pills for kidney stones.", "Nephrolithiasis"),
        ("No fever, was diagnosed with pneumonia.", "Pneumonia"),
        ("No chest pain. Pneumonia last year.", "Pneumonia"),
        ("No fever but urosepsis in 2017", "Sepsis"),
        ("No diabetes\nPneumonia 2015", "Pneumonia"),
        ("Denies fever. Ms. B was told of pneumonia.", "Pneumonia"),
        ("HTN, no DM, diverticulitis twice", "Diverticulitis"),
        ("Without home oxygen, COPD GOLD III", "COPD exacerbation"),
        ("无发热，诊断为肺炎", "肺炎"),
        ("could not exclude pneumonia", "Pneumonia"),
        ("known oesophageal tumour", "Esophageal tumor"),
        ("hypoglycaemia at home", "Hypoglycemia"),
        ("The film has not ruled out pneumonia.", "Pneumonia"),
        # Adjectives, also of a name's last word and in British spelling.
        ("diabetic for ten years", "Type 2 diabetes mellitus"),
        ("pale and anaemic", "Iron deficiency anemia"),
        ("a known haemophiliac", "Hemophilia A"),
        ("looked septic", "Severe sepsis"),
        ("hypertensive for years", "Essential hypertension"),
        ("cirrhotic, on lactulose", "Cirrhosis of the liver"),
        # People in names, with and without accents and apostrophes.
        ("known Sjogren's syndrome", "Sjögren's syndrome"),
        ("HTN, Sjögren", "Sjogren's syndrome"),
        ("Guillain-Barre syndrome in 2010", "Guillain–Barré syndrome"),
        ("known Crohn‘s disease", "Crohn disease"),
        ("treated for Grave's disease", "Graves' disease"),
        ("Meniere´s since May", "Ménière's disease"),
        ("known Crohn‘s", "Crohn disease"),
        ("known Graves'", "Graves disease"),
        ("Grave’s, treated", "Graves' disease"),
        ("told of Hashimoto's", "Hashimoto thyroiditis"),
        ("an overactive thyroid", "Graves'"),
        ("ileal Crohn's disease", "Crohn's"),
        ("known Still's", "Still's disease"),
        ("Pneumonia: no fever since.", "Pneumonia"),
    ],
)
def test_a_diagnosis_is_found_under_its_names(text, diagnosis):
    assert [mention.relative for mention in mentions(text, diagnosis)][:1] == [False]


@pytest.mark.parametrize(
    ("text", "diagnosis"),
    [
        ("pe of the eye", "Pulmonary embolism"),
        ("fever", "Acute appendicitis"),
        ("some pain and failure", "Acute pain"),
        ("pain in the belly", "Pain, abdominal"),
        ("no CVA tenderness", "Stroke"),
        ("CVA tenderness on the left", "Stroke"),
        ("AMS", "MS flare"),
        ("drinks alcohol daily", "Syncope due to alcohol"),
        ("takes insulin for diabetes", "1. Cellulitis; 2. Diabetes"),
        ("Heat stroke as a teenager.", "Stroke"),
        ("had a stroke", "Heat stroke"),
        ("ST depression on prior stress test", "Depression"),
        ("Sickle cell anemia", "Anemia"),
        ("orthostatic hypotension", "Hypotension"),
        ("got his flu shot", "Influenza"),
        ("He denies any history of DVT or PE and takes no blood thinners.", "Pulmonary embolism"),
        ("He denies any history of DVT or\nPE.", "Pulmonary embolism"),
        ("Denies: fever, cough, seizures", "Seizure"),
        ("No known history of pancreatitis or gallstones.", "Acute pancreatitis"),
        ("Screening CT negative for lung cancer.", "Lung cancer"),
        ("HIV negative in 2019", "HIV"),
        ("HIV screening test was negative", "HIV"),
        ("He was ruled out for MI last year.", "Myocardial infarction"),
        ("PE was ruled out", "Pulmonary embolism"),
        ("She has never had a stroke.", "Stroke"),
        ("No CAD, stroke, or diabetes.", "Stroke"),
        ("No diabetes, hypertension or stroke.", "Stroke"),
        ("Never diagnosed with pneumonia", "Pneumonia"),
        ("black stools for 3 days; no prior GI bleeds.", "GI bleed"),
        ("否认肺炎病史", "肺炎"),
        ("She hasn't had pneumonia.", "Pneumonia"),
        ("Pneumonia: no", "Pneumonia"),
        ("asthma (+), pneumonia (-)", "Pneumonia"),
        ("Pneumonia was never confirmed.", "Pneumonia"),
        ("A film rules out pneumonia.", "Pneumonia"),
        ("non-diabetic, not anaemic", "Diabetes"),
        ("treated for pre-eclampsia", "Eclampsia"),
        ("hypertensive to 200/110", "Pulmonary hypertension"),
        ("a septic joint as a child", "Sepsis"),
        ("Still has pain. Kidneys hurt.", "Still's disease"),
        ("in a grave state", "Graves' disease"),
        ("Kidneys hurt.", "Kidney disease"),
    ],
)
def test_other_words_and_negated_names_are_no_leak(text, diagnosis):
    assert mentions(text, diagnosis) == []


@pytest.mark.parametrize(
    ("text", "diagnosis", "relative"),
    [
        ("Father had an MI at 50.", "Myocardial infarction", True),
        ("Strong family history of breast cancer.", "Breast cancer", True),
        ("Mother and two sisters died of breast cancer", "Breast cancer", True),
        ("MI in his father at 50", "Myocardial infarction", True),
        ("sarcoidosis in a cousin", "Sarcoidosis", True),
        ("Lives with her mother, who has COPD.", "COPD exacerbation", True),
        ("Her mother says he had a seizure.", "Seizure", False),
        ("Per her daughter, pneumonia last month.", "Pneumonia", False),
        ("Her mother had diabetes and she has COPD.", "COPD exacerbation", False),
        ("Mother is well. COPD on oxygen.", "COPD exacerbation", False),
        ("Pneumonia in April; mother is well.", "Pneumonia", False),
        ("其父及两兄弟均患高血压", "高血压", True),
        ("有高血压家族史", "高血压", True),
        ("母亲诉其有高血压", "高血压", False),
        ("父亲体健。高血压十年", "高血压", False),
        ("His daughter found him after a seizure", "Seizure", False),
        ("Mother" + " with a very long list of things" * 3 + " and breast cancer", "Breast cancer", True),
        ("Mother" + " with a very long list of things" * 9 + " and breast cancer", "Breast cancer", False),
    ],
)
def test_what_a_relative_has_is_told_apart(text, diagnosis, relative):
    (found,) = mentions(text, diagnosis)
    assert found.relative == relative


@pytest.mark.parametrize(
    ("family", "left"),
    [("父亲患高血压，母亲体健", "父亲患___，母亲体健"), ("父母体健，患者本人有高血压", None),
     ("Hypertension in both parents", "___ in both parents"), ("Parents well, the patient has hypertension", None)],
)  # fmt: skip
def test_in_a_family_history_the_diagnosis_is_a_relative_s_unless_it_is_said_of_the_patient(family, left):
    history = {"Chief Complaint": "Unwell", "Family History": family}
    diagnosis = "高血压" if "高血压" in family else "Hypertension"
    cleared = control_leaks("c", diagnosis, history, {"ECG": "seen"}, Leaks(), Attrition("private"))
    assert (cleared and cleared[0]["Family History"]) == left


def test_names_end_in_known_diseases_and_no_name_is_too_general():
    assert {"CHF", "Heart failure"} <= set(names_of("Acute on chronic systolic heart failure"))
    assert not {"pain", "infection", "cancer"} & {name.casefold() for name in names_of("Infection, urinary")}
    assert "Pneumonia" not in names_of("Ingestion of a bottle cap")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Pain in the right flank with fever\nIn the ED vitals 98 70 120/80\nGiven ceftriaxone",
         "Pain in the right flank with fever"),
        ("Pain for two days, worse with movement, no blood in urine ED Course: CT with stone.",
         "Pain for two days, worse with movement, no blood in urine"),
        ("Mr. A has fever and cannot lie flat. In the ED, T 103.", "Mr. A has fever and cannot lie flat."),
        ("Ms. ___ fell\nand hit her head. ED vitals: 98, 110. Labs WBC 20.", "Ms. ___ fell\nand hit her head."),
        ("Pain that began in the right flank one week before moving down to the groin over the next days in the ED",
         "Pain that began in the right flank one week before moving down to the groin over the next days"),
        ("He has chills. In our ED: T 98. CT abdomen: appendicitis.", "He has chills."),
        ("He has chills. In triage, T 103. WBC 22, lactate 4.", "He has chills."),
        ("He has chills.\nVitals on arrival: 98.6 120/80. CT showed stone.", "He has chills."),
        ("He has chills\nED: T 101, RUQ US with stones", "He has chills"),
        ("He has chills. On arrival in our ED he was pale.", "He has chills."),
        ("He has chills. On transfer to our ED, T 100.", "He has chills."),
        ("He has chills. VS in ED: 98.9 HR 110.", "He has chills."),
        ("Dizzy since Monday, and BP was 80/40 in the ED.", "Dizzy since Monday"),
        ("He has chills. Initially seen at OSH ED where CT head showed SDH, transferred here.", "He has chills."),
        ("She was dizzy last week, and in the ED was found with AF.", "She was dizzy last week"),
        ("She fell. In the ED, she reported pain since yesterday.", "She fell."),
        ("Vomiting.\nOn arrival to the floor, she feels better.", "Vomiting."),
        ("He has chills. She was brought in\nand in the\nED he was pale.", "He has chills. She was brought in"),
        ("Cough for weeks. Brought by his wife and in\nthe ED vitals were 99 80 120/70.",
         "Cough for weeks. Brought by his wife"),
    ],
)  # fmt: skip
def test_the_present_illness_ends_where_the_emergency_department_begins(text, left):
    attrition = Attrition("private")
    cleared = control_leaks("c", "Gout", {HPI: text}, {"Pulse": "80"}, Leaks(), attrition)
    assert cleared[0][HPI] == left
    assert "emergency department's findings in the history" in [finding.what for finding in attrition.incidents]


@pytest.mark.parametrize(
    "text",
    [
        "Mr. A was seen in the ED last week for the same cough and sent home. Today he has fever.",
        "She was evaluated in the ED two months ago. Vision is blurred.",
        "Two weeks ago, she was seen in the ED and sent home.",
        "He was at the emergency room of a hospital in Maine while on vacation. On return he had swelling.",
        "She went to the ED on Monday, where she was given fluids. Since then she vomited twice.",
        "She presented to the ED with two days of headache.",
        "In the ED, she was presenting with pain.",
        "Patient is a nurse in the ED who developed rash.",
        "He works at the ED of a clinic.",
        "Edema in both legs; an emergency in 2010.",
    ],
)
def test_another_visit_ends_no_present_illness(text):
    assert before_emergency(text) is None


_REPORTED = [
    "Labs: WBC 22, lactate 4.1",
    "Labs were notable for leukocytosis.",
    "D-dimer elevated at 4000",
    "Blood cultures grew GPCs",
    "Head CT: SDH",
    "CT-A: saddle embolus",
    "MRI brain - acute left MCA infarct",
    "Outside CT read as perforated diverticulitis",
    "CT scan of the abdomen and pelvis with contrast showed stranding.",
    "RUQ US with stones and wall thickening.",
    "US positive for stones.",
    "EKG with ST elevations in II, III.",
    "Transferred with SBO seen on an outside film.",
    "Troponin was 0.8.",
    "WBC of 15, Cr 2.1.",
    "She had an elevated lipase.",
    "UA positive for nitrites.",
    "K 6.2 at her clinic",
    "Glucose 450 mg/dL at home.",
    "腹部CT提示阑尾炎。",
]
_MENTIONED = [
    "She told us that she was dizzy.",
    "He was with us in clinic yesterday.",
    "US Army veteran, was deployed in 2004.",
    "A lab technician, she was exposed to chemicals.",
    "Follow up with his CTA was scheduled.",
    "Cultures were not sent.",
    "His MRA was stopped because of potassium.",
    "He has had no imaging.",
    "She was scheduled for a CT with contrast.",
    "Takes potassium 20 mEq daily and calcium 500mg.",
    "Pain 8/10, worse at night, 3 days.",
    "He had an x-ray in 2015.",
]


@pytest.mark.parametrize("sentence", [*_REPORTED, *_MENTIONED])
def test_a_sentence_reports_a_result_or_only_mentions_an_examination(sentence):
    assert tells_result(sentence) == (sentence in _REPORTED)


def cleared(leaks: Leaks) -> tuple[dict, dict, Attrition]:
    """One case that leaks in every way; None for history and results when the case is dropped."""
    history = {"Past Medical History": "Sepsis last year. No septic shock.",
               HPI: "Chills.\nCT showed a mass. In the ED, WBC 15. Sepsis likely.",
               "Family History": "Father with sepsis."}  # fmt: skip
    results = {
        "Chest X-ray": "Opacity, sepsis? Impression: Sepsis.",
        "ECG": "Conclusion: Sinus.",
        "Pus": "No sepsis.",
    }
    attrition = Attrition("private")
    return *(control_leaks("c", "Severe sepsis", history, results, leaks, attrition) or (None, None)), attrition


def test_leaks_are_dropped_blanked_or_kept_as_the_settings_say():
    history, results, attrition = cleared(Leaks(**KEPT))
    assert history[HPI].endswith("Sepsis likely.") and results["ECG"]
    assert {f.action for f in attrition.incidents} == {"kept"} and len(attrition.rows()) == 5
    for key, rule in (("pre_established", "diagnosis established before"),
                      ("family_history", "diagnosis of a relative"),
                      ("diagnosis_in_summary", "diagnosis stated in the summary")):  # fmt: skip
        history, _, attrition = cleared(Leaks(**{**KEPT, key: "drop"}))
        assert history is None and list(attrition.dropped) == [rule]
        assert not [f for f in attrition.incidents if "case kept" in f.what]
    masked, _, attrition = cleared(Leaks(**KEPT | {"family_history": "mask"}))
    assert masked["Family History"] == "Father with ___." and masked["Past Medical History"].startswith("Sepsis")
    assert ("diagnosis of a relative (case kept)", "masked") in {(f.what, f.action) for f in attrition.incidents}
    assert cleared(Leaks(**KEPT | {"results_in_history": "emergency"}))[0][HPI] == "Chills.\nCT showed a mass."
    assert cleared(Leaks(**KEPT | {"impression": "mask"}))[1]["Chest X-ray"] == "Opacity, sepsis? Impression: ___."
    assert set(cleared(Leaks(**KEPT | {"diagnosis_in_results": "drop"}))[1]) == {"ECG", "Pus"}
    history, results, attrition = cleared(STRICT)
    assert history == {"Past Medical History": "___ last year. No septic shock.", HPI: "Chills.",
                       "Family History": "Father with ___."}  # fmt: skip
    assert results == {"Chest X-ray": "Opacity, ___?", "Pus": "No sepsis."}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_searched(section):
    what = {"Past Medical History": "diagnosis established before", "Personal History": "diagnosis established before",
            "Family History": "diagnosis of a relative"}.get(section, "diagnosis stated in the summary")  # fmt: skip
    drop = Leaks(pre_established="drop", family_history="drop", diagnosis_in_summary="drop")
    assert (
        control_leaks("c", "Gout", {section: "Gout"}, {"Pulse": "80"}, drop, attrition := Attrition("private")) is None
    )
    assert [(f.what, f.place, f.name) for f in attrition.incidents] == [(what, section, "Gout")]


def test_a_title_ends_no_sentence():
    sections = {HPI: "Chills. Ms. A and Mr. B had a CT that showed stones. She told us that Dr. C was away."}
    history, _ = control_leaks("c", "Gout", sections, {"Pulse": "80"}, STRICT, Attrition("private"))
    assert history[HPI].split("\n") == ["Chills.", "She told us that Dr. C was away."]


def test_a_relative_costs_no_case_unless_the_settings_say_so():
    history = {"Chief Complaint": "Pain", "Past Medical History": "Gout in his father.", "Family History": "Gout"}
    masked, _ = control_leaks("c", "Gout", history, {"Pulse": "80"}, Leaks(), attrition := Attrition("private"))
    assert masked == history | {"Past Medical History": "___ in his father.", "Family History": "___"}
    assert {(f.what, f.action) for f in attrition.incidents} == {("diagnosis of a relative (case kept)", "masked")}


def test_line_ends_last_until_leaks_are_controlled():
    history = {HPI: "  Pain in the right flank  with fever\n\nBP was 80/40 in the ED\n", "Chief Complaint": "Pain"}
    draft = Draft("1", history, {"Lipase": "30"}, "Gout")
    record = Import(False, Leaks(), Attrition("private")).record(draft)
    assert record.case_summary.split("\n") == [
        "- Chief Complaint: Pain",
        f"- {HPI}: Pain in the right flank with fever",
    ]


def test_counts_hold_no_words_of_the_cases_and_the_list_beside_the_records_does():
    _, _, attrition = cleared(STRICT)
    assert "sepsis" not in str(attrition.report()).casefold() and "sepsis" in str(attrition.rows()).casefold()
    with pytest.raises(ValueError, match="not in RULES"):
        attrition.drop("a rule of my own", "c")


def test_every_finding_is_listed_and_every_case_counted_once():
    attrition = Attrition("mimic_iv", read=3)
    for place in ("ECG", "Chest X-ray", "CT Head"):
        attrition.drop("note_id missing or repeated", "(none or repeated)")
        attrition.leak("impression of a report", "kept", "c", place)
    report = AttritionReport.model_validate_json(attrition.report().model_dump_json())
    assert report.dropped == {"note_id missing or repeated": 3}
    assert report.leaks == (Leak(leak="impression of a report", action="kept", cases=1),)
    assert len(attrition.rows()) == 6
    attrition.kept = 1
    with pytest.raises(ValueError, match="3 cases read less those dropped are 0, not 1"):
        attrition.report()


@pytest.mark.parametrize("value", ["O'Brien", 'the "big" one', "Smith", "both ' and \""])
def test_an_error_without_text_quotes_no_value(value):
    error = IngestError("a.csv", f"{value!r} is not a number", "repair it", line=3, field="age").without_text()
    assert str(error) == "a.csv:3: field 'age': '(withheld)' is not a number; repair it"


@pytest.mark.parametrize(
    ("text", "diagnosis", "words"),
    [
        ("Lesions consistent with PML.", "Progressive multifocal encephalopathy (PML)", "PML"),
        ("A transition zone, compatible with Hirschsprung.", "Hirschsprung disease", "Hirschsprung"),
        ("Thrombosis of a deep femoral vein.", "Deep vein thrombosis of the leg", "Thrombosis"),
        ("Nephritis, interstitial.", "Acute interstitial nephritis", "Nephritis, interstitial"),
        ("Features of myasthenia.", "Myasthenia gravis", "myasthenia"),
        ("Suggests ARDS.", "Adult respiratory distress syndrome", "ARDS"),
        ("In line with (RDS).", "Neonatal respiratory distress syndrome", "RDS"),
        ("A gastric ulcer of 2 cm.", "Gastric peptic ulcer", "gastric ulcer"),
        ("Typical keratoses, seborrheic ones.", "Seborrheic keratosis", "keratoses, seborrheic"),
        ("It was microbial keratitis.", "Contact lens bacterial keratitis", "keratitis"),
    ],
)
def test_strict_control_finds_reordered_shortened_and_abbreviated_names(text, diagnosis, words):
    assert [mention.words for mention in mentions(text, diagnosis, loose=True)] == [words]
    both = f"{diagnosis} before. {text}"
    assert [mention.words for mention in mentions(both, diagnosis, loose=True)][-1:] == [words]  # beside its own name
    cleared = control_leaks(
        "c", diagnosis, {"Chief Complaint": "Unwell"}, {"Imaging": text}, STRICT, Attrition("private")
    )
    assert words not in cleared[1].get("Imaging", "")
    normal = control_leaks(
        "c", diagnosis, {"Chief Complaint": "Unwell"}, {"Imaging": text}, Leaks(), Attrition("private")
    )
    assert normal[1]["Imaging"] == text


@pytest.mark.parametrize(
    ("text", "diagnosis", "left"),
    [
        ("His mother has rheumatoid arthritis.", "Reactive arthritis", True),
        ("Chronic arthritis of one knee.", "Reactive arthritis", False),
        ("Typical arthritis of one knee.", "Reactive arthritis", False),
        ("Hepatitis A IgG antibody: positive", "Active chronic hepatitis B infection", True),
        ("Findings of hepatitis: antibody pending", "Hepatitis B infection, active", False),
        ("Rubella IgM: positive", "Congenital rubella infection", True),
        ("Varicella IgM: positive", "Varicella", True),
        ("Varicella zoster virus PCR: positive", "Varicella", True),
        ("Varicella virus infection", "Varicella", False),
        ("Necrosis of single cells.", "Acute tubular necrosis", True),
        ("An acute infarction of the brain.", "Acute myocardial infarction", True),
        ("Tubular necrosis.", "Acute tubular necrosis", False),
        ("Heart disease in the family.", "Ischemic rheumatic heart disease", True),
        ("In respiratory distress since birth.", "Neonatal respiratory distress syndrome", True),
        ("It suggests respiratory distress syndrome.", "Neonatal respiratory distress syndrome", False),
        # Words that many diseases share.
        ("The heart is normal. Lower lobe clear.", "Acute heart failure", True),
        ("Chronic changes of the lower artery.", "Peripheral artery disease", True),
        ("No sign of myasthenia.", "Myasthenia gravis", True),
        ("Pos. in both tests", "Polycystic ovary syndrome", True),
    ],
)
def test_a_single_word_of_another_disease_of_a_test_or_of_many_diseases_is_no_loose_name(text, diagnosis, left):
    assert (mentions(text, diagnosis, loose=True) == []) is left


def test_the_greek_plural_names_the_diagnosis_too():
    for text, diagnosis in (
        ("Seborrheic keratoses.", "Seborrheic keratosis"),
        ("A bone metastasis.", "Bone metastases"),
    ):
        assert [mention.words for mention in mentions(text, diagnosis)] == [text[:-1].removeprefix("A ")], text


def test_the_name_of_an_examination_may_give_the_diagnosis_away():
    """What was seen is named by a heading; a test for the disease only asks, and its name stays."""
    names = ["Gout flare (Physical Examination)", "Acute gout", "Joints (Physical Examination)", "Gout antigen test",
             "Screen for gout", "Uric Acid"]  # fmt: skip
    results = dict.fromkeys(names, "seen")
    for leaks, kept in ((STRICT, names[2:]), (Leaks(**KEPT), names)):
        attrition = Attrition("d")
        _, cleared = control_leaks("7", "Gout", {HPI: "Sore toe"}, results, leaks, attrition)
        assert list(cleared) == kept
        incidents = [(i.what, i.action, i.place) for i in attrition.incidents]
        assert incidents == [
            ("diagnosis named by an examination", "removed", name) for name in names if name not in kept
        ]


@pytest.mark.parametrize(("diagnosis", "name", "name_with_diagnosis"), [
    ("Upper GI bleed", "Gastrointestinal Bleeding Scan", "Gastrointestinal bleeding"),
    ("Acute viral hepatitis", "Hepatitis B Viral Load", "Acute viral hepatitis"),
    ("Acute appendicitis", "CT Abdomen", "CT Abdomen, acute appendicitis"),
    ("Acute pancreatitis", "Lipase", "Lipase (acute pancreatitis)"),
    ("Gout", "Uric Acid", "History of gout"),
    ("Elevated cardiac enzymes", "Serial cardiac enzymes", "Elevated cardiac enzymes seen"),
    ("Costovertebral angle tenderness", "Costovertebral angle tenderness (Physical Examination)",
     "Costovertebral angle tenderness at rest (Physical Examination)"),
])  # fmt: skip
def test_a_known_examination_keeps_its_name_and_what_is_added_to_it_counts(diagnosis, name, name_with_diagnosis):
    _, cleared = control_leaks(
        "7", diagnosis, {HPI: "Unwell"}, {name: "seen", name_with_diagnosis: "seen"}, STRICT, Attrition("d")
    )
    assert list(cleared) == [name]
