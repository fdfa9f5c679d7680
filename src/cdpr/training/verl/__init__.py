"""The training engine ``verl``: our episodes, credit and settings behind verl's public hooks (docs/design/verl.md).

``launch`` starts a run. ``configuration``, ``memory`` and ``plan`` compute its configuration, memory and time without
verl. verl loads ``session``, ``agent_loop`` and ``trainer``. On a machine without a GPU it also loads the package in
tests/verl_cpu.
"""
