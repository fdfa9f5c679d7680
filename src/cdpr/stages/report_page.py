"""Stage ``report_page``."""

from ..report.report_page import write_report as run

__all__ = ["run"]
