"""verl on a machine without a GPU: to prove the path, not to train anything of size.

verl ships no platform, engine or rollout server for CPUs, and takes all three from outside: the platform and the
server through ``VERL_USE_EXTERNAL_MODULES``, the engine through ``model.external_lib``. One place has no public door:
the table that finds a server's weight adapter by name (see ``rollout``).
"""

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "cdpr.training.verl.cpu.platform,cdpr.training.verl.cpu.rollout",
}

LOGICAL = {"num_cpus": 16, "num_gpus": 2}
"""What Ray is told each machine has: a "GPU" for the trainer and one for the frozen server."""
