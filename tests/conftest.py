"""Fixtures shared by all tests: small cases written by the project."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator

import hypothesis
import pytest
from toy import appendicitis

from cdpr.cases import CaseRecord
from cdpr.llm.types import CASE, DATASET, SYSTEM
from cdpr.report import style

# One thread each, set before anything loads torch: pytest runs several processes on two cores, and threads
# that wait for each other make small operations many times slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No example may fail because the machine is busy.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need verl when it is not installed."""
    if importlib.util.find_spec("verl") is None:
        for item in items:
            if item.get_closest_marker("verl"):
                item.add_marker(pytest.mark.skip(reason="verl is not installed: `make verl`"))


@pytest.fixture(autouse=True)
def no_caller() -> None:
    """Clear the context of model calls: stages set it in their own processes, tests share one."""
    SYSTEM.set("")
    CASE.set("")
    DATASET.set("")


@pytest.fixture(autouse=True)
def freeze_garbage() -> Iterator[None]:
    """Let a test collect only its own garbage: searching all imported modules takes long."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def coarse_figures(tmp_path_factory) -> None:
    """Draw figures at low resolution to save time."""
    fine, style.PARAMETERS = style.PARAMETERS.read_text(), tmp_path_factory.mktemp("style") / "matplotlibrc.txt"
    style.PARAMETERS.write_text(fine.replace("savefig.dpi: 200", "savefig.dpi: 40"))


@pytest.fixture
def case() -> CaseRecord:
    """A priced case with a panel in two keys, a misspelt twin, and a physical examination."""
    return appendicitis()
