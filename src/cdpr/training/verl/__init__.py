"""The engine ``verl``: our episode, credit and settings behind verl's public hooks (docs/design/verl.md).

``launch`` starts a run; ``configuration``, ``memory`` and ``duration`` plan it without verl. verl loads ``rows``,
``agent_loop``, ``worker`` and ``trainer``. ``cpu`` holds what a machine without a GPU needs.
"""
