"""A text that denies its diagnosis does not give it, and one that denies an examination does not order it.

``phrasings.csv``: the rules were written with the phrasings ``build``; those ``held out`` were measured once before
they were read, and those written ``later`` likewise.
"""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path

import pytest
from test_judging import Scripted, verdict

from cdpr.cases.vocabulary import diagnoses, examinations
from cdpr.environment.denial import declines_examination
from cdpr.environment.model_judging import ModelJudge, ModelMatcher
from cdpr.environment.table_judging import TableMatcher, read_diagnosis, table_verdict

NAMES = {  # diagnosis, another one
    "english": [("Acute appendicitis", "Gastroenteritis"), ("Gout", "Septic arthritis"), ("PE", "Heart failure")],
    "chinese": [("急性阑尾炎", "胃肠炎"), ("痛风", "败血症"), ("心力衰竭", "哮喘")],
    "german": [("Appendizitis", "Pneumonie"), ("Lungenembolie", "Pneumonie")],
    "french": [("appendicite", "pneumonie"), ("embolie pulmonaire", "pneumonie")],
    "spanish": [("apendicitis", "neumonía"), ("embolia pulmonar", "neumonía")],
}
EXAMINATIONS = ("CT Abdomen and Pelvis", "Lipase", "头颅MRI")


def phrasings(about, stance):
    with (Path(__file__).parent / "phrasings.csv").open(encoding="utf-8") as file:
        return [row["text"] for row in csv.DictReader(file) if (row["about"], row["stance"]) == (about, stance)]


def texts(language, stance):
    return [(text.format(d=d, o=o), d) for text in phrasings(language, stance) for d, o in NAMES[language]]


@pytest.mark.parametrize("language", NAMES)
def test_a_denied_or_doubtful_diagnosis_is_never_right_by_the_tables(language):
    wrong = [text for text, truth in texts(language, "denies") if table_verdict(text, truth).correct]
    assert not wrong
    assert len(phrasings(language, "denies")) >= (80 if language in ("english", "chinese") else 20)


@pytest.mark.parametrize("language", NAMES)
def test_an_affirmed_diagnosis_is_never_denied_and_nearly_always_right_by_the_tables(language):
    given = texts(language, "affirms")
    assert not [text for text, _ in given if read_diagnosis(text).stance == "denied"]
    assert sum(table_verdict(text, truth).correct for text, truth in given) >= 0.85 * len(given)


@pytest.mark.parametrize("language", NAMES)
def test_the_judge_is_asked_about_the_whole_text_where_the_tables_doubt_and_not_where_it_denies(language):
    """Even a judge that finds everything right, as it sees names and not sense, cannot turn a denial round."""
    for text, truth in texts(language, "denies"):
        reading, model = read_diagnosis(text), Scripted(**{"True diagnosis": "Correct"})
        judged = verdict(ModelJudge(model), text, truth)
        if reading.stance == "denied":
            assert judged == (False, "table") and not model.requests, text
        elif reading.stance == "doubtful":
            assert f"Proposed diagnosis: {' '.join(text.split())}\n" in model.requests[0], text


@pytest.mark.parametrize(
    ("text", "truth", "right"),
    [
        ("Not gastritis but acute appendicitis", "Appendicitis", True),
        ("No longer pneumonia, now pulmonary embolism", "Pulmonary embolism", True),
        ("No longer pneumonia, now pulmonary embolism", "Pneumonia", False),
        ("Heart failure rather than pneumonia", "Heart failure", True),
        ("Heart failure rather than pneumonia", "Pneumonia", False),
        ("Pneumonia, less likely than heart failure", "Pneumonia", False),
        ("~~Pneumonia~~ Heart failure", "Heart failure", True),
        ("Non-ST elevation myocardial infarction", "NSTEMI", True),
        ("Seronegative arthritis", "seronegative arthritis", True),
        ("No diagnosis", "no diagnosis", True),
        ("非ST段抬高型心肌梗死", "非ST段抬高型心肌梗死", True),
    ],
)
def test_the_scope_of_a_denial(text, truth, right):
    assert table_verdict(text, truth).correct is right


def test_no_known_name_denies_itself():
    names = [name for term in diagnoses().terms.values() for name in (term.name, *term.aliases)]
    assert not [name for name in names if read_diagnosis(name).stance != "affirmed"]
    names = [name for t in examinations().terms.values() for name in (t.name, *t.aliases, *t.parts)]
    assert not [name for name in names if declines_examination(name)]


def test_a_denied_examination_is_not_ordered_by_tables_or_model():
    keys = ("CT Abdomen and Pelvis", "Lipase", "MRI Brain")
    for text in phrasings("requests", "denies"):
        for name in EXAMINATIONS:
            request, model = text.format(e=name), Scripted(**{"Asked for": name})
            assert TableMatcher(92.0).match(request, keys) == ((), "table"), request
            matcher = ModelMatcher(model, 92.0)
            asyncio.run(matcher.prepare(request, keys))
            assert matcher.match(request, keys) == ((), "table") and not model.requests, request


def test_an_ordered_examination_is_not_taken_for_a_denied_one():
    wrong = [
        t for t in phrasings("requests", "affirms") for name in EXAMINATIONS if declines_examination(t.format(e=name))
    ]
    assert not wrong
