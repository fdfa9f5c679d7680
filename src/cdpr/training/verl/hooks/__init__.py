"""What verl loads of ours: schedule, episodes, groups, batches, trainer.

``schedule``, ``metrics`` and ``tokens`` work without verl.
"""
