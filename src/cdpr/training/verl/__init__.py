"""The engine ``verl``: our episode, credit and settings behind verl's public hooks (docs/design/verl.md).

``plan``, ``session``, ``schedule``, ``model``, ``credit`` and ``tokens`` work without verl; ``agent_loop``, ``worker``,
``advantage`` and ``trainer`` are what verl loads.
"""
