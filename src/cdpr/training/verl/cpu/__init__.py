"""verl on a machine without a GPU: to test that a run works, not to train anything of size.

verl ships no platform, engine or rollout server for CPUs, but accepts all three from outside: platform and servers
through ``VERL_USE_EXTERNAL_MODULES``, the engine through ``model.external_lib``. Two changes have no public hook and
replace private parts: the table of weight adapters (in ``rollout``), and how vLLM multiplies (in ``vllm_server``).
"""

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "cdpr.training.verl.cpu.platform,cdpr.training.verl.cpu.rollout",
    # For both of vLLM's servers (trained and frozen policy), where there are any: 1 GiB of keys and values instead of a
    # share of the main memory, and threads that are not bound to cores.
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}

LOGICAL = {"num_cpus": 16, "num_gpus": 2}
"""Logical devices of each machine for Ray: a "GPU" for the trainer and one for the frozen server."""
