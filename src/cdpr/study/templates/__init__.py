"""The raters' form."""
