"""Tables and figures from what was measured. Knows nothing of how it was computed."""
