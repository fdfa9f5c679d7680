"""Stage ``data_card``."""

from ..report.data_card import write_data_card as run

__all__ = ["run"]
