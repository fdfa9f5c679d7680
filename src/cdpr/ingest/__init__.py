"""From raw clinical files to case records, split by patient."""

from .attrition import Attrition, AttritionReport
from .error import IngestError
from .run import ingest

__all__ = ["Attrition", "AttritionReport", "IngestError", "ingest"]
