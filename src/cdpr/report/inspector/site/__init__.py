"""The page, its script and its style, as they are copied beside the data."""
