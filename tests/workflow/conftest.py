"""Fixtures of the tests that run the workflow."""

import os
from pathlib import Path

import pytest
from finished_project import finished_project
from project import Project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project for one test module that has run once."""
    base = Path(tmp_path_factory.getbasetemp())
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # the workers' folders stand side by side
    return finished_project(tmp_path_factory.mktemp("made") / "project", session / "finished")
