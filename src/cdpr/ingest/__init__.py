"""Imports raw clinical files: makes case records of them, controls leaks of the diagnosis, and splits cases by
patient."""

from .attrition import Attrition, AttritionReport
from .flat_files import IngestError
from .run import ingest

__all__ = ["Attrition", "AttritionReport", "IngestError", "ingest"]
