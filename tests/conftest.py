"""Fixtures shared by all tests: small cases written by the project."""

from __future__ import annotations

import importlib.util
import os

import pytest

from cdpr.cases import CaseRecord
from cdpr.llm.asking import CASE, SYSTEM

# One thread each, set before anything loads torch: pytest runs two processes on two cores, and threads that wait for
# one another across them make small operations many times as slow.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without verl, what needs it is skipped."""
    if importlib.util.find_spec("verl") is None:
        for item in items:
            if item.get_closest_marker("verl"):
                item.add_marker(pytest.mark.skip(reason="verl is not installed: `make verl`"))


@pytest.fixture(autouse=True)
def nobody_asks() -> None:
    """Stages say in whose name they ask, each in a process of its own; tests share one."""
    SYSTEM.set("")
    CASE.set("")


@pytest.fixture
def case() -> CaseRecord:
    """A priced case with a panel in two keys, a misspelt twin, and a physical examination."""
    results = {
        "Abdominal (Physical Examination)": "Tender in the right lower quadrant.",
        "Complete Blood Count": "White Blood Cells: Value: 15.1; Units: K/uL; Reference Range: 4.0--11.0; "
        "Flag: abnormal",
        "Platelet Count": "Platelet Count: Value: 250; Units: K/uL; Reference Range: 150.0--440.0",
        "Lipase": "Lipase: Value: 30; Units: IU/L; Reference Range: 0.0--60.0",
        "CT Abdomen and Pelvis": "Dilated appendix with fat stranding.",
    }
    return CaseRecord(
        note_id="T-1",
        case_summary="- Patient Information: 30 year old male\n- Chief Complaint: Abdominal pain\n"
        "- Family History: None",
        key_pertinent_results_dict=results,
        final_diagnosis="Acute appendicitis",
        diagnosis_results="Acute appendicitis",
        exam_cost_map=dict(zip(results, (0.0, 7.77, 7.77, 6.89, 297.26), strict=True)),
        exam_billing_group={"Complete Blood Count": "CBC_PANEL", "Platelet Count": "CBC_PANEL"},
        dataset="mimic_iv",
        split="train",
        subject_key="s1",
        credentialed=False,
    )
