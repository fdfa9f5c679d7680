"""Tables and figures of the results. This package knows nothing of how results were computed."""
