"""What verl loads of ours: schedule, episodes, groups, batches, trainer.

``schedule``, ``policies``, ``metrics`` and ``tokens`` work without verl.
"""
