"""Seeded mutations of every input: no fault of the program, no hang, nothing lost silently."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parent))
# They hold the inputs, and are tests of their own.
pytest.register_assert_rewrite("test_fee_schedules", "test_ingest_benchmarks", "test_ingest_fhir")

from fuzz import fuzz  # noqa: E402
from targets import TARGETS  # noqa: E402


@pytest.mark.parametrize("name", TARGETS)
def test_damage_is_refused_or_reported(name):
    tally = fuzz(TARGETS[name], 80 if name == "mimic_iv" else 200)  # each of its runs takes a third of a second
    assert not tally.faults, "\n".join(f"{name} {case}: {message}" for case, message in list(tally.faults.items())[:5])
    assert tally.outcomes["refused"] > 20, "the damage is too weak to test anything"
