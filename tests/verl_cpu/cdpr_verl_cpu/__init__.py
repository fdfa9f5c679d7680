"""verl on a machine without a GPU: to test that a run works, not to train anything of size.

verl ships no platform, engine or rollout server for CPUs, but accepts all three from outside: platform and servers
through ``VERL_USE_EXTERNAL_MODULES``, the engine through ``model.external_lib``. Two changes have no public hook and
replace private parts: the table of weight adapters (in ``rollout``), and how vLLM multiplies (in ``vllm_server``).
"""
