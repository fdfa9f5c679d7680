"""Tables and figures of the results. Knows nothing of how it was computed."""
