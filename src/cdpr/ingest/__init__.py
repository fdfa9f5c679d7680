"""From raw clinical files to case records, split by patient."""

from .attrition import Attrition, AttritionReport
from .flat_files import IngestError
from .run import ingest

__all__ = ["Attrition", "AttritionReport", "IngestError", "ingest"]
