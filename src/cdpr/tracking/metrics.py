"""Where rows of metrics were found before; see :mod:`cdpr.metrics_log`."""

from ..metrics_log import MetricsLog, read_metrics

__all__ = ["MetricsLog", "read_metrics"]
