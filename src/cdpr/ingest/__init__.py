"""From raw clinical files to case records, split by patient."""

from .funnel import Funnel, IngestError
from .run import IMPORTERS, ingest

__all__ = ["IMPORTERS", "Funnel", "IngestError", "ingest"]
