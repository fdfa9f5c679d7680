"""One short file per algorithm, found by its name: a subclass of :class:`cdpr.training.algorithm.Algorithm`."""
