"""One thin module per stage: it hands settings and paths to the rooms that do the work."""
