"""Leak control: names of the diagnosis, results in the history, impressions."""

import pytest

from cdpr.ingest import Funnel
from cdpr.ingest.leaks import STRICT, control, diagnosis_in
from cdpr.settings.data import Leaks


@pytest.mark.parametrize(
    ("summary", "diagnosis", "leaks"),
    [
        ("- Chief Complaint: leg cellulitis", "Cellulitis", True),
        ("- Past Medical History: CHF", "Heart failure with reduced ejection fraction", True),
        ("- Chief Complaint: pe of the eye", "Pulmonary embolism", False),
        ("- Past Medical History: prior PE", "Pulmonary embolism", True),
        ("- Chief Complaint: fever", "Acute appendicitis", False),
        ("known crohn's  disease", "Crohn's disease flare", True),
        ("for cholecystitis-like pain", "Acute on chronic cholecystitis with stones", True),
        ("some pain and failure", "Acute pain", False),
        ("no CVA tenderness", "Stroke", False),
        ("prior CVA, tender knee", "Stroke", True),
        ("两天前诊断急性胰腺炎", "急性胰腺炎", True),
    ],
)
def test_a_diagnosis_is_found_under_its_names(summary, diagnosis, leaks):
    assert bool(diagnosis_in(summary, diagnosis)) == leaks


def cleared(leaks: Leaks) -> tuple[dict, dict, Funnel]:
    """One case that leaks in every way; None for history and results when the case is dropped."""
    history = {"Past Medical History": "Sepsis last year.",
               "History of Present Illness": "Chills. CT showed a mass. In the ED, WBC 15. Sepsis likely."}  # fmt: skip
    results = {"Chest X-ray": "Opacity, sepsis? Impression: Sepsis.", "ECG": "Impression: Sinus."}
    funnel = Funnel("private")
    return *(control("c", "Severe sepsis", history, results, leaks, funnel) or (None, None)), funnel


def test_leaks_are_dropped_blanked_or_kept_as_the_settings_say():
    kept = {name: "keep" for name in Leaks.model_fields}
    history, results, funnel = cleared(Leaks(**kept))
    assert history["History of Present Illness"].endswith("Sepsis likely.") and results["ECG"]
    assert {f.action for f in funnel.findings} == {"kept"} and len(funnel.rows()) == 4
    for key, rule in (("pre_established", "diagnosis established before"),
                      ("diagnosis_in_summary", "diagnosis stated in the summary")):  # fmt: skip
        history, _, funnel = cleared(Leaks(**{**kept, key: "drop"}))
        assert history is None and list(funnel.dropped) == [rule]
    assert cleared(Leaks(**kept | {"results_in_history": "emergency"}))[0]["History of Present Illness"] == (
        "Chills. CT showed a mass.")  # fmt: skip
    assert cleared(Leaks(**kept | {"impression": "mask"}))[1]["Chest X-ray"] == "Opacity, sepsis? Impression: ___."
    assert cleared(Leaks(**kept | {"diagnosis_in_results": "drop"}))[1] == {"ECG": "Impression: Sinus."}
    history, results, funnel = cleared(STRICT)
    assert history == {"Past Medical History": "___ last year.", "History of Present Illness": "Chills."}
    assert results == {"Chest X-ray": "Opacity, ___?"}
    assert not diagnosis_in(str(history) + str(results), "Severe sepsis")


def test_counts_hold_no_words_of_the_cases_and_the_list_beside_the_records_does():
    _, _, funnel = cleared(STRICT)
    assert "sepsis" not in str(funnel.report()).casefold() and "sepsis" in str(funnel.rows()).casefold()
    with pytest.raises(ValueError, match="not in RULES"):
        funnel.drop("a rule of my own", "c")
