"""Stage ``warm_start``: the supervised start of the tiny policy."""

from ..training.torch.warm_start import warm_start_policy as run

__all__ = ["run"]
