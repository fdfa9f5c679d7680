"""Each file defines one training algorithm: a subclass of :class:`cdpr.training.algorithm.Algorithm`. The setting
``training.algorithm`` is the name of the file."""
