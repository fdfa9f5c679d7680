"""The training engine ``torch``: model, optimiser and sampler in one process."""
