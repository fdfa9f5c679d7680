"""The training engine ``verl``: our episodes, credit and settings behind verl's public hooks (docs/design/verl.md).

``launch`` starts a run. ``configuration``, ``memory`` and ``plan`` compute its configuration, memory and time without
verl. verl loads ``session``, ``agent_loop`` and ``trainer``. ``cpu`` adapts verl to a machine without a GPU.
"""
