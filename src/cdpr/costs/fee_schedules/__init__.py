"""Rates from the fee schedules of the Centers for Medicare & Medicaid Services, as published, of any year.

Only codes and rates are read: the descriptors of these files belong to the American Medical Association.
"""

from .national import read_clfs, read_opps
from .pfs import read_gpci, read_pfs
from .schedule import NATIONAL, FeeScheduleError, Schedule, split_codes

__all__ = ["NATIONAL", "FeeScheduleError", "Schedule", "read_clfs", "read_gpci", "read_opps", "read_pfs", "split_codes"]
