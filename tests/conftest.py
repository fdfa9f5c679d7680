"""Fixtures shared by all tests: small cases written by the project."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator

import pytest
from toy import appendicitis

from cdpr.cases import CaseRecord
from cdpr.llm.types import CASE, SYSTEM
from cdpr.report import style

# One thread each, set before anything loads torch: pytest runs several processes on two cores, and threads that wait
# for one another across them make small operations many times as slow.
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


@pytest.fixture(autouse=True)
def frozen() -> Iterator[None]:
    """All that tests import and leave takes long to look through for garbage: a test looks at its own only."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def coarse() -> None:
    """Figures are drawn coarsely: finely it takes long."""
    style.PARAMETERS["savefig.dpi"] = 40


@pytest.fixture
def case() -> CaseRecord:
    """A priced case with a panel in two keys, a misspelt twin, and a physical examination."""
    return appendicitis()
