"""Stage ``ingest``."""

from ..ingest.run import ingest_dataset as run

__all__ = ["run"]
